"""The line of contenders for a key: one empty file for each, the oldest living one holds.

A file appears and vanishes in one step, even if its process is killed. To hand over is to delete one's own
file: the next in line may take the lock from that moment. Its ticket is its number, because tickets are given
in growing order and a line is served in the order of its tickets.

A contender that takes the lock says so: it renames its file, as the only writer. Until then others may send
it away, as the only writers: a process that is stopped where the lock comes to it would block everybody.
Only a look of the only writer is exact, too: another may miss a file that is being renamed.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from distlock.backends.file.alone import Alone
from distlock.backends.file.directory import Directory
from distlock.backends.file.record_locks import SHARDS, RecordLocks, contender_of, name_of
from distlock.backends.file.seed import Seed, create
from distlock.backends.file.tree import Tree
from distlock.errors import BackendUnavailable
from distlock.names import encode

_COUNTER_BYTES = 8
_WAITS, _HELD = "waits", "holds"
#: Before the number of a hold whose ticket is not its number.
_LIFTED = "holds-"
#: Behind the counters: for each shard what numbers have to be above, whatever the tickets are.
_FLOORS = SHARDS * _COUNTER_BYTES
_COUNTER_LIMIT = 1 << 62
#: Numbers can be lifted so far; above it there is room for as many again.
HIGHEST_FLOOR = 1 << 61


class Entry(NamedTuple):
    """One contender's standing in the line of one key."""

    ticket: int
    contender: int
    #: A digest of the ask's token: the secret itself is written nowhere.
    proof: str
    #: It has taken the lock, and nobody may send it away any more.
    held: bool
    #: The folder of its shard, and its name there.
    folder: str
    name: str

    @property
    def path(self) -> str:
        """Below the directory of the lines."""
        return f"{self.folder}/{self.name}"

    @property
    def number(self) -> int:
        """The first number of its hold: its ticket, unless it was lifted."""
        lifted = self.name.rpartition("~")[2].removeprefix(_LIFTED)
        return int(lifted) if lifted.isdigit() else self.ticket


class Newcomer(NamedTuple):
    """A contender that wants to stand in line."""

    contender: int
    proof: str
    span: int
    wait: bool


class Spot(NamedTuple):
    """Where the entries of one key lie."""

    shard: int
    folder: str
    prefix: str


