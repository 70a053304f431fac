"""Without metrics nothing of them is there: neither a module, nor a call."""

from __future__ import annotations

import subprocess
import sys
from types import FrameType

import pytest

import distlock
from distlock import listening, metrics

ABSENT = """
import sys
import django_distlock, flask_distlock, distlock.metrics
assert not {"prometheus_client", "opentelemetry"} & sys.modules.keys()
for name in ("prometheus_client", "opentelemetry"):
    sys.modules[name] = None
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import make_client
make_client(read("memory://off")["default"])
for kind in distlock.metrics.KINDS:
    try:
        make_client(read({"default": {"LOCATION": "memory://off", "METRICS": kind}})["default"])
    except distlock.ConfigurationError as error:
        print(error)
"""


def calls(locks: distlock.Locks) -> list[str]:
    """What a pair calls of ours that listens."""
    called: list[str] = []
    files = {listening.__file__, *metrics.__path__}

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and any(frame.f_code.co_filename.startswith(file) for file in files):
            called.append(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        with locks.lock("product_1"):
            pass
    finally:
        sys.setprofile(None)
    return called


def test_no_hook_is_called_when_it_is_off() -> None:
    assert calls(distlock.connect("memory://off")) == []
    # And one is seen where there is one.
    listener = metrics.listener("prometheus", "seen")
    assert "Listened.acquire" in calls(distlock.connect("memory://seen", listener=listener))


def test_the_extra_is_needed_only_where_it_is_asked_for() -> None:
    ran = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    for kind, line in zip(metrics.KINDS, ran.stdout.splitlines(), strict=True):
        assert f"Metrics by {kind} need" in line
        assert "[metrics]'" in line


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(distlock.ConfigurationError, match="'prometheus' or 'opentelemetry'"):
        metrics.listener("statsd")
