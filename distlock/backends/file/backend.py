"""The protocol of `distlock.backends.base`, kept with a directory of one host."""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress

from distlock import clock
from distlock.backends.base import Ask, Busy, Capabilities, Held, Queued, Sink
from distlock.backends.file.client import Client
from distlock.backends.file.line import HIGHEST_FLOOR, Entry, Spot
from distlock.backends.file.place import Place
from distlock.backends.weak_sink import WeakSink
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.numbers import check_seconds
from distlock.reentrance import call

#: Releases and deaths are heard of at once; this is the net under a lost hint, and under stopped processes.
POLL = 1.0

#: Where the death of a contender before us cannot be heard of: its process is in another PID namespace.
POLL_BLIND = 0.25


class FileBackend:
    """Locks in the directory that *url* names: ``file:///var/lib/shop/locks``.

    *busy_timeout* is how many seconds a call waits for a process that was stopped while it wrote.
    *ack_window* is how many seconds a process has to take a lock that came to it.
    """

    capabilities = Capabilities(
        several_processes=True, several_hosts=False, lease=False, survives_restart=False, fair=True
    )

    def __init__(self, url: str, *, busy_timeout: float = 2.0, ack_window: float = 0.5) -> None:
        self._patience = check_seconds("busy_timeout", busy_timeout, most=60)
        self._ack_window = check_seconds("ack_window", ack_window, most=60)
        self._place = Place(url)
        self._sink: Sink | None = None
        self._client: Client | None = None
        self._finalizer: weakref.finalize[[Client], FileBackend] | None = None
        self._lock = threading.Lock()
        _backends.add(self)

    def open(self, sink: Sink) -> None:
        # Held here: nobody else may hold it.
        self._sink = sink

    def request(self, ask: Ask, deadline: float = math.inf) -> Held | Queued | Busy:
        with self._call() as client:
            answer = self._request(client, ask, deadline)
            client.insist(ask.token)
            return answer

    def cancel(self, ask: Ask, deadline: float = math.inf) -> bool:
        with self._call_for_ours() as client:
            if client is None:
                return False
            spot = client.line.spot(ask.key)
            line = client.line.entries(spot)
            mine = client.find(ask, line)
            if mine is None:
                client.drop(ask.token)
                return False
            ours = mine.held
            if not ours and not client.living_before(mine, line):
                ours = client.take(ask, spot, mine, self._left(deadline)) is not None
            if ours:
                client.insist(ask.token)
                return True
            client.withdraw(ask.token, mine)
            # Those before us may have left meanwhile, and have hinted us.
            client.wake_first(spot)
            return False

    def renew(self, asks: Sequence[Ask]) -> list[bool]:
        with self._call_for_ours() as client:
            if client is None:
                return [False] * len(asks)
            held = [client.holds(ask, self._patience) for ask in asks]
            client.insist()
            return held

    def release(self, ask: Ask, deadline: float = math.inf) -> bool:
        with self._call_for_ours() as client:
            if client is None:
                return False
            spot = client.line.spot(ask.key)
            mine = client.entries.get(ask.token)
            if mine is None or ask.token not in client.held:
                line = client.line.entries(spot)
                mine = client.find(ask, line)
                if mine is None or not mine.held:
                    return False
            released = client.withdraw(ask.token, mine)
            try:
                client.wake_next(spot, mine)
            except OSError:
                pass  # The lock is free, whatever goes wrong with the hint.
            return released

    def raise_floor(self, ask: Ask, number: int) -> Held | None:
        with self._call() as client:
            if ask.token not in client.held or not client.holds(ask, self._patience):
                return None
            if number > HIGHEST_FLOOR:
                raise ConfigurationError(
                    f"A database has seen the fence {number}, and files count to 2**61: another lock "
                    "service gave it out. Raise ERA (era= of connect), on all servers: numbers begin anew."
                )
            lifted = client.raise_floor(ask, client.line.spot(ask.key), number, self._patience)
            client.insist(ask.token)
            return Held(lifted)

    def locked(self, key: str) -> bool:
        with self._call() as client:
            return client.locked(key, self._patience)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            self._kept(None)
            client.close()

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        client, self._client = self._client, None
        self._kept(None)
        if client is not None:
            client.abandon()

    def _kept(self, client: Client | None) -> None:
        """Have *client*, and no other, closed when this backend is dropped without a word."""
        if self._finalizer is not None:
            self._finalizer.detach()
        self._finalizer = None
        if client is not None:
            self._finalizer = weakref.finalize(self, _close_aside, client)
            # There the end of the process is enough.
            self._finalizer.atexit = False

    def _call(self) -> _Call:
        return _Call(self, self._place)

    def _call_for_ours(self) -> _CallForOurs:
        return _CallForOurs(self._call())

    def _connected(self) -> Client:
        """The client of this process and of the directory that is there now, with a call begun."""
        client = self._client
        if client is not None and client.begin():
            if client.current():
                return client
            client.end()
        with self._lock:
            client = self._client
            if client is not None and not client.current():
                # Our entries went with the directory, and others may have begun anew.
                self._client = None
                client.desert()
                client = None
            if client is None:
                client = Client(self._place, WeakSink(self._sink) if self._sink is not None else None)
                self._client = client
                self._kept(client)
            # It is open: `close` takes it from here first, under the same lock.
            client.begin()
            return client

    def _request(self, client: Client, ask: Ask, deadline: float) -> Held | Queued | Busy:
        spot = client.line.spot(ask.key)
        listening = False
        while True:
            line = client.line.entries(spot) if ask.token in client.entries else []
            mine = client.find(ask, line)
            if mine is None:
                # New, or sent away while we stood still.
                mine, line = client.join(ask, spot, self._left(deadline))
            if mine is None:
                return Busy()
            before = [] if mine.held else client.living_before(mine, line)
            if not before:
                taken = mine if mine.held else client.take(ask, spot, mine, self._left(deadline))
                if taken is None:
                    continue
                return Held(client.hold(ask, spot, taken, self._left(deadline)))
            if not ask.wait:
                return self._leave(client, ask, spot, mine)
            pause = client.send_away(ask, spot, before[0], self._ack_window, self._left(deadline))
            if not pause:
                continue
            try:
                watched = client.await_turn(ask.key, mine, before)
            except BackendUnavailable:
                self._leave(client, ask, spot, mine)
                raise
            if listening:
                return Queued(min(pause, POLL if watched else POLL_BLIND))
            # Only those that left after we began to listen have told us, so look once more.
            listening = True

    def _left(self, deadline: float) -> float:
        """How long to wait for a process that writes, seconds."""
        return min(self._patience, max(0.0, deadline - clock.now()))

    def _leave(self, client: Client, ask: Ask, spot: Spot, mine: Entry) -> Busy:
        client.withdraw(ask.token, mine)
        client.wake_first(spot)
        return Busy()


