"""A file in a line: its name says whose it is, since when, what it wants, and whether it has that.

A process of an older version takes the file of a reader for that of one who wants the whole lock: what is
wanted stands behind the proof, which it does not look into.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode
from distlock.backends.file.record_locks import SHARDS, contender_of, name_of
from distlock.names import encode

_WAITS, _HELD = "waits", "holds"
#: Before the number of a hold whose ticket is not its number.
_LIFTED = "holds-"
#: Behind the proof of one that wants permits: how many, and of how many.
_PERMITS = re.compile(r"-([0-9]{1,19})of([0-9]{1,19})")


class Wants(NamedTuple):
    """What an entry wants of its key."""

    #: As it stands in the name, behind the proof.
    text: str
    mode: Mode
    #: Of a `PERMIT`: how many it wants, and how many there are.
    permits: int = 0
    limit: int = 0


class Entry(NamedTuple):
    """One contender's standing in the line of one key."""

    ticket: int
    contender: int
    #: A digest of the ask's token: the secret itself is written nowhere.
    proof: str
    wants: Wants
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

    @property
    def sign(self) -> str:
        """Names it in a hint."""
        return f"{self.proof}{self.wants.text}"


class Newcomer(NamedTuple):
    """A contender that wants to stand in line."""

    contender: int
    proof: str
    span: int
    wait: bool
    wants: Wants
    #: So that it can be asked as an entry is whether it is its turn.
    held: bool = False


class Spot(NamedTuple):
    """Where the entries of one key lie."""

    shard: int
    folder: str
    prefix: str


def proof_of(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)
def wants(text: str) -> Wants:
    """What *text* behind a proof says. What a newer version has written there wants the whole lock."""
    if text == READING.text:
        return READING
    if permits := _PERMITS.fullmatch(text):
        return Wants(text, PERMIT, int(permits[1]), int(permits[2]))
    return Wants(text, EXCLUSIVE)


#: The whole lock.
WHOLE = Wants("", EXCLUSIVE)
READING = Wants("-read", READ)


def wants_of(request: LockRequest) -> Wants:
    """What *request* wants."""
    if request.mode == PERMIT:
        return wants(f"-{request.permits}of{request.limit}")
    return READING if request.mode == READ else WHOLE


def spot_of(key: str) -> Spot:
    """Where the entries of *key* lie."""
    shard, prefix = _shard_and_prefix(key)
    return Spot(shard, f"{shard:02x}", prefix)


def spot_of_entry(entry: Entry) -> Spot:
    return Spot(int(entry.folder, 16), entry.folder, "~".join(entry.name.split("~")[:2]) + "~")


def joining(spot: Spot, ticket: int, mine: Newcomer, held: bool) -> Entry:
    """The entry of *mine*. *held*: it has what it wants at once."""
    sign = f"{mine.proof}{mine.wants.text}"
    name = _name(spot, ticket, mine.contender, sign, _HELD if held else _WAITS)
    return Entry(ticket, mine.contender, mine.proof, mine.wants, held, spot.folder, name)


def holding(spot: Spot, entry: Entry, number: int | None = None) -> Entry:
    """*entry* when it has what it wants; *number*: of its hold, where that is not its ticket."""
    state = _HELD if number is None else f"{_LIFTED}{number}"
    name = _name(spot, entry.ticket, entry.contender, entry.sign, state)
    return entry._replace(held=True, name=name)


def parsed(folder: str, names: list[str], prefix: str = "") -> Iterator[Entry]:
    """The entries of *folder*, of those of its *names* that begin with *prefix*."""
    for name in names:
        if name.startswith(prefix) and (entry := _entry(folder, name)) is not None:
            yield entry


# The same names are looked at again and again, and a thousand permits are as many.
@lru_cache(maxsize=4096)
def _entry(folder: str, name: str) -> Entry | None:
    # What we did not make is not ours to judge or to delete.
    with suppress(ValueError):
        _, _, ticket, contender, sign, state = name.split("~")
        if state in {_WAITS, _HELD} or state.startswith(_LIFTED):
            proof, dash, text = sign.partition("-")
            wanted = wants(f"-{text}") if dash else WHOLE
            return Entry(int(ticket), contender_of(contender), proof, wanted, state != _WAITS, folder, name)
    return None


def _name(spot: Spot, ticket: int, contender: int, sign: str, state: str) -> str:
    # Of one length, so that to take the lock needs no more space in the directory.
    return f"{spot.prefix}{ticket:016d}~{name_of(contender)}~{sign}~{state}"


@lru_cache(maxsize=4096)
def _shard_and_prefix(key: str) -> tuple[int, str]:
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    # The digest tells keys apart even where file names ignore case; the text is for people who look.
    text = encode(key)[:40] if key.isprintable() else "key"
    return int(digest[:2], 16) % SHARDS, f"{text}~{digest}~"
