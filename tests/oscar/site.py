"""The folder of a site: the settings of tests/oscar, and what the page has a reader write there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.web.quickstart import own_environment, snippets

PAGE = "how-to/foreign-shop.md"
#: Of each instance: one for each buyer, so that all can be at the bank at once.
THREADS = 20
WSGI = """
import os

os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.wsgi import get_wsgi_application

application = get_wsgi_application()
"""
FORK = """
from oscar.apps.checkout import apps


class CheckoutConfig(apps.CheckoutConfig):
    name = "shop.checkout"
"""
USE_FORK = """
INSTALLED_APPS[INSTALLED_APPS.index("oscar.apps.checkout.apps.CheckoutConfig")] = (
    "shop.checkout.apps.CheckoutConfig"
)
"""


def block(name: str) -> str:
    """The block of the page that begins with the name of its file."""
    (found,) = (one for one in snippets(PAGE) if one.startswith(f"# {name}\n"))
    return found


class Site:
    """A reader's folder. It is plain oscar until a method adds something."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = ["from tests.oscar.settings import *"]
        self.write("shop/__init__.py", "")
        self.write("wsgi.py", WSGI)
        self._save()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _save(self) -> None:
        self.write("site_settings.py", "\n".join(self._settings))

    def add_rule(self) -> None:
        """Type the page's rule."""
        self.write("shop/locks.py", block("shop/locks.py"))
        # A warning for each stale write, as in debug mode.
        self._settings += [block("settings.py"), 'DISTLOCK_STALE_WRITES = "warn"']
        self._save()

    def guard_class(self, method: str) -> None:
        """Type the page's class, with its guard on *method*. There is no rule then."""
        self.add_rule()
        code = block("shop/checkout/views.py").replace("dispatch(", f"{method}(")
        imported = "from oscar.apps.checkout.views import *\nfrom django_distlock import distributed_lock\n"
        self.write("shop/checkout/__init__.py", "")
        self.write("shop/checkout/apps.py", FORK)
        self.write("shop/checkout/views.py", imported + code)
        self._settings += ["DISTLOCK_RULES = []", USE_FORK]
        self._save()

    def check(self) -> str:
        """What ``manage.py check`` says, warnings included."""
        environment = own_environment() | {"DJANGO_SETTINGS_MODULE": "site_settings"}
        environment["PYTHONPATH"] = os.pathsep.join([str(self.folder), *sys.path])
        command = [sys.executable, "-m", "django", "check"]
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def log(self) -> str:
        """What the instances have written."""
        return "".join(path.read_text() for path in self.folder.glob("*.log"))
