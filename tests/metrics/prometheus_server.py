"""A real Prometheus for the tests: private, on a free port of the loopback, gone when the test is."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadtest.servers.processes import free_port
from tests.redis_server import eventually

CONFIGURATION = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: shop
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class PrometheusServer:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **about: str) -> Any:
        """The data of an answer of its API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(about)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, query: str) -> list[float]:
        """Those of *query*, without those that are no number."""
        found = [float(one["value"][1]) for one in self.ask("query", query=query)["result"]]
        return [value for value in found if not math.isnan(value)]

    def fired(self, alias: str) -> set[str]:
        """The names of the alerts that fire for *alias*, or did."""
        query = f'last_over_time(ALERTS{{alias="{alias}", alertstate="firing"}}[1h])'
        return {one["metric"]["alertname"] for one in self.ask("query", query=query)["result"]}


@contextmanager
def scraping(port: int, rules: Path, folder: Path) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes *port* of this host, and has *rules*."""
    if shutil.which("prometheus") is None:
        pytest.fail("prometheus is not installed: apt-get install prometheus")
    own = free_port()
    configuration = folder / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(rules=rules, port=port))
    command = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{own}"], stderr=log)
    server = PrometheusServer(own)

    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError((folder / "prometheus.log").read_text())
        try:
            return server.values("up") == [1.0]
        except OSError:
            return False

    try:
        eventually(answers, "Prometheus scrapes", pause=0.05)
        yield server
    finally:
        process.kill()
        process.wait()
