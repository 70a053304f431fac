"""A re-entrant lock, like `threading.RLock`: only its owner may take it again, and release it."""

from __future__ import annotations

import math
from dataclasses import replace
from types import FrameType
from typing import Any

from distlock.engine.sans_io import Commands, Parker, ThreadParker, run
from distlock.errors import NotHeld
from distlock.grants.grant import Grant
from distlock.locks.lock import Lock
from distlock.locks.namespace import Client, Entered, EntriesByName, together
from distlock.locks.self_deadlock import Entry
from distlock.owner import Owner, current_owner
from distlock.terms import Terms


class RLock(Lock):
    """A lock of `Locks.rlock`. The owner is the running thread, or the running task in it.

    A task made by `asyncio.gather` is another owner than its parent. Re-entrance is by name: entering the
    lock acquires only the names that the owner does not hold yet. To enter a held name again costs no round
    trip, and its grant stays the same.
    """

    def __init__(self, client: Client, names: tuple[str, ...], timeout: float | None, terms: Terms) -> None:
        super().__init__(client, names, timeout, terms)
        self._entered_by_owner = client.namespace.entered_by_owner

    def owned(self) -> bool:
        """Return whether the caller has entered all of the names, and none is released or lost."""
        mine = self._entered_by_owner.get(current_owner(), {})
        return all(name in mine and mine[name].is_held for name in self.names)

    # -- entering --------------------------------------------------------------------------------

    def _entry(self, parker: Parker) -> Entry:
        before = self._entered_by_owner.get(parker.owner, {})
        return Entry(self._namespace, self.names, parker, names_before=before)

    def _wanted(self, entry: Entry) -> tuple[str, ...]:
        mine: EntriesByName = entry.names_before
        return tuple(name for name in self.names if name not in mine or not mine[name].is_written)

    def _enter(self, entry: Entry, seconds: float) -> Commands[Grant | None]:
        wanted = self._wanted(entry)
        after: dict[str, Entered] = {}
        if wanted:
            grant = yield from self.client.acquirer.acquire(wanted, entry.parker, seconds, self.terms)
            if grant is None:
                return None
            for name, part in grant.parts.items():
                part.timeout = self.timeout
                earlier = entry.names_before.get(name)
                after[name] = Entered(part, grant, before=earlier and earlier.unreleased())
        for name in self.names:
            if name not in wanted:
                one = entry.names_before[name]
                after[name] = replace(one, count=one.count + 1)
        entry.grant = together([after[name] for name in self.names])
        entry.grant.timeout = self.timeout
        self._set_entries(entry.owner, {**self._entered_by_owner.get(entry.owner, {}), **after})
        return entry.grant

    def _note_grant(self, entry: Entry, grant: Grant | None) -> Grant | None:
        """Return *grant*. `_enter` has noted it already."""
        return grant

    def _abandon(self, entry: Entry, error: BaseException) -> None:
        self._set_entries(entry.owner, entry.names_before)
        super()._abandon(entry, error)

    def _set_entries(self, owner: Owner, names: EntriesByName) -> None:
        if names:
            self._entered_by_owner[owner] = names
        else:
            self._entered_by_owner.pop(owner, None)

    # -- leaving ---------------------------------------------------------------------------------

    def _last(self) -> Entry:
        """Return an entry of the caller, for `_give_back`. Raise `NotHeld` unless the caller is the owner."""
        parker = ThreadParker()
        mine = self._entered_by_owner.get(parker.owner, {})
        if any(name not in mine for name in self.names):
            raise NotHeld(
                f"The lock {self._shown()} can't be released by a thread or task that does not hold it."
            )
        return Entry(self._namespace, self.names, parker, names_before=mine)

    def _give_back(self, entry: Entry) -> Commands[None]:
        after, over = self._once_less(entry.owner)
        entry.grant = over
        if over is not None:
            yield from over._release()
        self._set_entries(entry.owner, after)

    def _once_less(self, owner: Owner) -> tuple[EntriesByName, Grant | None]:
        """Return the entries of *owner* after it leaves once, and the grant to release; None: no grant."""
        after = dict(self._entered_by_owner.get(owner, {}))
        over = []
        for name in self.names:
            entered = after.get(name)
            if entered is None:
                continue  # The client was closed inside the block, or the body has released the name.
            if entered.count > 1:
                after[name] = replace(entered, count=entered.count - 1)
                continue
            over.append(entered)
            if entered.before is not None:
                after[name] = entered.before
            else:
                del after[name]
        return after, together(over) if over else None

    def _find_block(self, frame: FrameType) -> Entry | None:
        if (block := super()._find_block(frame)) is not None:
            block.names_before = self._entered_by_owner.get(block.owner, {})
        return block

    def _gives_back(self, block: Entry) -> bool:
        return self._once_less(block.owner)[1] is not None

    def _release(self, block: Entry) -> Commands[None]:
        if any(name in block.names_before for name in self.names):
            yield from self._give_back(Entry(self._namespace, self.names, block.parker))

    def _abandon_grant(self, entry: Entry, error: BaseException) -> None:
        if self._entered_by_owner.get(entry.owner) is entry.names_before:
            after, over = self._once_less(entry.owner)
            if over is not None:
                over._abandon(error)
            self._set_entries(entry.owner, after)

    def _raise_after(self, block: Entry | None, exc_info: tuple[Any, ...]) -> None:
        # The lock is released all the same, because no other code would do that.
        if block is not None and block.owner != current_owner():
            names = self._shown()
            raise NotHeld(
                f"The 'with' block of rlock({names}) was left in another thread or task than the one that "
                f"entered it, which is its owner: write lock({names}), which has no owner, or leave the "
                "block where it was entered."
            )
        super()._raise_after(block, exc_info)

    # -- what threading.Condition asks of a lock -------------------------------------------------

    def _is_owned(self) -> bool:
        mine = self._entered_by_owner.get(current_owner(), {})
        return all(name in mine for name in self.names)

    def _release_save(self) -> EntriesByName:
        """Release the lock, however often the caller has entered it. Return what `_acquire_restore` needs."""
        entry = self._last()
        saved = {name: entry.names_before[name] for name in self.names}
        grant = together([*saved.values()])
        try:
            run(grant._release())
        except BaseException as error:
            grant._abandon(error)
            raise
        finally:
            self._set_entries(
                entry.owner, {name: one for name, one in entry.names_before.items() if name not in saved}
            )
        return saved

    def _acquire_restore(self, saved: EntriesByName) -> None:
        """Acquire the lock again, with the recursion counts of *saved*. The wait has no limit."""
        entry = self._entry(ThreadParker())
        try:
            run(self._enter(entry, math.inf))
            mine = self._entered_by_owner[entry.owner]
            again = {
                name: replace(mine[name], count=one.count, before=one.before) for name, one in saved.items()
            }
            self._set_entries(entry.owner, {**mine, **again})
        except BaseException as error:
            self._abandon(entry, error)
            raise
        # The owner's ``with`` blocks have a new grant now.
        for block in self._entered_blocks:
            if block.owner == entry.owner:
                block.grant = entry.grant
