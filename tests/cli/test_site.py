"""What the doctor finds in the settings of a site."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from distlock.cli.site import SettingsSite
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
    assert said_of_connections(location, 100) == said
    assert said_of_connections(location, 64) is None


def test_with_redlock_it_is_told_how_many_there_are() -> None:
    said = "9 threads share 4 connections to each server."
    assert said_of_connections("redlock://h1,h2,h3", 9) == said


def said_of_connections(location: str, threads: int) -> str | None:
    site = SettingsSite(Clients(lambda: read(location)), "flask distlock", lambda _: nullcontext())
    return {one.about: one.said for one in site.examine(None, threads)}.get("connections")
