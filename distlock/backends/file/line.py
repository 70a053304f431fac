"""The line of contenders for a key: one empty file for each, the oldest living one holds.

A file appears and vanishes in one step, whoever is killed when. Handing over is deleting one's own file: the
next in line holds from that moment. Its ticket is its fence, because tickets are given in growing order and
a line is served in the order of its tickets.
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

from distlock.backends.file.place import Place
from distlock.backends.file.record_locks import SHARDS, RecordLocks
from distlock.errors import BackendUnavailable
from distlock.names import encode

_COUNTER_BYTES = 8
#: Behind the counters: for each shard the number that fences have to be above, whatever the tickets are.
_FLOORS = SHARDS * _COUNTER_BYTES
_COUNTER_LIMIT = 1 << 62
#: Fences can be lifted so far; above it there is room for as many again.
HIGHEST_FLOOR = 1 << 61


class Entry(NamedTuple):
    """One contender's place in the line of one key."""

    ticket: int
    contender: int
    #: A digest of the ask's token: the secret itself is written nowhere.
    proof: str
    path: str


class Newcomer(NamedTuple):
    """Who wants to stand in line."""

    contender: int
    proof: str
    span: int
    wait: bool


class Spot(NamedTuple):
    """Where the entries of one key lie."""

    shard: int
    directory: str
    prefix: str


def proof_of(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


def microseconds() -> int:
    return time.time_ns() // 1000


class Line:
    """The lines of all keys in one place."""

    def __init__(self, place: Place, locks: RecordLocks, now: Callable[[], int] = microseconds) -> None:
        self._place = place
        self._locks = locks
        self._now = now

    def spot(self, key: str) -> Spot:
        shard, prefix = _shard_and_prefix(key)
        return Spot(shard, f"{self._place.queue}/{shard:02x}", prefix)

    def entries(self, spot: Spot) -> list[Entry]:
        """Everybody in line, dead or alive, first come first."""
        try:
            names = os.listdir(spot.directory)
        except FileNotFoundError:
            return []
        return sorted(_parsed(spot.directory, names, spot.prefix))

    def spot_of(self, entry: Entry) -> Spot:
        directory, _, name = entry.path.rpartition("/")
        return Spot(int(directory[-2:], 16), directory, name.rsplit("~", 3)[0] + "~")

    def join(self, spot: Spot, mine: Newcomer, patience: float) -> tuple[Entry | None, list[Entry]]:
        """Stand at the end of the line, once. No entry if the newcomer will not wait behind the living.

        Returns the line before us as well: whoever is in it may leave any moment, but nobody joins it.
        """
        with self._locks.writing(spot.shard, patience):
            # Under the writers' lock nobody joins, and whoever leaves only brings us forward.
            line = self.entries(spot)
            for entry in line:
                if entry.proof == mine.proof and entry.contender == mine.contender:
                    return entry, line
            if not mine.wait and any(self._locks.alive(entry.contender) for entry in line):
                return None, line
            ticket = self._take_tickets(spot.shard, mine.span)
            path = f"{spot.directory}/{spot.prefix}{ticket:016d}~{mine.contender:015x}~{mine.proof}"
            self._create(spot.directory, path)
            return Entry(ticket, mine.contender, mine.proof, path), line

    def leave(self, entry: Entry) -> bool:
        """False if the entry was gone already."""
        try:
            os.unlink(entry.path)
        except FileNotFoundError:
            return False
        return True

    def lines_of_shards(self) -> Iterator[list[Entry]]:
        """Every entry of every key, a shard at a time, from a random one on."""
        shards = os.listdir(self._place.queue)
        start = random.randrange(len(shards)) if shards else 0  # noqa: S311
        for shard in shards[start:] + shards[:start]:
            directory = f"{self._place.queue}/{shard}"
            with suppress(FileNotFoundError, NotADirectoryError):
                yield list(_parsed(directory, os.listdir(directory)))

    def floor(self, spot: Spot) -> int:
        """What fences have to be above. Tickets that were taken before it was raised may not be."""
        return self._read(_FLOORS + spot.shard * _COUNTER_BYTES)

    def take_fences(self, spot: Spot, span: int, above: int, patience: float) -> int:
        """Reserve *span* growing numbers above *above* for a hold; all later ones are above it, too."""
        with self._locks.writing(spot.shard, patience):
            if above > self.floor(spot):
                self._write(_FLOORS + spot.shard * _COUNTER_BYTES, above)
            return self._take_tickets(spot.shard, span, above + 1)

    def _take_tickets(self, shard: int, span: int, least: int = 0) -> int:
        """Reserve *span* growing numbers.

        The counter outlives the entries, so that numbers grow when the clock is set back; the clock outlives
        the counter, so that they grow when the directory is wiped.
        """
        offset = shard * _COUNTER_BYTES
        counter = self._read(offset)
        if counter > _COUNTER_LIMIT:
            raise BackendUnavailable(
                f"{self._place.state} is corrupt: its counter {shard} reads {counter}. "
                f"Stop every process that uses {self._place.directory}, then delete {self._place.root}."
            )
        ticket = max(counter, self._now(), least)
        self._write(offset, ticket + span)
        return ticket

    def _read(self, offset: int) -> int:
        return int.from_bytes(os.pread(self._locks.descriptor, _COUNTER_BYTES, offset), "little")

    def _write(self, offset: int, number: int) -> None:
        os.pwrite(self._locks.descriptor, number.to_bytes(_COUNTER_BYTES, "little"), offset)

    def _create(self, directory: str, path: str) -> None:
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._place.make_directory(directory)
            descriptor = os.open(path, flags, 0o600)
        os.close(descriptor)


@lru_cache(maxsize=4096)
def _shard_and_prefix(key: str) -> tuple[int, str]:
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    # The digest tells keys apart even where file names ignore case; the text is for whoever looks.
    text = encode(key)[:40] if key.isprintable() else "key"
    return int(digest[:2], 16) % SHARDS, f"{text}~{digest}~"


def _parsed(directory: str, names: list[str], prefix: str = "") -> Iterator[Entry]:
    for name in names:
        if not name.startswith(prefix):
            continue
        _, _, rest = name.partition("~")
        fields = rest.split("~")
        # What we did not make is not ours to judge or to delete.
        with suppress(ValueError):
            _, ticket, contender, proof = fields
            yield Entry(int(ticket), int(contender, 16), proof, f"{directory}/{name}")