def proof_of(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


def microseconds() -> int:
    return time.time_ns() // 1000


class Line:
    """The lines of all keys in one lock directory."""

    def __init__(
        self, directory: Directory, tree: Tree, locks: RecordLocks, now: Callable[[], int] = microseconds
    ) -> None:
        self._directory = directory
        self._tree = tree
        self._locks = locks
        self._now = now
        self._alone = Alone()
        self._seed = Seed(tree)

    def spot(self, key: str) -> Spot:
        shard, prefix = _shard_and_prefix(key)
        return Spot(shard, f"{shard:02x}", prefix)

    def entries(self, spot: Spot) -> list[Entry]:
        """All in line, dead or alive, first come first. One that takes the lock just now may be missing."""
        return sorted(_parsed(spot.folder, self._names(spot), spot.prefix))

    def exact_entries(self, spot: Spot, patience: float) -> list[Entry]:
        """Everybody in line, dead or alive, first come first."""
        with self._locks.writing(spot.shard, patience):
            return self.entries(spot)

    def spot_of(self, entry: Entry) -> Spot:
        return Spot(int(entry.folder, 16), entry.folder, "~".join(entry.name.split("~")[:2]) + "~")

    def join(self, spot: Spot, mine: Newcomer, patience: float) -> tuple[Entry | None, list[Entry]]:
        """Stand at the end of the line, once; take the lock if nobody living is before us.

        No entry if the newcomer will not wait behind the living. Returns the line before us as well: those
        in it may leave any moment, but nobody joins it.
        """
        with self._locks.writing(spot.shard, patience):
            # Under the writers' lock nobody joins, and one that leaves only brings us forward.
            counter = self._counter(spot.shard)
            names = [] if self._alone.empty(spot.shard, counter) else self._names(spot)
            line = sorted(_parsed(spot.folder, names, spot.prefix)) if names else []
            for entry in line:
                if entry.proof == mine.proof and entry.contender == mine.contender:
                    return entry, line
            free = not any(self._locks.alive(entry.contender) for entry in line)
            if not free and not mine.wait:
                return None, line
            ticket = self._take_tickets(spot.shard, counter, mine.span)
            name = _name(spot.prefix, ticket, mine.contender, mine.proof, _HELD if free else _WAITS)
            entry = Entry(ticket, mine.contender, mine.proof, free, spot.folder, name)
            self._create(entry)
            if not names:
                self._alone.came(spot.shard, ticket, ticket + mine.span)
            return entry, line

    def take(self, spot: Spot, mine: Entry, patience: float) -> Entry | None:
        """Take the lock. None if somebody living is before us, or we were sent away."""
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if (entry.ticket, entry.contender) == (mine.ticket, mine.contender):
                    return entry if entry.held else self._mark(spot, entry)
                if self._locks.alive(entry.contender):
                    return None
            return None

    def send_away(self, spot: Spot, head: Entry, patience: float) -> None:
        """Take *head* out of the line, unless it has taken the lock."""
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if (entry.ticket, entry.contender) == (head.ticket, head.contender) and not entry.held:
                    self.leave(entry)

    def break_first(self, spot: Spot, number: int, patience: float) -> Entry | None:
        """Take the first living contender out of the line, if its hold begins with *number*."""
        with self._locks.writing(spot.shard, patience):
            for entry in self.entries(spot):
                if self._locks.alive(entry.contender):
                    return entry if entry.number == number and self.leave(entry) else None
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
        return self._alone.left(spot.shard, mine.ticket, self._counter(spot.shard))

    def close(self) -> None:
        self._seed.remove()

    def lines_of_shards(self) -> Iterator[list[Entry]]:
        """Every entry of every key, a shard at a time, from a random one on."""
        shards = self._tree.names(".", self._tree.queue)
        start = random.randrange(len(shards)) if shards else 0  # noqa: S311
        for shard in shards[start:] + shards[:start]:
            with suppress(FileNotFoundError, NotADirectoryError):
                yield list(_parsed(shard, self._tree.names(shard, self._tree.queue)))

    def floor(self, spot: Spot) -> int:
        """What numbers have to be above. Tickets that were taken before it was raised may not be."""
        return self._read(_FLOORS + spot.shard * _COUNTER_BYTES)

    def lift(self, spot: Spot, mine: Entry, span: int, above: int, patience: float) -> Entry:
        """Reserve *span* growing numbers above *above* for the hold *mine*; all later ones are above, too."""
        with self._locks.writing(spot.shard, patience):
            if above > self.floor(spot):
                self._write(_FLOORS + spot.shard * _COUNTER_BYTES, above)
            number = self._take_tickets(spot.shard, self._counter(spot.shard), span, above + 1)
            return self._mark(spot, mine, f"{_LIFTED}{number}")

    def _names(self, spot: Spot) -> list[str]:
        try:
            with self._tree.in_queue:
                return self._tree.names(spot.folder, self._tree.queue)
        except FileNotFoundError:
            return []

    def _counter(self, shard: int) -> int:
        return self._read(shard * _COUNTER_BYTES)

    def _take_tickets(self, shard: int, counter: int, span: int, least: int = 0) -> int:
        """Reserve *span* growing numbers.

        The *counter* outlives the entries, so that numbers grow when the clock is set back; the clock
        outlives the counter, so that they grow when the directory is wiped.
        """
        if counter > _COUNTER_LIMIT:
            raise BackendUnavailable(
                f"{self._directory.state} is corrupt: its counter {shard} reads {counter}. "
                f"Stop every process that uses {self._directory.path}, then delete {self._directory.root}."
            )
        ticket = max(counter, self._now(), least)
        self._write(shard * _COUNTER_BYTES, ticket + span)
        return ticket

    def _read(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._locks.descriptor, _COUNTER_BYTES, offset), "little")

    def _write(self, offset: int, number: int) -> None:
        os.pwrite(self._locks.descriptor, number.to_bytes(_COUNTER_BYTES, "little"), offset)

    def _create(self, entry: Entry) -> None:
        if self._seed.sow(entry.contender, entry.path):
            return
        with self._tree.in_queue:
            try:
                create(entry.path, self._tree.queue)
            except FileNotFoundError:
                self._tree.make(entry.folder, self._tree.queue)
                create(entry.path, self._tree.queue)

    def _mark(self, spot: Spot, entry: Entry, state: str = _HELD) -> Entry:
        name = _name(spot.prefix, entry.ticket, entry.contender, entry.proof, state)
        held = entry._replace(held=True, name=name)
        queue = self._tree.queue
        with self._tree.in_queue:
            os.rename(entry.path, held.path, src_dir_fd=queue, dst_dir_fd=queue)
        return held


def _name(prefix: str, ticket: int, contender: int, proof: str, state: str) -> str:
    # Of one length, so that to take the lock needs no more space in the directory.
    return f"{prefix}{ticket:016d}~{name_of(contender)}~{proof}~{state}"


@lru_cache(maxsize=4096)
def _shard_and_prefix(key: str) -> tuple[int, str]:
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    # The digest tells keys apart even where file names ignore case; the text is for people who look.
    text = encode(key)[:40] if key.isprintable() else "key"
    return int(digest[:2], 16) % SHARDS, f"{text}~{digest}~"


def _parsed(folder: str, names: list[str], prefix: str = "") -> Iterator[Entry]:
    for name in names:
        if not name.startswith(prefix):
            continue
        # What we did not make is not ours to judge or to delete.
        with suppress(ValueError):
            _, _, ticket, contender, proof, state = name.split("~")
            if state in {_WAITS, _HELD} or state.startswith(_LIFTED):
                yield Entry(int(ticket), contender_of(contender), proof, state != _WAITS, folder, name)
