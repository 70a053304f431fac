"""``distlock list``, ``show``, ``ask`` and ``break`` for readers, semaphores and latches."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack

import distlock
from tests.cli.conftest import PATIENCE, Run, until


def test_readers_a_semaphore_and_a_latch_are_told(run: Run, client: distlock.Locks) -> None:
    client.latch("import_7", 3).make()
    client.latch("import_7").count_down()
    waiting = threading.Thread(target=client.latch("import_7").wait, args=(PATIENCE,))
    with ExitStack() as held:
        waiting.start()
        held.callback(waiting.join, PATIENCE)
        held.callback(client.latch("import_7").count_down, 2)
        for _ in range(2):
            held.enter_context(client.read_lock("catalogue"))
        held.enter_context(client.semaphore("gateway", limit=10, permits=3))
        until(lambda: len(run("list").output.splitlines()) == 4)
        titles, *told = (line.split() for line in run("list").output.splitlines())
        assert titles[:3] == ["KIND", "NAME", "STATE"]
        assert [line[:3] for line in told] == [
            ["lock", "catalogue", "reads"],
            ["semaphore", "gateway", "holds"],
            ["latch", "import_7", "waits,"],
        ]
        assert told[1][3:5] == ["3", "of"]
        assert told[2][3:6] == ["2", "of", "3"]
        objects = [json.loads(line) for line in run("list", "--json").output.splitlines()]
        assert [(one["kind"], one["mode"], one["holding"], one["left"]) for one in objects] == [
            ("lock", "read", 2, None),
            ("semaphore", "permit", 3, None),
            ("latch", "exclusive", 0, 2),
        ]
        assert run("show", "catalogue").output.splitlines()[1] == "2 callers read it."
        latch = run("show", "import_7", "--kind", "latch").output.splitlines()
        assert latch[0].startswith("The latch import_7 has 2 of 3 left. It is gone in ")
        assert latch[1] == "1 process waits:"


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
