"""A backend's presence in one directory: its contender, its entries, its listener, and what it cleans up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from distlock.backends.base import LockRequest, Sink
from distlock.backends.file import notifications, record_locks
from distlock.backends.file.directory import Directory, Distrusted
from distlock.backends.file.entries import QueueEntry, Spot, front, proof_of, spot_of, spot_of_entry
from distlock.backends.file.inspection import PROCESSES, WANTED, Inspector, ReleaseRequests, StatusFile
from distlock.backends.file.latches import LatchFiles
from distlock.backends.file.queues import LINK_SOURCE_SUFFIX, FileQueues, Holds, Unresponsive
from distlock.backends.file.trusted_directories import NEW, WAKE, Tree
from distlock.backends.inspectable import StatusRow
from distlock.backends.latches import LatchState
from distlock.errors import BackendUnavailable


class Presence:
    """A contender from its first use to its close. It makes the directory if it is missing.

    Every call has a lock, which is locked until the call is over, even if it is interrupted. Descriptors are
    closed after the last call only: during a call, another file could get the number of a closed one, and the
    call would lock and write that file.
    """

    def __init__(self, directory: Directory, sink: Sink) -> None:
        # `Directory` has checked this, too. Another file system may have been mounted there since.
        directory.refuse_network()
        self._tree = Tree(directory)
        try:
            self.locks = record_locks.attach(directory, self._tree)
            try:
                self.contender = self.locks.enter()
            except BaseException:
                record_locks.detach(self.locks)
                raise
        except BaseException:
            self._tree.close()
            raise
        self.queues = FileQueues(directory, self._tree, self.locks)
        self.latches = LatchFiles(self._tree, self.locks)
        self.ours = Holds(self.queues, self.contender)
        self._directory = directory
        self._sink = sink
        self._listener: notifications.FileListener | None = None
        self._mutex = threading.Lock()
        #: The locks of the calls from `begin` to `end`. One that is not locked was interrupted.
        self._calls: set[threading.Lock] = set()
        #: Why this presence was closed; None: it is open.
        self._closed: str | None = None
        #: Whether everything was released after `close`.
        self._dead = False
        #: Whether the directory with our locks is gone. Another directory may be in its place.
        self._deserted = False
        self._unresponsive = Unresponsive()
        self.inspector = Inspector(self._tree, self.locks, self.queues)
        self.status = StatusFile(self._tree, self.contender)
        self.release_requests = ReleaseRequests(self._tree, self.contender, self.ours.entries)
        self._sweeper = Sweeper(self._tree, self.locks, self.queues)
        self.queues.met_dead = self._sweeper.begin
        self._sweeper.begin()

    def begin(self, call: threading.Lock) -> bool:
        """Start *call*, which `end` follows. Return False if the presence was closed."""
        with self._mutex:
            if self._closed is None:
                self._calls.add(call)
            return self._closed is None

    def end(self, call: threading.Lock) -> None:
        """End *call*, which is still locked. The last one after `close` releases everything."""
        with self._mutex:
            last = self._closed is not None and not self._dead and not self._is_used_beside(call)
            if not last:
                self._calls.discard(call)
        if last:
            self._die()

    def _is_used_beside(self, call: threading.Lock) -> bool:
        """Return whether a call other than *call* is under way. The caller holds the mutex."""
        return any(one.locked() for one in self._calls if one is not call)

    def refuse_closed(self, token: str | None = None) -> None:
        """Raise `BackendUnavailable` if this presence was closed during the call.

        First release what the call got for *token*.
        """
        if self._closed is None:
            return
        mine = self.ours.entries.get(token) if token is not None else None
        if token is not None and mine is not None:
            self._give_back(token, mine)
        raise BackendUnavailable(self._closed)

    def current(self) -> bool:
        """Return whether the directory is still the one that has our locks, open and trusted."""
        return self.locks.current() and self._tree.intact()

    def join(self, request: LockRequest, patience: float) -> tuple[QueueEntry | None, list[QueueEntry]]:
        """Join the queue: see `FileQueues.join`."""
        self._sweeper.go_on()
        self.drop(request.token)
        mine, line = self.queues.join(request, self.contender, patience)
        if mine is not None:
            self.ours.entries[request.token] = mine
        return mine, line

    def take(self, request: LockRequest, mine: QueueEntry, patience: float) -> QueueEntry | None:
        """Take the lock. Return None if other contenders keep us out, or if our entry was deleted."""
        taken = self.queues.take(spot_of(request.key), mine, patience)
        if taken is not None:
            self.ours.entries[request.token] = taken
        return taken

    def remove_unresponsive(
        self, request: LockRequest, before: Sequence[QueueEntry], window: float, patience: float
    ) -> float:
        """Delete those *before* us that could have taken the lock for *window* seconds, and have not.

        Return in how many seconds to look again: 0 after a deletion, ``inf`` if all have taken the lock.
        """
        idle = (entry for entry in front(before) if not entry.held)
        overdue, pause = self._unresponsive.overdue(request.token, idle, window)
        if not overdue:
            return pause
        self.queues.remove_unresponsive(spot_of(request.key), overdue, patience)
        self.wake_front(spot_of(request.key))
        return 0.0

    def release(self, request: LockRequest) -> bool:
        """Delete the entry of our hold. Return False if *request* has no hold."""
        spot = spot_of(request.key)
        while (mine := self.ours.own(request)) is not None:
            if self.withdraw(request.token, mine):
                # The lock is free, even if the notification fails. Mostly there is nobody to notify.
                with suppress(OSError):
                    if not self.queues.nobody_followed(spot, mine):
                        self.wake_front(spot)
                return True
            # The entry is gone, or another thread has just renamed its file.
        return False

    def downgrade(self, request: LockRequest, patience: float) -> bool:
        """See `distlock.backends.protocols.Reads`."""
        mine = self.ours.own(request)
        if mine is None or not self.ours.downgrade(request, mine, patience):
            return False
        self.refuse_closed(request.token)
        with suppress(OSError):
            self.wake_front(spot_of(request.key))
        return True

    def break_hold(self, key: str, number: int, patience: float) -> bool:
        """See `distlock.backends.inspectable.Breaks`."""
        if not self.inspector.break_hold(key, number, patience):
            return False
        # The hold is broken, even if the notification fails.
        with suppress(OSError):
            self.wake_front(spot_of(key))
        return True

    def publish(
        self, about: tuple[str, int], rows: Sequence[StatusRow], gone: Sequence[str], life: float
    ) -> bool:
        """Publish our status: see `StatusFile.say`.

        Look for broken holds and requested releases, too, because holds without leases are not renewed.
        """
        if self.ours.is_broken() or self.release_requests.has_news():
            self._sink.missed_notifications()
        return self.status.say(about, rows, gone, life)

    def watch_latch(self, key: str, patience: float) -> LatchState | None:
        """Return the state of the latch *key*. If the latch is closed, notify the sink when it opens."""
        listener = self._listening()
        # Listen first: once we are in the latch's file, a notification may come.
        if listener is not None:
            listener.expect(proof_of(key), key)
        state = self.latches.watch(key, self.contender, patience)
        if listener is not None and (state is None or not state.left):
            listener.forget(proof_of(key))
        return state

    def await_turn(self, key: str, mine: QueueEntry, before: Sequence[QueueEntry]) -> bool:
        """Watch for the release and death of all *before* us. Return False if a death can't be watched."""
        listener = self._listening()
        if listener is None:
            return False
        listener.expect(mine.sign, key)
        # Watch each of them, because a contender that dies notifies nobody.
        return False not in [listener.watch(entry.contender, self.locks.pid) for entry in before]

    def hold(self, request: LockRequest, mine: QueueEntry, patience: float) -> int:
        """Note that our entry has the lock, and no longer waits. Return the first fence of the hold."""
        number = self.ours.hold(request, mine, patience)
        self._unresponsive.forget(request.token)
        self._unlisten(mine)
        return number

    def leave(self, request: LockRequest, mine: QueueEntry) -> None:
        """Delete our entry, which waits, and notify the contenders that may take the lock now.

        The contenders before us may have left meanwhile, and notified only us.
        """
        self.withdraw(request.token, mine)
        self.wake_front(spot_of(request.key))

    def withdraw(self, token: str, mine: QueueEntry) -> bool:
        """Delete our entry. Return False if it was gone already."""
        left = self.queues.leave(mine)
        self.drop(token)
        self._unlisten(mine)
        return left

    def drop(self, token: str) -> None:
        self.ours.drop(token)
        self._unresponsive.forget(token)

    def wake_front(self, spot: Spot) -> None:
        """Notify the contenders that may take the lock now."""
        for entry in front(self.queues.living(self.queues.entries(spot))):
            if not entry.held:
                notifications.send(self._tree, entry.contender, entry.sign)

    def close(self) -> bool:
        """Delete our entries. Close everything else once no call is under way. May be called twice.

        Return False if a call is under way. If that is interrupted, the next `close` closes everything.
        """
        reason = "The client was closed while this call was under way. It holds nothing."
        return self._close(reason, deserted=False)

    def desert(self) -> bool:
        """As `close`, in a directory that was deleted or replaced."""
        directory = self._directory.path
        return self._close(
            f"The lock directory {directory} was deleted or replaced while this call was under way.",
            deserted=True,
        )

    def abandon(self) -> None:
        """Forget the parent's entries and listener, in a forked child."""
        self._mutex = threading.Lock()
        if self._listener is not None:
            self._listener.abandon()
        self._tree.close()

    def _close(self, reason: str, *, deserted: bool) -> bool:
        # This is a call, too, so that the end of another call does not close the descriptors.
        call = threading.Lock()
        with call:
            with self._mutex:
                is_first = self._closed is None
                if is_first:
                    self._closed, self._deserted = reason, deserted
                self._calls.add(call)
            try:
                if is_first:
                    if self._listener is not None:
                        self._listener.close()
                    self._give_back_all()
            finally:
                self.end(call)
        return self._dead

    def _die(self) -> None:
        """Delete the entries that calls made after `close`, end the contender, and close all descriptors."""
        self._dead = True
        try:
            self._give_back_all()
            self.status.end()
            self.release_requests.end()
            self.queues.close()
            self.locks.leave(self.contender)
        finally:
            record_locks.detach(self.locks)
            self._tree.close()

    def _give_back_all(self) -> None:
        for token, mine in list(self.ours.entries.items()):
            self._give_back(token, mine)

    def _give_back(self, token: str, mine: QueueEntry) -> None:
        with suppress(OSError):
            self.withdraw(token, mine)
            # In a directory that was made again, our record locks can't tell which contenders are alive.
            if not self._deserted:
                self.wake_front(spot_of_entry(mine))

    def _listening(self) -> notifications.FileListener | None:
        """Return the listener, started if needed; None after a close."""
        with self._mutex:
            if self._listener is not None and not self._listener.reachable():
                self._listener.close()
                self._listener = None
            if self._listener is None and self._closed is None:
                self._listener = notifications.FileListener(self._tree, self.contender, self._sink)
            return self._listener

    def _unlisten(self, mine: QueueEntry) -> None:
        if self._listener is not None:
            self._listener.forget(mine.sign)


