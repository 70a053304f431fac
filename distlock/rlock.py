"""A re-entrant lock, as `threading.RLock`: its owner may take it again, and no other may release it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from distlock.blocks import Entry
from distlock.engine.steps import Steps, ThreadGate, run
from distlock.errors import NotHeld
from distlock.grant import Grant
from distlock.lock import Lock
from distlock.multi_grant import MultiGrant
from distlock.owner import Owner, current_owner

if TYPE_CHECKING:
    from distlock.locks import Locks


@dataclass(frozen=True, slots=True)
class Entered:
    """How often its owner is inside one name."""

    grant: Grant
    #: What was asked for together with it.
    whole: Grant
    count: int = 1
    #: The same for a lock that was lost since, in a block further out.
    before: Entered | None = None

    @property
    def is_held(self) -> bool:
        return not self.grant.released and not self.grant.lost

    def unreleased(self) -> Entered | None:
        """This one, or the next one further out whose end is still to come."""
        one: Entered | None = self
        while one is not None and one.grant.released:
            one = one.before
        return one


def _together(entered: list[Entered]) -> Grant:
    """One grant of all of them: that which was asked for, where it has no other name."""
    whole = entered[0].whole
    if len(whole.names) == len(entered) and all(one.whole is whole for one in entered):
        return whole
    return entered[0].grant if len(entered) == 1 else MultiGrant([one.grant for one in entered])


#: What one owner is inside of, by name. It is replaced, never changed: an interrupt comes before or after.
Names = Mapping[str, Entered]

#: It belongs to the client: two objects of the same names are the same lock.
Inside = dict[Owner, Names]


class RLock(Lock):
    """What `Locks.rlock` returns. The owner is the running thread, or the running task in it.

    A task made by `asyncio.gather` is another owner than its parent. Re-entrance is by name: of several
    names only those are asked for that their owner is not inside yet. Taking the others again costs no round
    trip, and gives the same grant.
    """

    def __init__(self, locks: Locks, names: tuple[str, ...], timeout: float | None, ttl: float) -> None:
        super().__init__(locks, names, timeout, ttl)
        self._inside = locks._engine.inside

    def owned(self) -> bool:
        """Whether the caller is inside, and the lock is not lost."""
        mine = self._inside.get(current_owner(), {})
        return all(name in mine and mine[name].is_held for name in self.names)

    # -- entering --------------------------------------------------------------------------------

    def _entry(self, gate: Any) -> Entry:
        owner = current_owner()
        return Entry(self, owner, gate, before=self._inside.get(owner, {}))

    def _wanted(self, entry: Entry) -> tuple[str, ...]:
        mine: Names = entry.before
        return tuple(name for name in self.names if name not in mine or not mine[name].is_held)

    def _enter(self, entry: Entry, seconds: float) -> Steps[Grant | None]:
        wanted = self._wanted(entry)
        after: dict[str, Entered] = {}
        if wanted:
            grant = yield from self._ask(wanted, entry.gate, seconds)
            if grant is None:
                return None
            for name, part in grant.parts.items():
                part.timeout = self._default_timeout()
                earlier = entry.before.get(name)
                after[name] = Entered(part, grant, before=earlier and earlier.unreleased())
        for name in self.names:
            if name not in wanted:
                one = entry.before[name]
                after[name] = replace(one, count=one.count + 1)
        entry.grant = _together([after[name] for name in self.names])
        entry.grant.timeout = self._default_timeout()
        self._note(entry.owner, {**self._inside.get(entry.owner, {}), **after})
        return entry.grant

    def _forsake(self, entry: Entry, error: BaseException) -> None:
        self._note(entry.owner, entry.before)
        super()._forsake(entry, error)

    def _note(self, owner: Owner, names: Names) -> None:
        if names:
            self._inside[owner] = names
        else:
            self._inside.pop(owner, None)

    # -- leaving ---------------------------------------------------------------------------------

    def _last(self) -> Entry:
        """The running thread or task, if it is inside: anybody else may not release the lock."""
        owner = current_owner()
        mine = self._inside.get(owner, {})
        if any(name not in mine for name in self.names):
            raise NotHeld(
                f"The lock {self._shown()} was to be released by a thread or task that does not hold it."
            )
        return Entry(self, owner, ThreadGate(), before=mine)

    def _give_back(self, entry: Entry) -> Steps[None]:
        after, over = self._once_less(entry.owner)
        entry.grant = over
        if over is not None:
            yield from over._release()
        self._note(entry.owner, after)

    def _once_less(self, owner: Owner) -> tuple[Names, Grant | None]:
        """What *owner* is inside of after leaving once, and what that releases."""
        after = dict(self._inside.get(owner, {}))
        over = []
        for name in self.names:
            entered = after.get(name)
            if entered is None:
                continue  # The client was closed inside, or the body has released it.
            if entered.count > 1:
                after[name] = replace(entered, count=entered.count - 1)
                continue
            over.append(entered)
            if entered.before is not None:
                after[name] = entered.before
            else:
                del after[name]
        return after, _together(over) if over else None

    def _ending(self, frame: FrameType) -> Entry | None:
        if (block := super()._ending(frame)) is not None:
            block.before = self._inside.get(block.owner, {})
        return block

    def _leave(self, block: Entry) -> Steps[None]:
        if any(name in block.before for name in self.names):
            yield from self._give_back(Entry(self, block.owner, block.gate))
        self._forget(block)
        # Left it is all the same: nobody else would ever do it.
        if block.owner != current_owner():
            names = self._shown()
            raise NotHeld(
                f"The 'with' block of rlock({names}) was left in another thread or task than it was entered "
                f"in, where its owner is: write lock({names}), which has none, or leave it where it was "
                "entered."
            )

    def _hand_back(self, entry: Entry, error: BaseException) -> None:
        if self._inside.get(entry.owner) is entry.before:
            after, over = self._once_less(entry.owner)
            if over is not None:
                over._let_go(error)
            self._note(entry.owner, after)

    # -- what threading.Condition asks of a lock -------------------------------------------------

    def _is_owned(self) -> bool:
        mine = self._inside.get(current_owner(), {})
        return all(name in mine for name in self.names)

    def _release_save(self) -> Names:
        """Leave as often as the caller has entered. Returns what `_acquire_restore` needs."""
        entry = self._last()
        saved = {name: entry.before[name] for name in self.names}
        grant = _together([*saved.values()])
        try:
            run(grant._release())
        except BaseException as error:
            grant._let_go(error)
            raise
        finally:
            self._note(entry.owner, {name: one for name, one in entry.before.items() if name not in saved})
        return saved

    def _acquire_restore(self, saved: Names) -> None:
        """Take it again, as often as it was entered before; without a limit, as `threading.RLock` does."""
        entry = self._entry(ThreadGate())
        try:
            run(self._enter(entry, math.inf))
            mine = self._inside[entry.owner]
            again = {
                name: replace(mine[name], count=one.count, before=one.before) for name, one in saved.items()
            }
            self._note(entry.owner, {**mine, **again})
        except BaseException as error:
            self._forsake(entry, error)
            raise
        # The blocks around have another grant than they began with.
        for block in self._entered:
            if block.owner == entry.owner:
                block.grant = entry.grant
