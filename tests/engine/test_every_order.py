"""Two processes with two callers each, in every order of their steps, with one misfortune anywhere."""

from __future__ import annotations

import functools
import logging
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from distlock.engine.wait_queue import WaitQueue
from tests.engine.every_order import READS, WRITES, WRITES_AND_READS, Search

SCENES = {
    "readers and writers": [[READS, WRITES], [READS, WRITES]],
    "a downgrade": [[WRITES_AND_READS, READS], [READS, WRITES]],
}


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """It would be for each of many thousand plays."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(autouse=True)
def protocols_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 lists what a protocol asks for anew each time, and each play makes engines."""
    members = typing._get_protocol_attrs  # type: ignore[attr-defined]
    monkeypatch.setattr(typing, "_get_protocol_attrs", functools.cache(members))


@pytest.mark.parametrize("wanted", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("misfortunes", [0, 1])
def test_whatever_the_order_writers_are_alone_and_everybody_is_served(
    wanted: list[list[str]], misfortunes: int
) -> None:
    """A misfortune: a reply is lost, a caller cancelled, a process killed, or a turn passes."""
    search = Search(wanted, misfortunes).run()
    print(f"{search.states} states, {search.ends} of them ends: {wanted}, {misfortunes} misfortunes")
    assert search.wrong == []
    assert search.states > (3000 if misfortunes else 300)


def let_readers_in_beside_a_writer(patch: pytest.MonkeyPatch) -> None:
    def let_readers_in(self: WaitQueue, hold: Any, now: float) -> None:
        honest(self, hold, now)
        for waiter in list(self.waiters):
            self._admit_reader(hold, waiter, now)
            self.leave(waiter)
            waiter.parker.wake()

    honest = WaitQueue._let_readers_in
    patch.setattr(WaitQueue, "_let_readers_in", let_readers_in)


def the_next_in_line_is_not_woken(patch: pytest.MonkeyPatch) -> None:
    def elect(self: WaitQueue) -> None:
        if not self.busy and self.waiters:
            self.waiters[0].leads = True
        else:
            honest(self)

    honest = WaitQueue.elect
    patch.setattr(WaitQueue, "elect", elect)


def a_cancelled_reader_keeps_its_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WaitQueue, "drop", lambda self, grant: grant.end())


@pytest.mark.parametrize(
    "bug", [let_readers_in_beside_a_writer, the_next_in_line_is_not_woken, a_cancelled_reader_keeps_its_hold]
)
def test_the_search_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch, bug: Any) -> None:
    bug(monkeypatch)
    assert Search(SCENES["readers and writers"], 1).run().wrong
