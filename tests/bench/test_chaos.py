"""What comes to grief in the rows of chaos, and what is found afterwards."""

from __future__ import annotations

import os
import re
import signal
from contextlib import closing

import pytest

import distlock
from bench.crew import BenchError
from bench.network import Relay
from bench.rows import chaos
from bench.services import Services


def test_what_is_left_behind_is_found() -> None:
    with Services() as services:
        url = services.url("redis")
        with closing(distlock.connect(url, prefix="bench")) as locks:
            with locks.lock("hot"):
                (told,) = chaos.stranded(url, patience=0.0)
                assert "it is not free" in told
            assert chaos.stranded(url) == []


def test_a_process_that_slept_through_its_lease_knows_it_and_one_that_did_not_is_told_from_it() -> None:
    with Services() as services:
        url = services.url("redis")
        chaos.sleep_through_lease(url, chaos.SHORT_TTL + 1.0, 0.0)
        with pytest.raises(BenchError, match="does not know"):
            chaos.sleep_through_lease(url, 0.0, 0.0)


def test_one_that_is_killed_with_the_lock_leaves_it_to_the_end_of_its_lease() -> None:
    with Services() as services:
        url = services.url("redis")
        with chaos.victim_with_lock(url, 0.0) as victim:
            os.kill(victim.pids[0], signal.SIGKILL)
            assert chaos.stranded(url, patience=0.0)
        assert chaos.stranded(url) == []


def test_a_trouble_that_does_not_happen_is_an_error() -> None:
    with (
        Services() as services,
        Relay(services.url("redis")) as relay,
        pytest.raises(BenchError, match="nothing was tried"),
    ):
        chaos.cut_connections(relay, re.compile(b"nobody says this"), True, 0.0)
