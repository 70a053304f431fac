"""What sites do that nobody thought of: odd places, several apps and registries, listeners that are none."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import distlock
from distlock import listening, metrics
from distlock.metrics import labels, prometheus
from flask_distlock import DistLock, distributed_lock
from tests.metrics.page import block


def shown(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """How many were granted, by alias and place: as one reads it who scrapes."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.labels["alias"], sample.labels["where"]): sample.value
        for family in families
        for sample in family.samples
        if sample.name == "distlock_acquisitions_total" and sample.labels["result"] == "granted"
    }


def take_in(file: str, locks: distlock.Locks) -> None:
    """Take a lock in a function of code that is new, and stands in *file*."""
    source = "def odd():\n    with locks.lock('a'):\n        pass\nodd()"
    exec(compile(source, file, "exec"), {"locks": locks, "__name__": "odd"})


@pytest.mark.parametrize(
    ("file", "as_text"),
    [
        ('quote"back\\slash{}', 'quote"back\\slash{}'),
        ("new\nline", "new\nline"),
        ("日本", "日本"),
        ("no\udce9text", "no?text"),
    ],
)
def test_every_place_and_alias_is_text(file: str, as_text: str) -> None:
    registry = CollectorRegistry()
    listener = metrics.listener("prometheus", as_text, registry)
    take_in(f"/site/{file}.py", distlock.connect("memory://odd", listener=listener))
    assert shown(registry) == {(as_text, f"odd ({as_text}.py:1)"): 1}


def test_code_that_is_made_anew_for_each_lock_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    listener = prometheus.PrometheusMetrics("anew", registry)
    locks = distlock.connect("memory://anew", listener=listener)
    monkeypatch.setattr(labels, "MOST", 10)
    for _ in range(100):
        take_in("template.py", locks)
    assert len(listener.places) <= 10
    assert shown(registry) == {("anew", "odd (template.py:1)"): 100}


def app_with(alias: dict[str, Any]) -> Flask:
    app = Flask(__name__)
    app.testing = True
    app.config["DISTLOCK"] = {"default": alias}
    DistLock(app)

    @app.post("/<int:id>")
    @distributed_lock("product_<id>")
    def sell(id: int) -> str:
        return "sold"

    return app


def test_two_apps_with_a_registry_each_and_two_that_share_one() -> None:
    page: dict[str, Any] = {}
    exec(block("def in_our_registry"), page)
    ours, theirs = page["REGISTRY"], CollectorRegistry()
    kinds = [
        page["in_our_registry"],
        *[lambda alias: metrics.listener("prometheus", alias, registry=theirs)] * 2,
    ]
    apps = [
        app_with({"LOCATION": f"memory://app{number}", "METRICS": kind}) for number, kind in enumerate(kinds)
    ]
    for app in apps:
        assert app.test_client().post("/1").status_code == 200
    where = f"{__name__}.app_with.<locals>.sell"
    assert shown(ours) == {("default", where): 1}
    assert shown(theirs) == {("default", where): 2}


def test_what_is_no_listener_and_no_registry_is_refused_when_it_is_configured() -> None:
    refused = partial(pytest.raises, distlock.ConfigurationError)
    with refused(match=r"^A str is no listener: it has no asked\(\), lost"):
        distlock.connect("memory://none", listener="prometheus")  # type: ignore[arg-type]
    with refused(match=r"^DISTLOCK\['default'\]\['METRICS'\]: A NoneType is no listener"):
        app_with({"LOCATION": "memory://none", "METRICS": lambda alias: None}).test_client().post("/1")
    with refused(match="A str is no registry. Pass a CollectorRegistry"):
        metrics.listener("prometheus", "none", "default")  # type: ignore[arg-type]
    with refused(match="OpenTelemetry has no registry"):
        metrics.listener("opentelemetry", "none", CollectorRegistry())


class TellsNothing:
    """A listener whose attempts are none."""

    def asked(self, names: tuple[str, ...], where: object) -> object:
        return object()

    def lost(self, *about: object) -> None: ...

    lifted = reconnected = release_requested = lost


def test_an_attempt_without_methods_costs_a_line_of_the_log_and_no_lock(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_complained", {})
    locks = distlock.connect("memory://nothing", listener=TellsNothing())  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "distlock"):
        for _ in range(20):
            with locks.lock("a"):
                assert locks.lock("a").acquire(timeout=0) is None
    assert not locks.lock("a").locked()
    said = [f"A listener failed in {what}(); " for what in ("acquired", "refused", "released")]
    assert [record.getMessage().startswith(one) for record, one in zip(caplog.records, said, strict=True)]


WITHOUT_FOLDER = """
import distlock
from distlock import metrics
locks = distlock.connect("memory://lost", listener=metrics.listener("prometheus", "lost"))
for _ in range(3):
    with locks.lock("a") as grant:
        assert locks.lock("a").acquire(timeout=0) is None
assert not locks.lock("a").locked()
"""


def test_a_folder_for_the_numbers_that_is_gone_costs_no_lock(tmp_path: Path) -> None:
    about = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "gone")}
    command = [sys.executable, "-c", WITHOUT_FOLDER]
    ran = subprocess.run(command, env=about, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("A listener failed in asked()") == 1
    assert "FileNotFoundError" in ran.stderr
