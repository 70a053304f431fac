"""The line of contenders for a key: one empty file for each, the oldest living ones hold.

A file appears and vanishes in one step, even if its process is killed. To hand off is to delete one's own
file: the next in line may take the lock from that moment. Its ticket is its number, because tickets are given
in growing order and a line is served in the order of its tickets.

A contender that takes the lock says so: it renames its file, as the only writer. Until then others may send
it away, as the only writers: a process that is stopped where the lock comes to it would block everybody.
Only a look of the only writer is exact, too: another may miss a file that is being renamed.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from distlock.backends.base import READ
from distlock.backends.file.alone import Alone
from distlock.backends.file.directory import Directory
from distlock.backends.file.entry import READING, Entry, Newcomer, Spot, holding, joining, parsed, spot_of
from distlock.backends.file.record_locks import RecordLocks
from distlock.backends.file.seed import Seed, create
from distlock.backends.file.tickets import Tickets, microseconds
from distlock.backends.file.tree import Tree
from distlock.backends.file.turn import front, is_front


class Line:
    """The lines of all keys in one lock directory."""

    spot = staticmethod(spot_of)

    def __init__(
        self, directory: Directory, tree: Tree, locks: RecordLocks, now: Callable[[], int] = microseconds
    ) -> None:
        self._tree = tree
        self._locks = locks
        self._tickets = Tickets(directory, locks.descriptor, now)
        self._alone = Alone()
        self._seed = Seed(tree)
        #: Called when a dead one was met.
        self.met_dead: Callable[[], None] = lambda: None

    def entries(self, spot: Spot) -> list[Entry]:
        """All in line, dead or alive, first come first. One that takes the lock just now may be missing."""
        return sorted(parsed(spot.folder, self._names(spot), spot.prefix))

    def exact_entries(self, spot: Spot, patience: float) -> list[Entry]:
        """Everybody in line, dead or alive, first come first."""
        with self._locks.writing(spot.shard, patience):
            return self.entries(spot)

    def living(self, line: Iterable[Entry]) -> Iterator[Entry]:
        """Those of *line* that live. The dead are taken out of it."""
        # One look for each contender, which may stand there many times.
        alive = functools.cache(self._locks.alive)
        for entry in line:
            if alive(entry.contender):
                yield entry
            else:
                self.leave(entry)
                self.met_dead()

    def before(self, mine: Entry, line: list[Entry]) -> list[Entry]:
        """Those in *line* that live and keep *mine* waiting; none if it is its turn."""
        others = (entry for entry in line if entry.ticket < mine.ticket or (entry.held and entry != mine))
        living = list(self.living(others))
        return [] if is_front(mine, living) else living

    def followed(self, line: list[Entry]) -> bool:
        """Whether somebody living in *line* waits for its turn."""
        living = list(self.living(line))
        return len(list(front(living))) < len(living)

    def join(self, spot: Spot, mine: Newcomer, patience: float) -> tuple[Entry | None, list[Entry]]:
        """Stand at the end of the line, once; take the lock if it is our turn at once.

        No entry if the newcomer will not wait. Returns the line before us as well: those in it may leave any
        moment, but nobody joins it.
        """
        with self._locks.writing(spot.shard, patience):
            # Under the writers' lock nobody joins, and one that leaves only brings us forward.
            counter = self._tickets.counter(spot.shard)
            names = [] if self._alone.empty(spot.shard, counter) else self._names(spot)
            line = sorted(parsed(spot.folder, names, spot.prefix)) if names else []
            for entry in line:
                if entry.proof == mine.proof and entry.contender == mine.contender:
                    return entry, line
            free = not line or is_front(mine, self.living(line))
            if not free and not mine.wait:
                return None, line
            ticket = self._tickets.take(spot.shard, counter, mine.span)
            entry = joining(spot, ticket, mine, held=free)
            self._create(entry)
            if not names:
                self._alone.came(spot.shard, ticket, ticket + mine.span)
            return entry, line

    def take(self, spot: Spot, mine: Entry, patience: float) -> Entry | None:
        """Take the lock. None if it is not our turn, or we were sent away."""
        with self._locks.writing(spot.shard, patience):
            for entry in front(self.living(self.entries(spot))):
                if (entry.ticket, entry.contender) == (mine.ticket, mine.contender):
                    return entry if entry.held else self._rename(entry, holding(spot, entry))
            return None

    def downgrade(self, spot: Spot, mine: Entry, span: int, patience: float) -> Entry | None:
        """Let readers in beside *mine*, which has the whole lock. None if it has not.

        A reader's number is above those that were given out before: it is the last one of its block.
        """
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if (entry.ticket, entry.contender) == (mine.ticket, mine.contender):
                    if entry.wants.mode == READ:
                        return entry
                    reading = holding(spot, entry._replace(wants=READING), entry.number + span - 1)
                    return self._rename(entry, reading)
            return None

    def send_away(self, spot: Spot, tickets: Collection[int], patience: float) -> None:
        """Take those with *tickets* out of the line, unless they have what they want."""
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if entry.ticket in tickets and not entry.held:
                    self.leave(entry)

    def break_hold(self, spot: Spot, number: int, patience: float) -> Entry | None:
        """Take the one whose turn it is, and whose hold begins with *number*, out of the line."""
        with self._locks.writing(spot.shard, patience):
            for entry in front(self.living(self.entries(spot))):
                if entry.number == number:
                    return entry if self.leave(entry) else None
            return None

    def there(self, entry: Entry) -> bool:
        """Whether *entry*, which has the lock, is in line still."""
        try:
            with self._tree.in_queue:
                os.stat(entry.path, dir_fd=self._tree.queue, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def leave(self, entry: Entry) -> bool:
        """False if the entry was gone already."""
        try:
            with self._tree.in_queue:
                os.unlink(entry.path, dir_fd=self._tree.queue)
        except FileNotFoundError:
            return False
        return True

    def left_alone(self, spot: Spot, mine: Entry) -> bool:
        """Whether for certain nobody has joined the line since *mine*, which has left it, came first."""
        return self._alone.left(spot.shard, mine.ticket, self._tickets.counter(spot.shard))

    def close(self) -> None:
        self._seed.remove()

    def lines_of_shards(self) -> Iterator[list[Entry]]:
        """Every entry of every key, a shard at a time, from a random one on."""
        shards = self._tree.names(".", self._tree.queue)
        start = random.randrange(len(shards)) if shards else 0  # noqa: S311
        for shard in shards[start:] + shards[:start]:
            with suppress(FileNotFoundError, NotADirectoryError):
                yield list(parsed(shard, self._tree.names(shard, self._tree.queue)))

    def floor(self, spot: Spot) -> int:
        """What numbers have to be above, whatever the tickets are."""
        return self._tickets.floor(spot.shard)

    def lift(self, spot: Spot, mine: Entry, span: int, above: int, patience: float) -> Entry | None:
        """Reserve *span* growing numbers above *above* for the hold *mine*; all later ones are above, too.

        None if it is gone.
        """
        with self._locks.writing(spot.shard, patience), suppress(FileNotFoundError):
            return self._rename(mine, holding(spot, mine, self._tickets.lift(spot.shard, span, above)))
        return None

    def _names(self, spot: Spot) -> list[str]:
        try:
            with self._tree.in_queue:
                return self._tree.names(spot.folder, self._tree.queue)
        except FileNotFoundError:
            return []

    def _create(self, entry: Entry) -> None:
        if self._seed.sow(entry.contender, entry.path):
            return
        with self._tree.in_queue:
            try:
                create(entry.path, self._tree.queue)
            except FileNotFoundError:
                self._tree.make(entry.folder, self._tree.queue)
                create(entry.path, self._tree.queue)

    def _rename(self, entry: Entry, renamed: Entry) -> Entry:
        queue = self._tree.queue
        with self._tree.in_queue:
            os.rename(entry.path, renamed.path, src_dir_fd=queue, dst_dir_fd=queue)
        return renamed
