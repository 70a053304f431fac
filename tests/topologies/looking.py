"""What operators see of locks that sessions of a database hold, and what they are refused."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

import distlock
from distlock.operate import Party, break_lock
from distlock.testing.waits import PATIENCE, engine_of
from tests.flask_guard import page_of_lock
from tests.redis_server import eventually

Connect = Callable[..., distlock.Locks]


def said(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``distlock`` as a person does."""
    environment = {**os.environ, "DISTLOCK_URL": url, "DISTLOCK_PREFIX": "t"}
    command = [sys.executable, "-m", "distlock", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


class LookingTests:
    """Subclassed for each of them, with the fixtures ``server``, ``connect`` and ``pool``."""

    #: What the server's own user and a user with the rights of the page are shown of a session's process.
    seen: Callable[[Party], bool]
    seen_with_few_rights: Callable[[Party], bool]

    def waiting(self, url: str, key: str) -> int:
        """How many sessions wait for the lock of *key*."""
        raise NotImplementedError

    def say(self, url: str, statement: str) -> None:
        """To the server, as its own user."""
        raise NotImplementedError

    def few_rights(self, url: str) -> str:
        """The URL for a new user with the rights of the page."""
        raise NotImplementedError

    @pytest.fixture
    def name(self) -> str:
        return f"looked_{secrets.token_hex(4)}"

    @contextmanager
    def taken(
        self, name: str, server: str, connect: Connect, pool: ThreadPoolExecutor
    ) -> Iterator[Callable[[], None]]:
        """*name* is held, and whenever this is called another one waits for it."""
        begun: list[Future[None]] = []

        def wait(locks: distlock.Locks) -> None:
            with locks.lock(name):
                pass

        def one_more() -> None:
            begun.append(pool.submit(wait, connect(server)))
            eventually(lambda: self.waiting(server, f"t:{name}") == len(begun), "another one waits")

        with connect(server).lock(name):
            yield one_more
        for one in begun:
            one.result(PATIENCE)

    def test_holder_and_line_are_shown_to_any_client(
        self, server: str, connect: Connect, pool: ThreadPoolExecutor, name: str
    ) -> None:
        onlooker = connect(server)
        assert onlooker.inspect(name).holder is None
        lines = []
        with self.taken(name, server, connect, pool) as one_more:
            for _ in range(3):
                one_more()
                state = onlooker.inspect(name)
                lines.append([one.process for one in state.queue])
        assert state.holder is not None
        assert type(self).seen(state.holder)
        assert (state.waiting, [one.waiting for one in state.queue]) == (3, [1, 1, 1])
        assert all(type(self).seen(one) and one.since for one in state.queue)
        # The next one first: who comes later stands behind.
        assert lines == [lines[2][:1], lines[2][:2], lines[2]]
        # What the server does not know is not made up.
        assert (state.fence, state.remaining, state.hold) == (None, None, "")

    def test_what_is_held_or_waited_for_is_listed(
        self, server: str, connect: Connect, pool: ThreadPoolExecutor, name: str
    ) -> None:
        onlooker = connect(server)
        others = [f"{name}%{one}" for one in ("_1", "_'\\ä", "x1", "_")]
        with ExitStack() as held:
            for one in (*others, name.upper()):
                held.enter_context(connect(server).lock(one))
            held.enter_context(self.taken(f"{name}%_2", server, connect, pool))()
            some = [(one.name, one.held) for one in onlooker.list(f"{name}%_")]
            everything = {one.name for one in onlooker.list(name)}
        shown = [*((one, True) for one in others if "%_" in one), (f"{name}%_2", True), (f"{name}%_2", False)]
        assert sorted(some) == sorted(shown)
        assert everything == {*others, f"{name}%_2"}
        assert list(onlooker.list(name)) == []

    def test_the_process_itself_knows_more(self, server: str, connect: Connect, name: str) -> None:
        locks = connect(server)
        with locks.lock(name):
            holder = locks.inspect(name).holder
        assert holder is not None
        assert (holder.where.partition(" ")[0], holder.since > 0) == (
            "LookingTests.test_the_process_itself_knows_more",
            True,
        )

    def test_the_rights_of_the_page_are_enough(self, server: str, connect: Connect, name: str) -> None:
        onlooker = connect(self.few_rights(server))
        with connect(server).lock(name):
            holder = onlooker.inspect(name).holder
            [listed] = onlooker.list(name)
        assert holder is not None
        assert type(self).seen_with_few_rights(holder)
        assert listed.party.process == holder.process

    def test_a_break_is_refused_before_it_is_asked(self, server: str, connect: Connect, name: str) -> None:
        onlooker = connect(server)
        with connect(server).lock(name) as grant:
            state = onlooker.inspect(name)
            with pytest.raises(distlock.ConfigurationError, match=r"^A break can't be had from the backend"):
                break_lock(onlooker.namespace, state, "operator")
            answers = [said(server, "break", name), said(server, "break", "--fence", "1:42", name)]
            grant.check()
        for broken in answers:
            assert (broken.returncode, "Break it?" in broken.stdout) == (2, False)
            assert "it can't end one lock of another process and nothing else" in broken.stderr

    def test_the_statement_that_is_shown_ends_the_holder(
        self, server: str, connect: Connect, name: str
    ) -> None:
        onlooker = connect(server)
        told = threading.Event()
        grant = connect(server, on_lost=lambda *lost: told.set()).lock(name).acquire()
        assert grant is not None
        self.say(server, onlooker.inspect(name).ended_by)
        assert told.wait(PATIENCE)
        assert grant.lost
        # MariaDB closes the connection first.
        eventually(lambda: onlooker.inspect(name).holder is None, "the lock is free")
        assert not onlooker.inspect(name).ended_by

    def test_the_commands_show_it(self, server: str, connect: Connect, name: str) -> None:
        with connect(server).lock(name):
            shown = said(server, "show", name)
            as_json = json.loads(said(server, "show", name, "--json").stdout)
            listed = said(server, "list", name)
            asked = said(server, "ask", name)
        first, second, last = shown.stdout.splitlines()
        assert first.startswith(f"{name} is held by process ")
        assert second == "The lock service tells neither its fence nor its lease."
        assert last == f"To end its session on the server, and all that this holds: {as_json['ended_by']}"
        assert (as_json["held"], as_json["fence"], as_json["remaining"]) == (True, None, None)
        # Of a lock that is held callers are not counted, and there is no view.
        assert listed.stdout.splitlines()[1].split()[:2] == [name, "held"]
        assert [one["holding"] for one in as_json["holders"]] == [0]
        assert (asked.returncode, "does not tell a holder" in asked.stderr) == (2, True)
        assert said(server, "show", name).stdout == f"{name} is free.\n"

    def test_a_page_shows_it_and_offers_no_break(self, server: str, connect: Connect, name: str) -> None:
        with connect(server).lock(name):
            page = page_of_lock({"LOCATION": server, "PREFIX": "t"}, name)
        facts = dict(re.findall(r"<dt>([^<]+)</dt><dd>(?:<\w+>)*([^<]+)<", page))
        assert facts["Ends its session, and all that this holds"], page
        assert "process" in facts["Held by"]
        assert {facts[one] for one in ("Lease left", "Fence of the hold")} == {"not told by the lock service"}
        assert "Break this lock" not in page
        assert "Ask for it back" not in page

    def test_no_process_has_to_say_what_the_server_knows(self, server: str, connect: Connect) -> None:
        engine = engine_of(connect(server))
        assert engine.status.soon(engine.now()) == math.inf
