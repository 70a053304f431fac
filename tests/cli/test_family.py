"""``distlock show``, ``ask`` and ``break`` for a semaphore."""

from __future__ import annotations

import distlock
from tests.cli.conftest import Run, until


def test_a_permit_is_shown_asked_for_and_broken(run: Run, client: distlock.Locks) -> None:
    assert run("show", "gateway", "--kind", "semaphore").output == "gateway is free.\n"
    assert run("show", "gateway", "--kind", "latch").output == "There is no latch gateway.\n"
    grant = client.semaphore("gateway", limit=10, permits=3).acquire()
    assert grant is not None
    shown = run("show", "gateway", "--kind", "semaphore").output.splitlines()
    assert shown[0] == "3 of 10 permits are out of gateway:"
    assert shown[2].startswith("The lease of the first ends in ")
    assert shown[3].startswith("To break it: distlock break --kind semaphore --fence 1:")
    assert run("show", "gateway").output == "gateway is free.\n", "it is no lock of that name"
    asked = run("ask", "gateway", "--kind", "semaphore").output.splitlines()
    assert asked[-1] == "To see whether it did: distlock show --kind semaphore gateway"
    until(lambda: grant.release_requested)
    assert run(*shown[3].removeprefix("To break it: distlock ").split(), "--yes").exit_code == 0
    until(lambda: grant.lost)