#: Seconds that one call may spend on deleting leftovers.
_BUDGET = 0.002


class Sweeper:
    """Deletes the files of crashed contenders, such as entries and FIFOs: a few with each `Presence.join`."""

    def __init__(self, tree: Tree, locks: record_locks.RecordLocks, queues: FileQueues) -> None:
        self._tree = tree
        self._locks = locks
        self._queues = queues
        self._steps: Iterator[None] | None = None
        self._turn = threading.Lock()

    def begin(self) -> None:
        """Start a round, unless a round is under way. Calls of `go_on` carry it out."""
        if self._steps is None:
            self._steps = self._round()

    def go_on(self) -> None:
        """Continue the round for a moment."""
        if self._steps is None or not self._turn.acquire(blocking=False):
            return
        try:
            end = time.monotonic() + _BUDGET
            for _ in self._steps:
                if time.monotonic() > end:
                    return
            self._steps = None
        except (OSError, Distrusted):
            self._steps = None  # A later round repeats this one, because the caller's lock can't wait.
        finally:
            self._turn.release()

    def _round(self) -> Iterator[None]:
        known: dict[int, bool] = {}
        for folder, suffix in (
            (WAKE, ""),
            (".", LINK_SOURCE_SUFFIX),
            (PROCESSES, ""),
            (PROCESSES, NEW),
            (WANTED, ""),
        ):
            for name in self._tree.listed(folder):
                with suppress(ValueError):
                    whose = name.removesuffix(suffix).partition("~")[0]
                    if name.endswith(suffix) and self._dead(record_locks.contender_of(whose), known):
                        # distlock makes no directory of such a name.
                        with suppress(FileNotFoundError, IsADirectoryError):
                            os.unlink(f"{folder}/{name}", dir_fd=self._tree.root)
                yield
        for line in self._queues.lines_of_shards():
            for entry in line:
                if self._dead(entry.contender, known):
                    with suppress(IsADirectoryError):
                        self._queues.leave(entry)
                yield
            yield

    def _dead(self, contender: int, known: dict[int, bool]) -> bool:
        """Return whether *contender* is dead. *known* keeps the answer for its other files in the round."""
        if contender not in known:
            known[contender] = not self._locks.alive(contender)
        return known[contender]
