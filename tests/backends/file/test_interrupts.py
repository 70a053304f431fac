"""A signal handler raises at any moment of a call: no name is dead afterwards, here or in another process."""

from __future__ import annotations

import gc
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import distlock
from tests.backends.file.peer import Peer
from tests.core.interrupts import Interrupted, Tracer, interrupted

#: Seconds. A caller that is granted nothing for that long waits in vain.
PATIENCE = 60.0
#: A lock that nobody knows of ends after this, seconds.
MAX_HOLD = 1.0
_PLACES = ("/distlock/", "/contextlib.py", "/threading.py")


class Calls:
    """Raises `Interrupted` at the moment *number*: after a call of C, or at the start of a function."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.where: str | None = None

    def look(self, frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event not in ("c_return", "call") or not any(place in file for place in _PLACES):
            return
        self.count += 1
        if self.count == self.number:
            sys.setprofile(None)
            self.where = f"{file}:{frame.f_lineno} {event} {getattr(argument, '__name__', '')}"
            raise Interrupted


def _interrupted_in_a_call(scene: Callable[[], None], number: int) -> str | None:
    calls = Calls(number)
    sys.setprofile(calls.look)
    try:
        scene()
    except Interrupted:
        pass
    finally:
        sys.setprofile(None)
    return calls.where


@pytest.mark.fault("F08")
# An interrupt may come where an object is being made: the collector finds it half done.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("interrupt", "every"), [(interrupted, 3), (_interrupted_in_a_call, 1)], ids=["instruction", "call"]
)
def test_whoever_is_interrupted_leaves_no_dead_name(
    url: str,
    peer: Callable[..., Peer],
    interrupt: Callable[[Callable[[], None], int], str | None],
    every: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    locks = distlock.connect(url, prefix="shop", timeout=PATIENCE, max_hold=MAX_HOLD)
    other = distlock.connect(url, prefix="shop", timeout=PATIENCE)
    far = peer()

    def scene() -> None:
        with locks.lock("a"):
            pass

    scene()
    points = 0
    for number in itertools.count(1, every):
        where = interrupt(scene, number)
        if where is None:
            break
        points += 1
        assert far.do("acquire_within", "a", 10.0)["fence"] is not None, where
        far.do("let_go")
        for one in (other, locks):
            grant = one.lock("a").acquire()
            assert grant is not None, where
            grant.release()
        locks.namespace.entered_by_owner.clear()
    assert points > 30, f"{points} points: is anything traced?"
    gc.collect()
    locks.close()
    other.close()


def test_whoever_was_interrupted_when_it_began_to_listen_can_wait_later(
    url: str, peer: Callable[..., Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = distlock.connect(url, prefix="shop", timeout=PATIENCE)
    far = peer()
    assert far.do("acquire_within", "a", PATIENCE)["fence"] is not None
    make = os.mkfifo

    def interrupted_make(*arguments: Any, **keywords: Any) -> None:
        make(*arguments, **keywords)
        monkeypatch.undo()
        raise Interrupted

    monkeypatch.setattr(os, "mkfifo", interrupted_make)
    with pytest.raises(Interrupted):
        locks.lock("a").acquire()
    assert locks.lock("a").acquire(timeout=0.2) is None
    far.do("let_go")
    assert locks.lock("a").acquire() is not None
    locks.close()


def test_whoever_is_interrupted_anywhere_in_a_call_leaves_no_descriptor_open(url: str) -> None:
    for number in itertools.count(1):
        locks = distlock.connect(url, prefix="shop", timeout=PATIENCE)
        with locks.lock("a"):
            pass
        assert _open_below(url)
        tracer = Tracer(number, files=("backends/file/",))
        with suppress(Interrupted), tracer, locks.lock("a"):
            pass
        locks.close()
        if not tracer.where:
            break
        assert _open_below(url) == [], tracer.where
    assert number > 100, f"{number} points: is anything traced?"


def test_a_client_that_is_closed_while_its_call_is_interrupted_leaves_no_descriptor_open(url: str) -> None:
    for number in itertools.count(1):
        locks = distlock.connect(url, prefix="shop", timeout=PATIENCE)
        with locks.lock("a"):
            pass
        assert _open_below(url)
        tracer = Tracer(number, partial(_close_and_interrupt, locks), files=("backends/file/backend.py",))
        with suppress(Interrupted, distlock.LockError), tracer, locks.lock("a"):
            pass
        # The next close of any client of this process closes the descriptors of the interrupted call, too.
        locks.close()
        if not tracer.where:
            break
        assert _open_below(url) == [], tracer.where
    assert number > 20, f"{number} points: is anything traced?"


def _close_and_interrupt(locks: distlock.Locks) -> None:
    closing = threading.Thread(target=locks.close)
    closing.start()
    closing.join(PATIENCE)
    assert not closing.is_alive()
    raise Interrupted


def _open_below(url: str) -> list[str]:
    """Return what this process has open in the directory of *url*."""
    directory, found = unquote(urlsplit(url).path), []
    for descriptor in os.listdir("/proc/self/fd"):
        # One of them was that of the list itself.
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [path for path in found if path.startswith(directory)]
