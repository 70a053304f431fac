"""A backend's presence in one directory: its contender, its entries in lines, what it listens to."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from distlock.backends.base import LockRequest, Sink
from distlock.backends.file import hints, record_locks
from distlock.backends.file.announcement import Announcement
from distlock.backends.file.debris import Sweeper
from distlock.backends.file.directory import Directory
from distlock.backends.file.entry import Entry, Newcomer, Spot, proof_of, spot_of_entry, wants_of
from distlock.backends.file.holds import Holds
from distlock.backends.file.latch_files import LatchFiles
from distlock.backends.file.line import Line
from distlock.backends.file.looking import Looking
from distlock.backends.file.suspects import Suspects
from distlock.backends.file.tree import Tree
from distlock.backends.file.turn import front
from distlock.backends.file.wanted import Wanted
from distlock.errors import BackendUnavailable


class Presence:
    """A contender from its first use to its close. It makes the directory if it is missing.

    Every call is counted from `begin` to `end`. A closed one keeps its descriptor until the last call has
    ended: under a call in the middle its number could become that of a stranger's file, to be locked and
    written.
    """

    def __init__(self, directory: Directory, sink: Sink | None) -> None:
        # Before anything is made there, and once more where the directory has come to be.
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
        self.line = Line(directory, self._tree, self.locks)
        self.latches = LatchFiles(self._tree, self.locks)
        self.ours = Holds(self.line, self.contender)
        self._directory = directory
        self._sink = sink
        self._listener: hints.Listener | None = None
        self._mutex = threading.Lock()
        self._calls = 0
        #: Why it was closed; None while it is open.
        self._closed: str | None = None
        #: The directory that our locks are in is gone; another may be in its place.
        self._deserted = False
        self._suspects = Suspects()
        self.looking = Looking(self._tree, self.locks, self.line)
        self.announcement = Announcement(self._tree, self.contender)
        self.wanted = Wanted(self._tree, self.contender, self.ours.entries)
        self._sweeper = Sweeper(self._tree, self.locks, self.line)
        self.line.met_dead = self._sweeper.begin
        self._sweeper.begin()

    def begin(self) -> bool:
        """Start a call, which `end` has to follow. False if it was closed."""
        with self._mutex:
            if self._closed is None:
                self._calls += 1
            return self._closed is None

    def end(self) -> None:
        """End a call. The last one after the close gives everything back."""
        with self._mutex:
            self._calls -= 1
            last = self._closed is not None and not self._calls
        if last:
            self._die()

    def insist(self, token: str | None = None) -> None:
        """Raise if a close overtook the call, once what the call got for *token* was given back."""
        if self._closed is None:
            return
        mine = self.ours.entries.get(token) if token is not None else None
        if token is not None and mine is not None:
            self._give_back(token, mine)
        raise BackendUnavailable(self._closed)

    def current(self) -> bool:
        """Whether the directory is still the one that our locks are in."""
        return self.locks.current() and self._tree.intact()

    def join(self, request: LockRequest, spot: Spot, patience: float) -> tuple[Entry | None, list[Entry]]:
        self._sweeper.go_on()
        self.drop(request.token)
        newcomer = Newcomer(
            self.contender, proof_of(request.token), request.span, request.wait, wants_of(request)
        )
        mine, line = self.line.join(spot, newcomer, patience)
        if mine is not None:
            self.ours.entries[request.token] = mine
        return mine, line

    def take(self, request: LockRequest, spot: Spot, mine: Entry, patience: float) -> Entry | None:
        """Take the lock. None if it is not our turn after all, or somebody has sent us away."""
        taken = self.line.take(spot, mine, patience)
        if taken is not None:
            self.ours.entries[request.token] = taken
        return taken

    def send_away(
        self, request: LockRequest, spot: Spot, before: Sequence[Entry], window: float, patience: float
    ) -> float:
        """Send away who among those *before* us could take the lock and has not for *window* seconds.

        Returns when to look again, seconds: 0 if somebody was sent away, ``inf`` if there is nothing against
        anybody.
        """
        idle = (entry for entry in front(before) if not entry.held)
        overdue, pause = self._suspects.overdue(request.token, idle, window)
        if not overdue:
            return pause
        self.line.send_away(spot, overdue, patience)
        self.wake_front(spot)
        return 0.0

    def await_turn(self, key: str, mine: Entry, before: Sequence[Entry]) -> bool:
        """Listen for the release and the death of everybody *before* us. False if some death goes unheard."""
        listener = self._listening()
        if listener is None:
            return False
        listener.expect(mine.sign, key)
        # All of them, not only the next: one that dies after we looked would break the chain of hints.
        return False not in [listener.watch(entry.contender, self.locks.pid) for entry in before]

    def listen(self, key: str) -> None:
        """From now on a hint with the proof of *key* is one for it."""
        listener = self._listening()
        if listener is not None:
            listener.expect(proof_of(key), key)

    def listen_no_more(self, key: str) -> None:
        if self._listener is not None:
            self._listener.forget(proof_of(key))

    def hold(self, request: LockRequest, spot: Spot, mine: Entry, patience: float) -> int:
        """It is our turn. Returns the first number of the hold."""
        number = self.ours.hold(request, spot, mine, patience)
        self._suspects.forget(request.token)
        self._unlisten(mine)
        return number

    def withdraw(self, token: str, mine: Entry) -> bool:
        """Take our entry out of the line."""
        left = self.line.leave(mine)
        self.drop(token)
        self._unlisten(mine)
        return left

    def drop(self, token: str) -> None:
        self.ours.drop(token)
        self._suspects.forget(token)

    def wake_front(self, spot: Spot) -> None:
        """Hint those whose turn it is now, past the dead."""
        for entry in front(self.line.living(self.line.entries(spot))):
            if not entry.held:
                hints.send(self._tree, entry.contender, entry.sign)

    def wake_next(self, spot: Spot, mine: Entry) -> None:
        """The same, but it was the turn of *mine*: nearly always nobody is behind it."""
        if not self.line.left_alone(spot, mine):
            self.wake_front(spot)

    def close(self) -> None:
        """Give everything back, and die as a contender once no call is under way. Again: nothing happens."""
        self._close("The client was closed while this call was under way. It holds nothing.", deserted=False)

    def desert(self) -> None:
        """Leave a directory that was deleted."""
        directory = self._directory.path
        self._close(
            f"The lock directory {directory} was deleted or replaced while this call was under way.",
            deserted=True,
        )

    def abandon(self) -> None:
        """In a forked child: what is our parent's stays our parent's."""
        self._mutex = threading.Lock()
        if self._listener is not None:
            self._listener.abandon()
        self._tree.close()

    def _close(self, reason: str, *, deserted: bool) -> None:
        with self._mutex:
            if self._closed is not None:
                return
            self._closed, self._deserted = reason, deserted
            # Ours counts as well, so that no other one takes the descriptor from under it.
            self._calls += 1
        try:
            if self._listener is not None:
                self._listener.close()
            self._give_back_all()
        finally:
            self.end()

    def _die(self) -> None:
        """What a call got after the close, and could not give back, is given back here."""
        try:
            self._give_back_all()
            self.announcement.end()
            self.wanted.end()
            self.line.close()
            self.locks.leave(self.contender)
        finally:
            record_locks.detach(self.locks)
            self._tree.close()

    def _give_back_all(self) -> None:
        for token, mine in list(self.ours.entries.items()):
            self._give_back(token, mine)

    def _give_back(self, token: str, mine: Entry) -> None:
        with suppress(OSError):
            self.withdraw(token, mine)
            # Our record locks do not tell which contenders live in a directory made anew: touch none there.
            if not self._deserted:
                self.wake_front(spot_of_entry(mine))

    def _listening(self) -> hints.Listener | None:
        """The listener, which is begun where it is missing; None: nobody listens."""
        with self._mutex:
            if self._listener is not None and not self._listener.reachable():
                self._listener.close()
                self._listener = None
            if self._listener is None and self._sink is not None and self._closed is None:
                self._listener = hints.Listener(self._tree, self.contender, self._sink)
            return self._listener

    def _unlisten(self, mine: Entry) -> None:
        if self._listener is not None:
            self._listener.forget(mine.sign)
