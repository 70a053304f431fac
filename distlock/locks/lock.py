"""Locks on one name or several: a plain one, used like `threading.Lock`, a read lock and a semaphore."""

from __future__ import annotations

import logging
import math
import sys
from types import FrameType
from typing import Any, Never

from distlock.engine.admission import is_time_out
from distlock.engine.sans_io import Commands, Parker, TaskParker, ThreadParker, arun, call_in_thread, run
from distlock.errors import LostInside, NotHeld
from distlock.grants.grant import Grant
from distlock.locks import self_deadlock
from distlock.locks.namespace import AtEnd, Client
from distlock.locks.self_deadlock import Entry
from distlock.numbers import check_timeout
from distlock.owner import current_owner, in_event_loop
from distlock.terms import Terms

logger = logging.getLogger("distlock")


class Lock:
    """A lock of `Locks.lock`. It is cheap: make one where you need it. Threads and tasks may share it."""

    #: Whether the end of the ``with`` block raises an error for a lost lock. If the lock is a row of a
    #: database, the COMMIT does.
    tells_loss = True

    def __init__(self, client: Client, names: tuple[str, ...], timeout: float | None, terms: Terms) -> None:
        self.client = client
        self.names = names
        #: The longest wait, seconds; -1: no limit.
        self.timeout = client.timeout if timeout is None else timeout
        self.terms = terms
        self._longest = math.inf if self.timeout == -1 else self.timeout
        self._namespace = client.namespace
        #: The entries that have a grant. A thread may be interrupted anywhere, so each change of this list or
        #: of `_entered_blocks` is one step, or is made under the mutex `Namespace.entries_mutex`.
        self._granted_entries: list[Entry] = []
        #: The ``with`` blocks that are running, the oldest first.
        self._entered_blocks: list[Entry] = []

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._shown()}>"

    def __call__(self, *_: object, **__: object) -> Never:
        raise TypeError(
            f"A lock is no decorator: write 'with locks.lock({self._shown()}):' inside of the function, or "
            f"@distributed_lock({self._shown()}) above it, from django_distlock or flask_distlock."
        )

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> Grant | None:
        """Wait for the lock. Return the `Grant`, or None if the lock stays taken, or most likely would.

        *blocking*: False asks once, and does not wait. *timeout*: the longest wait, seconds; 0: ask once;
        -1: no limit; None: the lock's. Raises `BackendUnavailable`; `TooManyWaiters` at a fixed limit of
        waiters; `Reentered` in a signal handler that has interrupted distlock; `ConfigurationError` if the
        caller has a read lock of one of the names; ValueError and OverflowError as `threading.Lock` does.
        Example::

            if grant := locks.lock("product_1").acquire(timeout=0):
                grant.release()
        """
        seconds = self._seconds(blocking, timeout)
        entry = self._entry(ThreadParker())
        try:
            grant = self._note_grant(entry, run(self._enter(entry, seconds)))
            if grant is None and seconds > 0:
                self._warn_of_own_fault(seconds)
            return grant
        except BaseException as error:
            self._abandon(entry, error)
            if is_time_out(error):
                return None
            raise

    async def aacquire(self, blocking: bool = True, timeout: float | None = None) -> Grant | None:
        """`acquire`, for asyncio."""
        seconds = self._seconds(blocking, timeout)
        entry = self._entry(TaskParker())
        try:
            grant = self._note_grant(entry, await arun(self._enter(entry, seconds)))
            if grant is None and seconds > 0:
                self._warn_of_own_fault(seconds)
            return grant
        except BaseException as error:
            self._abandon(entry, error)
            if is_time_out(error):
                return None
            raise

    def release(self) -> None:
        """Release what `acquire` of this object granted: the caller's latest grant, else the oldest one.

        Any thread may call it. Raises `NotHeld` if this object holds nothing.
        """
        entry = None
        try:
            entry = self._last()
            run(self._give_back(entry))
        except NotHeld:
            raise
        except BaseException as error:
            self._abandon_grant(entry or self._last(), error)
            raise

    async def arelease(self) -> None:
        """`release`, for asyncio."""
        entry = None
        try:
            entry = self._last()
            await arun(self._give_back(entry))
        except NotHeld:
            raise
        except BaseException as error:
            self._abandon_grant(entry or self._last(), error)
            raise

    def locked(self) -> bool:
        """Return whether anybody, in any process, holds one of the names. Asks the lock service."""
        return any(self._namespace.locked(name) for name in self.names)

    async def alocked(self) -> bool:
        """`locked`, for asyncio."""
        return await call_in_thread(self.locked)

    def owned(self) -> bool:
        """Return whether this object holds the lock and has not lost it. Does not ask the lock service."""
        return any(entry.is_open for entry in self._granted_entries)

    def __enter__(self) -> Grant:
        block = self._entry(ThreadParker())
        try:
            if self_deadlock.is_any_around():
                self._refuse_own(block)
            grant = self._note_grant(block, run(self._enter(block, self._longest)))
            return self._begin_block(block, grant, sys._getframe(1))
        except BaseException as error:
            self._abandon(block, error)
            raise

    def __exit__(self, *exc_info: Any) -> None:
        block = None
        try:
            block = self._find_block(sys._getframe(1))
            if block is not None:
                run(self._leave(block))
                self._forget(block)
        except BaseException as error:
            self._abandon_block(block, error, sys._getframe(1))
            raise
        self._raise_after(block, exc_info)

    async def __aenter__(self) -> Grant:
        block = self._entry(TaskParker())
        try:
            if self_deadlock.is_any_around():
                self._refuse_own(block)
            grant = self._note_grant(block, await arun(self._enter(block, self._longest)))
            return self._begin_block(block, grant, sys._getframe(1))
        except BaseException as error:
            self._abandon(block, error)
            raise

    async def __aexit__(self, *exc_info: Any) -> None:
        block = None
        try:
            block = self._find_block(sys._getframe(1))
            if block is not None:
                await arun(self._leave(block))
                self._forget(block)
        except BaseException as error:
            self._abandon_block(block, error, sys._getframe(1))
            raise
        self._raise_after(block, exc_info)

    def _split(self) -> list[Lock]:
        """Return a lock for each name, with the options of this one, for `multi_lock`.

        Raises `ConfigurationError` if the lock is a row, which is locked by a ``with`` block alone.
        """
        return [type(self)(self.client, (name,), self.timeout, self.terms) for name in self.names]

    # -- entering --------------------------------------------------------------------------------

    def _entry(self, parker: Parker) -> Entry:
        return Entry(self._namespace, self.names, parker)

    def _wanted(self, entry: Entry) -> tuple[str, ...]:
        """Return the names that *entry* has to acquire."""
        return self.names

    def _refuse_own(self, entry: Entry) -> None:
        """Raise `ConfigurationError` if a ``with`` block would wait for the code around it."""
        self_deadlock.refuse_own(
            self._namespace, self._wanted(entry), seconds=self._longest, enters_kept=self._enters_kept()
        )

    def _enters_kept(self) -> bool:
        """Return whether the client is a framework's, which enters again the locks that its request keeps."""
        return self.client.acquirer is not self._namespace

    def _enter(self, entry: Entry, seconds: float) -> Commands[Grant | None]:
        """Acquire the lock for *entry*. Pass the result to `_note_grant`."""
        return self.client.acquirer.acquire(self.names, entry.parker, seconds, self.terms)

    def _note_grant(self, entry: Entry, grant: Grant | None) -> Grant | None:
        """Note that *entry* has *grant*, unless it is None. Return *grant*."""
        if grant is not None:
            grant.timeout = self.timeout
            entry.grant = grant
            with self._namespace.entries_mutex:
                # Forget grants that were released by `Grant.release`.
                self._granted_entries = [*self._unreleased(), entry] if self._granted_entries else [entry]
        return grant

    def _unreleased(self) -> list[Entry]:
        return [
            entry for entry in self._granted_entries if entry.grant is not None and not entry.grant.released
        ]

    def _begin_block(self, block: Entry, grant: Grant | None, frame: FrameType) -> Grant:
        if grant is None:
            stopped_loop = isinstance(block.parker, ThreadParker) and in_event_loop()
            raise self_deadlock.timed_out(self._namespace, self.names, self.timeout, stopped_loop)
        block.frame = frame
        self._entered_blocks.append(block)
        self_deadlock.begin(block)
        return grant

    def _abandon(self, entry: Entry, error: BaseException) -> None:
        """Remove *entry*, whose acquisition failed with *error*, from this object and from the engine."""
        if entry in self._entered_blocks:
            self._entered_blocks.remove(entry)
        entry.namespace.abandon(self.names, entry.parker, error)

    def _warn_of_own_fault(self, seconds: float) -> None:
        """Log a warning if the caller waited in vain because its own code holds the lock."""
        if fault := self_deadlock.own_fault(self._namespace, self.names):
            logger.warning("The lock %s was still held after %g seconds, %s", self._shown(), seconds, fault)

    def _seconds(self, blocking: bool, timeout: float | None) -> float:
        if not blocking:
            if timeout is not None and timeout != -1:
                raise ValueError("can't specify a timeout for a non-blocking call")
            return 0.0
        if timeout is None:
            return self._longest
        return math.inf if timeout == -1 else check_timeout(timeout)

    # -- leaving ---------------------------------------------------------------------------------

    def _last(self) -> Entry:
        """Return the entry that `release` releases. Raise `NotHeld` if there is none."""
        owner = current_owner()
        with self._namespace.entries_mutex:
            granted = self._unreleased()
        if not granted:
            raise self._not_held()
        return next((entry for entry in reversed(granted) if entry.owner == owner), granted[0])

    def _give_back(self, entry: Entry) -> Commands[None]:
        with self._namespace.entries_mutex:
            if entry not in self._granted_entries:
                raise self._not_held()
            self._granted_entries.remove(entry)
        if entry.grant is not None:
            yield from entry.grant._release()

    def _not_held(self) -> NotHeld:
        return NotHeld(f"The lock {self._shown()} can't be released: this object does not hold it.")

    def _find_block(self, frame: FrameType) -> Entry | None:
        """Return the ``with`` block that *frame* ends; None if no block runs any more."""
        # copy() is one step: other threads change the list.
        entered = self._entered_blocks.copy()
        if len(entered) == 1 and entered[0].frame is frame:
            return entered[0]
        return self_deadlock.ending(entered, frame)

    def _leave(self, block: Entry) -> Commands[None]:
        """Call the client's `at_end` if the end of *block* releases a lock. Then release it."""
        at_end = self.client.at_end
        if at_end is None or not self._gives_back(block):
            return self._release(block)
        return self._leave_after(at_end, block)

    def _leave_after(self, at_end: AtEnd, block: Entry) -> Commands[None]:
        try:
            block.trouble = yield from at_end(self.names)
        finally:
            yield from self._release(block)

    def _gives_back(self, block: Entry) -> bool:
        """Return whether the end of *block* releases anything."""
        return True

    def _release(self, block: Entry) -> Commands[None]:
        grant = block.grant if self._granted_entries == [block] else self._grant_of(block)
        assert grant is not None
        return grant._release()

    def _grant_of(self, block: Entry) -> Grant | None:
        """Return the grant that the end of *block* releases.

        It is the latest grant of the owner of *block*, because the body may have released the lock and
        acquired it again.
        """
        with self._namespace.entries_mutex:
            others = [entry for entry in self._entered_blocks if entry is not block]
            granted = [entry for entry in self._unreleased() if entry not in others]
        return next((entry.grant for entry in reversed(granted) if entry.owner == block.owner), block.grant)

    def _forget(self, block: Entry) -> None:
        """Note that *block* has ended."""
        with self._namespace.entries_mutex:
            if block in self._entered_blocks:
                self._entered_blocks.remove(block)
            self._granted_entries = self._unreleased() if self._granted_entries != [block] else []
        self_deadlock.end(block)

    def _abandon_block(self, block: Entry | None, error: BaseException, frame: FrameType) -> None:
        """Have the maintenance thread finish the end of *block*, which *error* interrupted."""
        if block is None:
            # The interrupt came before the block was found. Do not end the block of another owner.
            block = self._find_block(frame)
            if block is None or (block.frame is not frame and block.owner != current_owner()):
                return
        block.grant = self._grant_of(block)
        self._abandon_grant(block, error)
        self._forget(block)

    def _abandon_grant(self, entry: Entry, error: BaseException) -> None:
        """Have the maintenance thread release *entry*, because *error* interrupted the caller. No I/O."""
        if entry.grant is not None:
            entry.grant._abandon(error)

    def _raise_after(self, block: Entry | None, exc_info: tuple[Any, ...]) -> None:
        """Raise the error of a ``with`` block that has ended, unless its body has raised one.

        That is the error of `at_end`; `NotHeld` if *block* is None; `LostInside` if the lock was lost and no
        fenced transaction was committed under it.
        """
        if exc_info and exc_info[0] is not None:
            return
        if block is not None and block.trouble is not None:
            raise block.trouble
        if not self.tells_loss:
            return
        if block is None:
            raise self._not_held()
        if (grant := block.grant) is not None and grant.lost and not grant.committed:
            raise LostInside(
                f"The lock {self._shown()} was lost inside its 'with' block: {grant.why_lost}. What the "
                "block did may stand, and somebody else may have worked at the same time: look before you "
                "repeat it."
            )

    def _shown(self) -> str:
        return ", ".join(map(repr, self.names))