class _Call:
    """The client for one call: it keeps its descriptor until the call has ended, even if it is closed."""

    __slots__ = ("_backend", "_client", "_place")

    def __init__(self, backend: FileBackend, place: Place) -> None:
        self._backend = backend
        self._place = place

    def __enter__(self) -> Client:
        try:
            self._client = client = self._backend._connected()
        except OSError as error:
            raise self._place.explain(error) from error
        try:
            client.locks.heal()
        except BaseException:
            client.end()
            raise
        return client

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._client.end()
        except OSError as at_end:
            error = error or at_end
        if isinstance(error, OSError):
            raise self._place.explain(error) from error


class _CallForOurs:
    """A call that needs what we have there. None: that has gone with a directory that can't be used any more.

    What we have stays for as long as this process lives, so no error may be the last word: rights that were
    taken away may be given back.
    """

    __slots__ = ("_begun", "_call")

    def __init__(self, call: _Call) -> None:
        self._call = call

    def __enter__(self) -> Client | None:
        self._begun = False
        try:
            client = self._call.__enter__()
        except ConfigurationError:
            return None
        self._begun = True
        return client

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            if self._begun:
                self._call.__exit__(kind, error, traceback)
        except ConfigurationError as told:
            error = told
        if isinstance(error, ConfigurationError):
            raise BackendUnavailable(str(error)) from error


def _close_aside(client: Client) -> None:
    """In a thread of its own: the garbage collector comes anywhere, also where our locks are held."""
    with suppress(RuntimeError):
        threading.Thread(target=call, args=(client.close,), name="distlock-file-close", daemon=True).start()


#: A child that uses its parent's backend without a word must not pass for its parent.
_backends: weakref.WeakSet[FileBackend] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for backend in list(_backends):
        backend.after_fork()


os.register_at_fork(after_in_child=_forget_after_fork)
