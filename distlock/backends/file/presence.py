"""A backend's presence in one directory: its contender, its entries in lines, what it listens to."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from distlock.backends.base import Ask, Sink
from distlock.backends.file import hints, record_locks
from distlock.backends.file.announcement import Announcement
from distlock.backends.file.debris import Sweeper
from distlock.backends.file.directory import Directory
from distlock.backends.file.line import Entry, Line, Newcomer, Spot, proof_of
from distlock.backends.file.looking import Looking
from distlock.backends.file.tree import Tree
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
        #: Our entries by token, and those of them that we know to be first.
        self.entries: dict[str, Entry] = {}
        self.held: dict[str, Entry] = {}
        #: The first number of each hold.
        self._numbers: dict[str, int] = {}
        self._directory = directory
        self._sink = sink
        self._listener: hints.Listener | None = None
        self._mutex = threading.Lock()
        self._calls = 0
        #: Why it was closed; None while it is open.
        self._closed: str | None = None
        #: The directory that our locks are in is gone; another may be in its place.
        self._deserted = False
        #: By token: which ticket was before us and had not taken the lock, and since when.
        self._suspects: dict[str, tuple[int, float]] = {}
        self.looking = Looking(self._tree, self.locks, self.line)
        self.announcement = Announcement(self._tree, self.contender)
        self._sweeper = Sweeper(self._tree, self.locks, self.line)
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
        mine = self.entries.get(token) if token is not None else None
        if token is not None and mine is not None:
            self._give_back(token, mine)
        raise BackendUnavailable(self._closed)

    def current(self) -> bool:
        """Whether the directory is still the one that our locks are in."""
        return self.locks.current() and self._tree.intact()

    def join(self, ask: Ask, spot: Spot, patience: float) -> tuple[Entry | None, list[Entry]]:
        self._sweeper.go_on()
        self.drop(ask.token)
        newcomer = Newcomer(self.contender, proof_of(ask.token), ask.span, ask.wait)
        mine, line = self.line.join(spot, newcomer, patience)
        if mine is not None:
            self.entries[ask.token] = mine
            if mine.held:
                self._living(line)
        return mine, line

    def find(self, ask: Ask, line: list[Entry]) -> Entry | None:
        """Our entry for *ask* in *line*. A forked child knows its parent's tokens, and may not use them."""
        proof = proof_of(ask.token)
        ours = (entry for entry in line if entry.contender == self.contender and entry.proof == proof)
        return next(ours, None)

    def holds(self, ask: Ask, patience: float) -> bool:
        """Whether the hold is *ask.token*'s, even if another thread asks."""
        mine = self.held.get(ask.token)
        if mine is not None:
            if not self.line.there(mine):
                self.drop(ask.token)
            return ask.token in self.held
        line = self._first_living(self.line.exact_entries(self.line.spot(ask.key), patience))
        return [(entry.proof, entry.held) for entry in line] == [(proof_of(ask.token), True)]

    def is_broken(self) -> bool:
        """Whether somebody has taken one of our holds out of its line."""
        return not all(map(self.line.there, list(self.held.values())))

    def locked(self, key: str, patience: float) -> bool:
        spot = self.line.spot(key)
        # Only a look that finds nobody has to be the only writer's: it may have been taken just then.
        return self._anybody(self.line.entries(spot)) or self._anybody(
            self.line.exact_entries(spot, patience)
        )

    def take(self, ask: Ask, spot: Spot, mine: Entry, patience: float) -> Entry | None:
        """Take the lock. None if somebody is before us after all, or has sent us away."""
        taken = self.line.take(spot, mine, patience)
        if taken is not None:
            self.entries[ask.token] = taken
        return taken

    def send_away(self, ask: Ask, spot: Spot, head: Entry, window: float, patience: float) -> float:
        """Send *head* away if it has not taken the lock for *window* seconds since it could.

        Returns when to look again, seconds: 0 if it was sent away, ``inf`` if there is nothing against it.
        """
        if head.held:
            self._suspects.pop(ask.token, None)
            return math.inf
        now = time.monotonic()
        suspect, since = self._suspects.get(ask.token, (0, now))
        if suspect != head.ticket:
            self._suspects[ask.token] = (head.ticket, now)
            return window
        if now < since + window:
            return since + window - now
        self.line.send_away(spot, head, patience)
        self.wake_first(spot)
        return 0.0

    def living_before(self, mine: Entry, line: list[Entry]) -> list[Entry]:
        """Those that have to go before it is our turn. The dead are taken out of the line."""
        return self._living([entry for entry in line if entry.ticket < mine.ticket])

    def await_turn(self, key: str, mine: Entry, before: Sequence[Entry]) -> bool:
        """Listen for the release and the death of everybody *before* us. False if some death goes unheard."""
        with self._mutex:
            if self._listener is not None and not self._listener.reachable():
                self._listener.close()
                self._listener = None
            if self._listener is None:
                if self._sink is None or self._closed is not None:
                    return False
                self._listener = hints.Listener(self._tree, self.contender, self._sink)
            listener = self._listener
        listener.expect(mine.proof, key)
        # All of them, not only the next: one that dies after we looked would break the chain of hints.
        return False not in [listener.watch(entry.contender, self.locks.pid) for entry in before]

    def hold(self, ask: Ask, spot: Spot, mine: Entry, patience: float) -> int:
        """It is our turn. Returns the hold's first number: its ticket, where that is not below the floor."""
        if ask.token not in self._numbers:
            if mine.ticket <= (floor := self.line.floor(spot)):
                mine = self.line.lift(spot, mine, ask.span, floor, patience)
            self._numbers[ask.token] = mine.ticket if mine.ticket > floor else mine.number
        self.entries[ask.token] = self.held[ask.token] = mine
        self._suspects.pop(ask.token, None)
        self._unlisten(mine)
        return self._numbers[ask.token]

    def raise_floor(self, ask: Ask, spot: Spot, number: int, patience: float) -> int:
        """Lift the hold of *ask*, and all later ones, above *number*. Returns its first number."""
        if self._numbers[ask.token] <= number:
            mine = self.line.lift(spot, self.held[ask.token], ask.span, number, patience)
            self.entries[ask.token] = self.held[ask.token] = mine
            self._numbers[ask.token] = mine.number
        return self._numbers[ask.token]

    def withdraw(self, token: str, mine: Entry) -> bool:
        """Take our entry out of the line."""
        left = self.line.leave(mine)
        self.drop(token)
        self._unlisten(mine)
        return left

    def drop(self, token: str) -> None:
        self.entries.pop(token, None)
        self.held.pop(token, None)
        self._numbers.pop(token, None)
        self._suspects.pop(token, None)

    def wake_first(self, spot: Spot) -> None:
        """Hint the contender that is first in line now, past the dead."""
        for entry in self._first_living(self.line.entries(spot)):
            hints.send(self._tree, entry.contender, entry.proof)

    def wake_next(self, spot: Spot, mine: Entry) -> None:
        """The same, but *mine* was first: nearly always nobody is behind it."""
        if not self.line.left_alone(spot, mine):
            self.wake_first(spot)

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
            self.line.close()
            self.locks.leave(self.contender)
        finally:
            record_locks.detach(self.locks)
            self._tree.close()

    def _give_back_all(self) -> None:
        for token, mine in list(self.entries.items()):
            self._give_back(token, mine)

    def _give_back(self, token: str, mine: Entry) -> None:
        with suppress(OSError):
            self.withdraw(token, mine)
            # Our record locks do not tell which contenders live in a directory made anew: touch none there.
            if not self._deserted:
                self.wake_first(self.line.spot_of(mine))

    def _anybody(self, line: list[Entry]) -> bool:
        return any(self.locks.alive(entry.contender) for entry in line)

    def _living(self, line: list[Entry]) -> list[Entry]:
        living = []
        for entry in line:
            if self.locks.alive(entry.contender):
                living.append(entry)
            else:
                self._bury(entry)
        return living

    def _first_living(self, line: list[Entry]) -> list[Entry]:
        for entry in line:
            if self.locks.alive(entry.contender):
                return [entry]
            self._bury(entry)
        return []

    def _bury(self, entry: Entry) -> None:
        self.line.leave(entry)
        self._sweeper.begin()

    def _unlisten(self, mine: Entry) -> None:
        if self._listener is not None:
            self._listener.forget(mine.proof)