class ReadLock(Lock):
    """A lock of `Locks.read_lock`. Each acquisition has a grant of its own.

    A thread or task that has already locked a name for reading or writing reads it again without waiting,
    even if a writer waits: else the reader and the writer would wait for each other. This is also true of a
    ``with`` inside a ``with`` or a guard of another client that has the same locks.
    """

    def _refuse_own(self, entry: Entry) -> None:
        again = self_deadlock.read_again(self._namespace, self.names, enters_kept=self._enters_kept())
        if again is not None:
            entry.namespace = again
        else:
            self_deadlock.refuse_own(
                self._namespace,
                self.names,
                reads=True,
                seconds=self._longest,
                enters_kept=self._enters_kept(),
            )

    def _enter(self, entry: Entry, seconds: float) -> Commands[Grant | None]:
        if entry.namespace is self._namespace:
            return super()._enter(entry, seconds)
        # This owner has the names through another client of this process. Read through that client again: a
        # request of this client would queue behind writers that wait for the owner itself.
        return entry.namespace.acquire(self.names, entry.parker, seconds, self.terms)


class Semaphore(Lock):
    """A semaphore of `Locks.semaphore`, like `threading.Semaphore`, but for all processes. It has no owner.

    A ``with`` inside another one takes further permits. `locked` returns whether any permit is in use.
    """

    def __init__(self, client: Client, names: tuple[str, ...], timeout: float | None, terms: Terms) -> None:
        super().__init__(client, names, timeout, terms)
        self._namespace = client.namespace.semaphores

    def _refuse_own(self, entry: Entry) -> None:
        """Refuse nothing: a caller may take permits more than once."""
