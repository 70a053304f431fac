"""What this process has in the lines of one session: entering, looking what is before us, leaving.

The node that is first has the lock. A contender with no node before its own when it was made need not say so.
The others acknowledge that they are first by writing to their node. Until then those behind may send it away
(`distlock.backends.zookeeper.stalled`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.serialization import Delete, Exists, GetChildren, SetData

from distlock import clock
from distlock.backends.base import Ask, Busy, Held, Queued
from distlock.backends.zookeeper.deadline import Deadline
from distlock.backends.zookeeper.entry import Entry
from distlock.backends.zookeeper.failures import Broken, unavailable
from distlock.backends.zookeeper.foreign import foreign, look_at
from distlock.backends.zookeeper.nodes import contender_prefix, in_line, lock_path
from distlock.backends.zookeeper.parents import Parents
from distlock.backends.zookeeper.place import POLL, Place
from distlock.backends.zookeeper.session import Session
from distlock.backends.zookeeper.stalled import send_away
from distlock.backends.zookeeper.strays import Strays
from distlock.backends.zookeeper.watcher import Watcher


class Line:
    """Threads share it. *hint* is called when it is worth asking for a key again."""

    def __init__(self, session: Session, base: str, ack_window: float, hint: Callable[[str], None]) -> None:
        self.session = session
        self.strays = Strays(session, base)
        self.parents = Parents()
        #: By token.
        self.places: dict[str, Place] = {}
        self._waiting: dict[str, Place] = {}
        self._guard = threading.Lock()
        self._base = base
        self._ack_window = ack_window
        self._hint = hint
        self._entry = Entry(session, base, self.strays, self.parents)

    # -- what the engine asks for ----------------------------------------------------------------

    def request(self, ask: Ask, deadline: Deadline) -> Held | Queued | Busy:
        while True:
            try:
                answer = self._request(ask, deadline)
            except Broken:
                # On the next connection it can be found out what became of it.
                deadline = deadline.extended()
                if clock.now() >= deadline:
                    raise
                continue
            if answer is not None:
                return answer

    def cancel(self, ask: Ask, deadline: Deadline) -> bool:
        place = self.current(ask.token)
        if place is None:
            for path in self.strays.find(ask.token, ask.key, deadline):
                self._delete(path, ask, deadline)
            self.strays.claim(ask.token)
            return False
        if place.held:
            return True
        names = self._names(place.parent, deadline)
        if names[:1] == [place.name] and self._take(place, deadline):
            place.held = True
            return True
        self._leave(place, deadline)
        return False

    def renew(self, asks: Sequence[Ask], deadline: Deadline) -> list[bool]:
        began = clock.now()
        answers, looks = [False] * len(asks), []
        for number, ask in enumerate(asks):
            if (place := self.current(ask.token)) is not None:
                looks.append((number, place))
            elif ask.token not in self.places:
                answers[number] = self._is_first(ask, deadline)
        if not looks:
            return answers
        requests = [self.session.client.barrier(self._base)]
        requests += [Exists(place.path, None) for _, place in looks]
        for (number, place), stat in zip(looks, self.session.ask(requests, deadline)[1:], strict=True):
            if isinstance(stat, KazooException):
                raise unavailable(self.session.address, stat)
            if stat is None or stat.czxid != place.czxid:
                self._drop(place)
            else:
                answers[number] = self._keep(place, began)
        return answers

    def release(self, ask: Ask, deadline: Deadline) -> bool:
        place = self.current(ask.token)
        return place is not None and self._leave(place, deadline) and place.held

    def locked(self, key: str, deadline: Deadline) -> bool:
        return bool(self._names(lock_path(self._base, key), deadline))

    # -- for the janitor -------------------------------------------------------------------------

    def current(self, token: str) -> Place | None:
        """The place of *token*, if it is one still."""
        place = self.places.get(token)
        if place is None or place.owner != self.session.id or place.lapsed(clock.now()):
            return None
        return place

    def give_up(self) -> None:
        """Give up the places that are none any more. Their nodes, if our session has any, are strays."""
        for place in list(self.places.values()):
            with self._guard:
                if self.current(place.ask.token) is place:
                    continue
                if place.owner == self.session.id:
                    self.strays.add(place.ask.token, place.ask.key, new=not place.held)
                self._drop(place)

    # -- kazoo's thread --------------------------------------------------------------------------

    def moved(self, key: str, path: str) -> None:
        """A node that we watch is gone."""
        place = self._waiting.get(key)
        if place is not None and place.watched == (self.session.connections, path):
            place.called = True
        self._hint(key)

    # -- how it is done --------------------------------------------------------------------------

    def _request(self, ask: Ask, deadline: Deadline) -> Held | Queued | Busy | None:
        """One attempt; None if the line has moved meanwhile."""
        began = clock.now()
        place = self.current(ask.token)
        if place is None:
            if ask.token in self.places:
                self.give_up()
            place, alone = self._entry.enter(ask, began, deadline)
            self.places[ask.token] = place
        else:
            alone = False
        taken = alone or place.held
        if alone:
            names = [place.name]
        elif place.called:
            # Most likely we are first; certainly, where only one was before us.
            names, taken = self._take(place, deadline, look=not place.second), True
        else:
            names = self._names(place.parent, deadline, fresh=place.held)
        if place.name not in names or not self._keep(place, began):
            self._drop(place)
            return None
        before = names[: names.index(place.name)]
        if before:
            if ask.wait:
                return self._wait(place, before, deadline)
            (head,) = self.session.ask([look_at(place, before[0])], deadline)
            self._recognise(place, before[0], head, deadline)
            self._leave(place, deadline)
            return Busy()
        if not taken and not self._take(place, deadline):
            self._drop(place)
            return None
        self._unqueue(place)
        return place.hold() if self._keep(place, began) else None

    def _wait(self, place: Place, before: list[str], deadline: Deadline) -> Queued | None:
        place.called = False
        place.first = place.first or before[0]
        pause = None
        if before[0] != place.first:
            pause = send_away(self.session, place, before[0], self._ack_window, deadline)
            if pause == 0.0:
                return None
        watch = (self.session.connections, f"{place.parent}/{before[-1]}")
        requests = [look_at(place, before[0])]
        if place.watched != watch:
            place.watched, place.second = watch, len(before) == 1
            self._waiting[place.ask.key] = place
            # It has no children and never will. Of all watches this is the one that acknowledging does not
            # wake, and that is not left behind where the node is gone already.
            requests.append(GetChildren(watch[1], Watcher(self, place.ask.key)))
        head, *answers = self.session.exchange(requests, deadline)
        self._recognise(place, before[0], head, deadline)
        for answer in answers:
            if isinstance(answer, NoNodeError):
                place.watched = (0, "")
                return None
            self._checked(answer)
        if pause is None:
            pause = POLL * (0.75 + 0.25 * random.random())  # noqa: S311 - spreads clients, hides nothing
        return Queued(pause)

    def _recognise(self, place: Place, head: str, stat: Any, deadline: Deadline) -> None:
        """Leave the line, and say so, if *head* is nobody's: it would be waited for in vain."""
        if (found := foreign(self.session.address, place, head, stat)) is not None:
            self._leave(place, deadline)
            raise found

    def _names(self, parent: str, deadline: Deadline, fresh: bool = False) -> list[str]:
        """The nodes in line, the first one first."""
        requests = [GetChildren(parent, None)]
        if fresh:
            requests.insert(0, self.session.client.barrier(self._base))
        listed = self.session.ask(requests, deadline)[-1]
        return [] if isinstance(listed, NoNodeError) else in_line(self._checked(listed))

    def _take(self, place: Place, deadline: Deadline, look: bool = False) -> list[str]:
        """Acknowledge, and read the line if we are to *look*. Nobody, if we were sent away.

        If we turn out not to be first we have acknowledged too early. That costs nothing.
        """
        requests = [SetData(place.path, b"held", -1)]
        if look:
            requests.insert(0, GetChildren(place.parent, None))
        *seen, answer = self.session.ask(requests, deadline)
        if isinstance(answer, NoNodeError):
            return []
        self._checked(answer)
        return in_line(self._checked(seen[0])) if look else [place.name]

    def _leave(self, place: Place, deadline: Deadline) -> bool:
        self._drop(place)
        return self._delete(place.path, place.ask, deadline, place.owner)

    def _delete(self, path: str, ask: Ask, deadline: Deadline, owner: int | None = None) -> bool:
        """Delete a node of *ask*. False if it was gone already."""
        tried = False
        try:
            while True:
                try:
                    (answer,) = self.session.exchange([Delete(path, -1)], deadline)
                    break
                except Broken:
                    deadline = deadline.extended()
                    if clock.now() >= deadline:
                        raise
                    tried = True
        except BaseException:
            self.strays.add(ask.token, ask.key)
            raise
        self.parents.put(lock_path(self._base, ask.key))
        if self.parents.many:
            self.tidy()
        if isinstance(answer, NoNodeError):
            # If its session lives, it was our first attempt that deleted it.
            return tried and owner == self.session.id
        self._checked(answer)
        return True

    def tidy(self) -> None:
        """Remove the nodes of locks that are not used any more; those that are in use do not let us."""
        for path in self.parents.spare():
            self.session.send(Delete(path, -1))

    def _keep(self, place: Place, began: float) -> bool:
        """Somebody cares for it, as of *began*. False if it was given up meanwhile."""
        with self._guard:
            if self.current(place.ask.token) is not place:
                return False
            place.seen = began
            return True

    def _is_first(self, ask: Ask, deadline: Deadline) -> bool:
        """Whether another client has the lock with this token. Its session is what keeps it alive."""
        parent = lock_path(self._base, ask.key)
        names = self._names(parent, deadline, fresh=True)
        if not names or not names[0].startswith(contender_prefix(ask.token)):
            return False
        (stat,) = self.session.ask([Exists(f"{parent}/{names[0]}", None)], deadline)
        # What our own session has and is no place was given up, and is about to be deleted.
        return self._checked(stat) is not None and stat.ephemeralOwner != self.session.id

    def _drop(self, place: Place) -> None:
        self._unqueue(place)
        self.places.pop(place.ask.token, None)

    def _unqueue(self, place: Place) -> None:
        place.called = False
        # What is given up late may not take its successor along.
        if self._waiting.get(place.ask.key) is place:
            self._waiting.pop(place.ask.key, None)

    def _checked(self, answer: Any) -> Any:
        if isinstance(answer, KazooException):
            raise unavailable(self.session.address, answer)
        return answer
