"""What the doctor finds in the settings of a site."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from distlock.cli.site import Settings
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import Clients


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("redis://h", "100 threads share 64 connections to the lock service."),
        ("rediss+sentinel://h/m", "100 threads share 64 connections to the lock service."),
        ("redis+cluster://h", "100 threads share 64 connections to each node of the cluster."),
        ("memory://", None),
    ],
)
def test_more_threads_than_connections_are_told(location: str, said: str | None) -> None:
    site = Settings(Clients(lambda: read(location)), "flask distlock", lambda _: nullcontext())
    assert {one.about: one.said for one in site.examine(None, 100)}.get("connections") == said
    assert "connections" not in {one.about for one in site.examine(None, 64)}
