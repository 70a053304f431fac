"""The queue of a key: one empty file for each contender. The first living contenders have the lock.

Making and deleting a file are atomic, even if the process is killed. A holder hands off by deleting its file:
from then on the next contender may take the lock. Each contender has a ticket, a number. Tickets grow, and a
queue is served in their order.

A contender takes the lock by renaming its file. Until then others may delete the file, because a process that
is stopped when its turn comes would block the queue. A contender does both only as the only writer of the
shard (see `RecordLocks.writing`). The writer also sees every entry: other readers may miss a file that is
being renamed.
"""

from __future__ import annotations

import errno
import functools
import math
import os
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from distlock import clock
from distlock.backends.base import READ, LockRequest
from distlock.backends.file.directory import Directory
from distlock.backends.file.entries import QueueEntry, Spot, front, is_front, parsed, proof_of, spot_of
from distlock.backends.file.record_locks import SHARDS, RecordLocks, name_of
from distlock.backends.file.trusted_directories import Tree
from distlock.errors import BackendUnavailable

_BYTES = 8
#: The offset of the floors, behind the counters. New fences of a shard are above its floor.
_FLOORS = SHARDS * _BYTES
_COUNTER_LIMIT = 1 << 62
#: Fences can be raised up to this number; as many again are free above it.
HIGHEST_FLOOR = 1 << 61


def microseconds() -> int:
    return time.time_ns() // 1000


class Tickets:
    """The counter and the floor of each shard, in the state file that is open as *descriptor*."""

    def __init__(self, directory: Directory, descriptor: int) -> None:
        self._directory = directory
        self._descriptor = descriptor

    def counter(self, shard: int) -> int:
        """Return a number above every ticket that was given out."""
        return self._read(shard * _BYTES)

    def take(self, shard: int, counter: int, span: int, least: int = 0) -> int:
        """Reserve *span* numbers from *least* on, and return the first. *counter* was read just before.

        Numbers are not below the counter, so they grow even if the clock is set back. They are not below
        the clock, so they grow even if the directory is deleted.
        """
        if counter > _COUNTER_LIMIT:
            raise BackendUnavailable(
                f"{self._directory.state} is corrupt: its counter {shard} reads {counter}. "
                f"Stop every process that uses {self._directory.path}, then delete {self._directory.root}."
            )
        ticket = max(counter, microseconds(), least)
        self._write(shard * _BYTES, ticket + span)
        return ticket

    def floor(self, shard: int) -> int:
        """Return the floor of *shard*: all fences that are granted from now on are larger."""
        return self._read(_FLOORS + shard * _BYTES)

    def raise_floor(self, shard: int, span: int, above: int) -> int:
        """Reserve *span* fences above *above*, and return the first. Raise the floor to the last fence."""
        number = self.take(shard, self.counter(shard), span, above + 1)
        self._write(_FLOORS + shard * _BYTES, number + span - 1)
        return number

    def _read(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._descriptor, _BYTES, offset), "little")

    def _write(self, offset: int, number: int) -> None:
        os.pwrite(self._descriptor, number.to_bytes(_BYTES, "little"), offset)


#: Stands for the ticket of our entry once the entry is gone.
_NOBODY = 0


class EmptyShards:
    """Shards that one contender knows to be empty, so that it need not read their folders.

    A contender takes a ticket before it joins a queue. So nobody has joined if the counter is unchanged.
    """

    def __init__(self) -> None:
        #: By shard: the ticket of its only entry, which is ours, and the counter after that entry.
        self._last: dict[int, tuple[int, int]] = {}

    def came(self, shard: int, ticket: int, counter: int) -> None:
        """Note that our entry joined an empty shard, and the new *counter*. The caller is the only writer."""
        self._last[shard] = ticket, counter

    def left(self, shard: int, ticket: int, counter: int) -> bool:
        """Note that our entry is gone. Return whether nobody has joined since it came."""
        if self._last.get(shard) != (ticket, counter):
            return False
        # If another thread has taken a ticket meanwhile, this counter never matches.
        self._last[shard] = _NOBODY, counter
        return True

    def empty(self, shard: int, counter: int) -> bool:
        """Return whether the folder is certainly empty. The caller is the only writer."""
        return self._last.get(shard) == (_NOBODY, counter)


