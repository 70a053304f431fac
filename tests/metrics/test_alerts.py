"""A real Prometheus scrapes a site: each of its alerts fires by what it is for, and the dashboard has data.

Its minutes are shorter here; `alerts.test.yml` has the thresholds with the times that they have at a site.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import prometheus_client
import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text

import distlock
from distlock import metrics
from flask_distlock import DistLock, distributed_lock
from flask_distlock.fence import fence_table
from tests.metrics.prometheus_server import PrometheusServer, scraping
from tests.redis_server import RedisServer, eventually

ALIAS = "alerts"
FOLDER = Path(metrics.__path__[0])
PATIENCE = 60
#: Milliseconds. There are three scrapes in it.
MINUTE = 600


def expressions() -> dict[str, list[str]]:
    """What each panel of the dashboard asks, with its variables filled in."""
    panels = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))["panels"]
    return {
        panel["title"]: [
            target["expr"].replace("$alias", ALIAS).replace("$__rate_interval", "1m")
            for target in panel["targets"]
        ]
        for panel in panels
    }


class Site:
    """A view whose fence and COMMIT are in a database."""

    def __init__(self, url: str, database: Path) -> None:
        self.app = Flask(__name__)
        self.app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{database}"
        alias = {"LOCATION": url, "METRICS": "prometheus", "TTL": 1, "OPTIONS": {"io_timeout": 0.5}}
        self.app.config["DISTLOCK"] = {"default": {"LOCATION": "memory://alerts"}, ALIAS: alias}
        self.db = SQLAlchemy()
        fence_table(self.db.metadata)
        self.db.init_app(self.app)
        self.lock_service = DistLock(self.app)
        self.app.post("/buy")(distributed_lock("product_1", alias=ALIAS, fence=True)(self.buy))
        with self.app.app_context():
            self.db.create_all()
            self.execute("CREATE TABLE sold (id INTEGER)")

    def buy(self) -> str:
        self.db.session.execute(text("INSERT INTO sold VALUES (1)"))
        self.db.session.commit()
        return "sold"

    def sell(self) -> None:
        assert self.app.test_client().post("/buy").status_code == 200

    def execute(self, statement: str) -> None:
        with self.app.app_context():
            self.db.session.execute(text(statement))
            self.db.session.commit()

    @property
    def locks(self) -> distlock.Locks:
        with self.app.app_context():
            return self.lock_service[ALIAS]

    def close(self) -> None:
        with self.app.app_context():
            self.lock_service.close()
            self.db.engine.dispose()


@pytest.fixture
def site(own_server: RedisServer, tmp_path: Path) -> Iterator[Site]:
    site = Site(own_server.url, tmp_path / "shop.sqlite3")
    yield site
    site.close()


@pytest.fixture
def prometheus(site: Site, tmp_path: Path) -> Iterator[PrometheusServer]:
    rules = tmp_path / "alerts.yml"
    as_they_are = (FOLDER / "alerts.yml").read_text("utf-8")
    hurried = re.sub(r"\b(\d+)m\b", lambda found: f"{int(found[1]) * MINUTE}ms", as_they_are)
    rules.write_text(hurried, "utf-8")
    exporter, thread = prometheus_client.start_http_server(0, addr="127.0.0.1")
    try:
        with scraping(exporter.server_port, rules, tmp_path) as prometheus:
            yield prometheus
    finally:
        exporter.shutdown()
        exporter.server_close()
        thread.join(PATIENCE)


def test_each_alert_fires_by_its_cause_and_each_panel_shows_it(
    site: Site, own_server: RedisServer, prometheus: PrometheusServer
) -> None:
    for _ in range(3):
        site.sell()
    sold = f'distlock_commit_seconds_count{{alias="{ALIAS}"}}'
    eventually(lambda: prometheus.values(sold) == [3], "what was sold is scraped", pause=0.1)
    assert prometheus.fired(ALIAS) == set()

    def fires(alert: str) -> bool:
        return alert in prometheus.fired(ALIAS)

    grant = site.locks.lock("kept").acquire()
    assert grant is not None
    # As one that is restarted without persistence, or evicts.
    own_server.client.flushall()
    eventually(lambda: fires("DistlockLockLost"), "the alert for losses", pause=0.1)
    # The database has seen what a lock service gave out whose clock was ahead.
    site.execute("UPDATE distlock_fence SET number = number + 1000000000000, holder_id = 'of before'")
    site.sell()
    eventually(lambda: fires("DistlockFenceLifted"), "the alert for lifted fences", pause=0.1)
    assert prometheus.fired(ALIAS) == {"DistlockLockLost", "DistlockFenceLifted"}

    other = distlock.connect(own_server.url)
    busy = site.locks.lock("busy")
    with other.lock("busy"):

        def refuses() -> bool:
            assert busy.acquire(timeout=0) is None
            return fires("DistlockRefusing")

        eventually(refuses, "the alert for refusals", pause=0.1)
    other.close()
    assert not fires("DistlockUnavailable")

    own_server.kill()

    def is_away() -> bool:
        with pytest.raises(distlock.BackendUnavailable):
            busy.acquire(timeout=0)
        return fires("DistlockUnavailable")

    eventually(is_away, "the alert of a lock service that does not answer", pause=0.1)
    own_server.start()
    site.sell()
    for title, asked in expressions().items():
        for expression in asked:
            eventually(lambda asked=expression: prometheus.values(asked), f"{title}: {expression}", pause=0.1)


def test_the_thresholds(tmp_path: Path) -> None:
    for file in (FOLDER / "alerts.yml", Path(__file__).with_name("alerts.test.yml")):
        shutil.copy(file, tmp_path)
    command = ["promtool", "test", "rules", "alerts.test.yml"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
