"""What was measured on: the versions, the processors, and what else they had to do."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata

#: Whose versions the figures depend on.
PACKAGES = (
    "redis",
    "hiredis",
    "python-redis-lock",
    "pottery",
    "sherlock",
    "django-redis",
    "kazoo",
    "psycopg",
    "Django",
    "Flask",
    "gunicorn",
)


def about() -> dict[str, str]:
    """What to say beside the figures."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "commit": commit(),
        "versions": ", ".join(filter(None, map(version, PACKAGES))),
    }


def version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return ""


def commit() -> str:
    """Of this checkout; empty outside of one."""
    asked = ["git", "-C", os.path.dirname(__file__), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