class FileQueues:
    """The queues of all keys in one lock directory."""

    def __init__(self, directory: Directory, tree: Tree, locks: RecordLocks) -> None:
        self._tree = tree
        self._locks = locks
        self._tickets = Tickets(directory, locks.descriptor)
        self._empty_shards = EmptyShards()
        self._link_source = LinkSource(tree)
        #: Called when an entry of a dead contender was found.
        self.met_dead: Callable[[], None] = lambda: None

    def entries(self, spot: Spot) -> list[QueueEntry]:
        """Return all entries in order, dead or alive. An entry that is being renamed may be missing."""
        return sorted(parsed(spot.folder, self._names(spot), spot.prefix))

    def exact_entries(self, spot: Spot, patience: float) -> list[QueueEntry]:
        """Return all entries in order, dead or alive. None is missing."""
        with self._locks.writing(spot.shard, patience):
            return self.entries(spot)

    def living(self, line: Iterable[QueueEntry]) -> Iterator[QueueEntry]:
        """Yield the entries of *line* whose contenders are alive, and delete the others."""
        # Ask once for each contender, which may have many entries.
        alive = functools.cache(self._locks.alive)
        for entry in line:
            if alive(entry.contender):
                yield entry
            else:
                self.leave(entry)
                self.met_dead()

    def before(self, mine: QueueEntry, line: list[QueueEntry]) -> list[QueueEntry]:
        """Return the living entries of *line* that keep *mine* waiting; none if it may take the lock."""
        others = (entry for entry in line if entry.ticket < mine.ticket or (entry.held and entry != mine))
        living = list(self.living(others))
        return [] if is_front(mine, living) else living

    def followed(self, line: list[QueueEntry]) -> bool:
        """Return whether a living entry of *line* waits."""
        living = list(self.living(line))
        return len(list(front(living))) < len(living)

    def join(
        self, request: LockRequest, contender: int, patience: float
    ) -> tuple[QueueEntry | None, list[QueueEntry]]:
        """Join the end of the queue, and take the lock if it is free. An entry that we have already stays.

        Return our entry, or None if the lock is not free and *request* does not wait. Return the queue, too:
        its contenders may leave at any moment, but none joins before us.
        """
        spot = spot_of(request.key)
        mine = QueueEntry.newcomer(request, contender)
        with self._locks.writing(spot.shard, patience):
            # While we are the only writer nobody joins, and a contender that leaves only brings us forward.
            counter = self._tickets.counter(spot.shard)
            names = [] if self._empty_shards.empty(spot.shard, counter) else self._names(spot)
            line = sorted(parsed(spot.folder, names, spot.prefix)) if names else []
            for entry in line:
                if entry.proof == mine.proof and entry.contender == mine.contender:
                    return entry, line
            free = not line or is_front(mine, self.living(line))
            if not free and not request.wait:
                return None, line
            ticket = self._tickets.take(spot.shard, counter, request.span)
            entry = mine.joined(spot, ticket, held=free)
            self._create(entry)
            if not names:
                self._empty_shards.came(spot.shard, ticket, ticket + request.span)
            return entry, line

    def take(self, spot: Spot, mine: QueueEntry, patience: float) -> QueueEntry | None:
        """Take the lock for *mine*. Return None if other contenders keep *mine* out, or if it was deleted."""
        with self._locks.writing(spot.shard, patience):
            for entry in front(self.living(self.entries(spot))):
                if (entry.ticket, entry.contender) == (mine.ticket, mine.contender):
                    return entry if entry.held else self._rename(entry, entry.holding())
            return None

    def downgrade(self, spot: Spot, mine: QueueEntry, span: int, patience: float) -> QueueEntry | None:
        """Turn the exclusive hold *mine* into a reader's. Return None if it is gone.

        Its fence becomes the last one of its block, which is not below any that was given out.
        """
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if (entry.ticket, entry.contender) == (mine.ticket, mine.contender):
                    if entry.wants.mode == READ:
                        return entry
                    return self._rename(entry, entry.reading(entry.number + span - 1))
            return None

    def remove_unresponsive(self, spot: Spot, tickets: Collection[int], patience: float) -> None:
        """Delete the entries with *tickets*, unless they have taken the lock."""
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if entry.ticket in tickets and not entry.held:
                    self.leave(entry)

    def break_hold(self, spot: Spot, number: int, patience: float) -> QueueEntry | None:
        """Delete the entry of the holder whose first fence is *number*. Return it; None: there is none."""
        with self._locks.writing(spot.shard, patience):
            for entry in front(self.living(self.entries(spot))):
                if entry.number == number:
                    return entry if self.leave(entry) else None
            return None

    def there(self, entry: QueueEntry) -> bool:
        """Return whether *entry*, which has the lock, still exists."""
        try:
            with self._tree.in_queue:
                os.stat(entry.path, dir_fd=self._tree.queue, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def leave(self, entry: QueueEntry) -> bool:
        """Delete *entry*. Return False if it was gone already."""
        try:
            with self._tree.in_queue:
                os.unlink(entry.path, dir_fd=self._tree.queue)
        except FileNotFoundError:
            return False
        return True

    def nobody_followed(self, spot: Spot, mine: QueueEntry) -> bool:
        """Return whether *mine*, which has left, joined an empty shard, and nobody has joined since."""
        return self._empty_shards.left(spot.shard, mine.ticket, self._tickets.counter(spot.shard))

    def close(self) -> None:
        self._link_source.remove()

    def lines_of_shards(self) -> Iterator[list[QueueEntry]]:
        """Yield the entries of all keys, shard by shard, from a random one on."""
        shards = self._tree.names(".", self._tree.queue)
        start = random.randrange(len(shards)) if shards else 0  # noqa: S311
        for shard in shards[start:] + shards[:start]:
            with suppress(FileNotFoundError, NotADirectoryError):
                yield list(parsed(shard, self._tree.names(shard, self._tree.queue)))

    def floor(self, spot: Spot) -> int:
        """Return the floor of the shard of *spot*: all fences granted from now on are larger."""
        return self._tickets.floor(spot.shard)

    def raise_fence(
        self, spot: Spot, mine: QueueEntry, span: int, above: int, patience: float
    ) -> QueueEntry | None:
        """Reserve *span* fences above *above* for the hold *mine*. All later fences are above them, too.

        Return None if the hold is gone.
        """
        with self._locks.writing(spot.shard, patience), suppress(FileNotFoundError):
            return self._rename(mine, mine.holding(self._tickets.raise_floor(spot.shard, span, above)))
        return None

    def _names(self, spot: Spot) -> list[str]:
        try:
            with self._tree.in_queue:
                return self._tree.names(spot.folder, self._tree.queue)
        except FileNotFoundError:
            return []

    def _create(self, entry: QueueEntry) -> None:
        if self._link_source.link(entry.contender, entry.path):
            return
        with self._tree.in_queue:
            try:
                create(entry.path, self._tree.queue)
            except FileNotFoundError:
                self._tree.make(entry.folder, self._tree.queue)
                create(entry.path, self._tree.queue)

    def _rename(self, entry: QueueEntry, renamed: QueueEntry) -> QueueEntry:
        queue = self._tree.queue
        with self._tree.in_queue:
            os.rename(entry.path, renamed.path, src_dir_fd=queue, dst_dir_fd=queue)
        return renamed


#: The name of a `LinkSource`'s file ends with this, behind the contender.
LINK_SOURCE_SUFFIX = ".seed"
#: Seconds after which a `LinkSource` replaces its file, because cleaners delete old files.
_LIFETIME = 3600.0


class LinkSource:
    """The empty file of one contender that its entries are hard links to.

    A link is cheaper than a new file, for which a file system searches a free inode. The file is made when it
    is first needed.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._name = ""
        self._expires = 0.0

    def link(self, contender: int, path: str) -> bool:
        """Make the entry *path* as a link. Return False if that failed: the caller makes a new file."""
        root = self._tree.root
        try:
            if clock.now() >= self._expires:
                self.remove()
                self._name = f"{name_of(contender)}{LINK_SOURCE_SUFFIX}"
                create(self._name, root)
                self._expires = clock.now() + _LIFETIME
            # If a symbolic link has replaced the file, do not follow it.
            os.link(self._name, path, src_dir_fd=root, dst_dir_fd=self._tree.queue, follow_symlinks=False)
        except OSError as error:
            # The folder may be missing, or the file system may have no hard links.
            if error.errno == errno.EMLINK or not self._there():
                self._expires = 0.0
            return False
        return True

    def remove(self) -> None:
        if self._name:
            with suppress(OSError):
                os.unlink(self._name, dir_fd=self._tree.root)

    def _there(self) -> bool:
        with suppress(OSError):
            os.lstat(self._name, dir_fd=self._tree.root)
            return True
        return False


def create(path: str, parent: int) -> None:
    """Make an empty file below the directory *parent*."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600, dir_fd=parent))


class Unresponsive:
    """The contenders that each request has seen idle: they may take the lock, and have not."""

    def __init__(self) -> None:
        #: By the request's token: when the ticket of each idle contender was first seen.
        self._since: dict[str, dict[int, float]] = {}

    def overdue(self, token: str, idle: Iterable[QueueEntry], window: float) -> tuple[list[int], float]:
        """Return the tickets of the *idle* contenders that have not taken the lock for *window* seconds.

        Return also in how many seconds to look again if there are no such tickets; ``inf``: nobody is idle.
        """
        known = self._since.get(token, {})
        now = time.monotonic()
        since = {entry.ticket: known.get(entry.ticket, now) for entry in idle}
        if not since:
            self.forget(token)
            return [], math.inf
        self._since[token] = since
        return (
            [ticket for ticket, moment in since.items() if now >= moment + window],
            min(since.values()) + window - now,
        )

    def forget(self, token: str) -> None:
        self._since.pop(token, None)


class Holds:
    """The entries and holds of one contender. Thread-safe."""

    def __init__(self, queues: FileQueues, contender: int) -> None:
        self._queues = queues
        self._contender = contender
        #: Our entries, and our entries that have the lock, by token.
        self.entries: dict[str, QueueEntry] = {}
        self.held: dict[str, QueueEntry] = {}
        #: The first fence of each hold.
        self._numbers: dict[str, int] = {}

    def find(self, request: LockRequest, line: list[QueueEntry]) -> QueueEntry | None:
        """Return our entry for *request* in *line*, or None.

        The contender has to match, because a forked child knows its parent's tokens, and may not use them.
        """
        proof = proof_of(request.token)
        ours = (entry for entry in line if entry.contender == self._contender and entry.proof == proof)
        return next(ours, None)

    def own(self, request: LockRequest) -> QueueEntry | None:
        """Return the hold of *request*, or None."""
        mine = self.held.get(request.token)
        if mine is None:
            mine = self.find(request, self._queues.entries(spot_of(request.key)))
        return mine if mine is not None and mine.held else None

    def holds(self, request: LockRequest, patience: float) -> bool:
        """Return whether a living contender, ours or another one, holds the lock for *request*.

        Otherwise forget the token of *request*.
        """
        mine = self.held.get(request.token)
        if mine is not None and self._queues.there(mine):
            return True
        # Another thread may be renaming its file.
        line = self._queues.exact_entries(spot_of(request.key), patience)
        proof = proof_of(request.token)
        if any(entry.proof == proof and entry.held for entry in self._queues.living(line)):
            return True
        self.drop(request.token)
        return False

    def is_broken(self) -> bool:
        """Return whether one of our holds has been deleted."""
        return not all(map(self._queues.there, list(self.held.values())))

    def hold(self, request: LockRequest, mine: QueueEntry, patience: float) -> int:
        """Note that *mine* has the lock. Return its first fence, which is raised above the floor."""
        spot = spot_of(request.key)
        if request.token not in self._numbers:
            if mine.ticket <= (floor := self._queues.floor(spot)):
                mine = self._queues.raise_fence(spot, mine, request.span, floor, patience) or mine
            self._numbers[request.token] = mine.ticket if mine.ticket > floor else mine.number
        self.entries[request.token] = self.held[request.token] = mine
        return self._numbers[request.token]

    def raise_fence(self, request: LockRequest, number: int, patience: float) -> int | None:
        """Raise the fences of *request*'s hold, and all later fences, above *number*.

        Return the first fence of the hold, or None if we have no such hold.
        """
        mine, first = self.held.get(request.token), self._numbers.get(request.token)
        if mine is None or first is None or first > number:
            return first
        raised = self._queues.raise_fence(spot_of(request.key), mine, request.span, number, patience)
        return self._renamed(request.token, raised) if raised is not None else None

    def downgrade(self, request: LockRequest, mine: QueueEntry, patience: float) -> bool:
        """Turn our hold into a reader's. Return False if the hold is gone."""
        reading = self._queues.downgrade(spot_of(request.key), mine, request.span, patience)
        if reading is None:
            return False
        self._renamed(request.token, reading)
        return True

    def drop(self, token: str) -> None:
        """Forget *token*."""
        self.entries.pop(token, None)
        self.held.pop(token, None)
        self._numbers.pop(token, None)

    def _renamed(self, token: str, mine: QueueEntry) -> int:
        """Note that the hold of *token* is *mine* now. Return its first fence."""
        self.entries[token] = self.held[token] = mine
        self._numbers[token] = mine.number
        if not self._queues.there(mine):
            # Another thread has released it meanwhile, or an operator has broken it.
            self.drop(token)
        return mine.number
