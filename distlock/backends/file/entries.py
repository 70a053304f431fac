"""The entries of a queue, and which of them may take the lock. An entry is a file whose name says everything.

The name is ``<key>~<digest>~<ticket>~<contender>~<proof><mode>~<state>``. Older versions don't look at the
mode: to them a reader is an exclusive contender.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain, takewhile
from typing import NamedTuple

from distlock.backends.base import EXCLUSIVE, PERMIT, READ, LockRequest, Mode
from distlock.backends.file.record_locks import SHARDS, contender_of, name_of
from distlock.names import encode

_WAITS, _HELD = "waits", "holds"
#: The state of a hold whose first fence is not its ticket. The fence follows.
_RAISED = "holds-"
#: The mode of a contender for permits: how many it wants, and the limit.
_PERMITS = re.compile(r"-([0-9]{1,19})of([0-9]{1,19})")


class Wants(NamedTuple):
    """The mode and the permits that an entry requests."""

    #: The text behind the proof in the file's name.
    text: str
    mode: Mode
    #: For a `PERMIT`: how many it wants, and the limit.
    permits: int = 0
    limit: int = 0


class QueueEntry(NamedTuple):
    """One contender in the queue of one key."""

    ticket: int
    contender: int
    #: A digest of the request's token. The token itself is in no file.
    proof: str
    wants: Wants
    #: Whether it has taken the lock. Waiters may not delete it then.
    held: bool
    #: The folder of the key's shard.
    folder: str
    #: The name of the file.
    name: str

    @classmethod
    def newcomer(cls, request: LockRequest, contender: int) -> QueueEntry:
        """Return the entry of a contender that is about to join a queue. It has no ticket and no file yet."""
        folder = spot_of(request.key).folder
        return cls(0, contender, proof_of(request.token), wants_of(request), False, folder, "")

    @property
    def path(self) -> str:
        """The file's path below the directory of the queues."""
        return f"{self.folder}/{self.name}"

    @property
    def number(self) -> int:
        """The first fence of its hold: its ticket, unless the fence was raised or the hold downgraded."""
        raised = self.name.rpartition("~")[2].removeprefix(_RAISED)
        return int(raised) if raised.isdigit() else self.ticket

    @property
    def sign(self) -> str:
        """The text that notifies this entry: see `notifications.send`."""
        return f"{self.proof}{self.wants.text}"

    def joined(self, spot: Spot, ticket: int, held: bool) -> QueueEntry:
        """Return the entry with its *ticket* and its file's name. *held*: whether it has the lock at once."""
        # Both states have the same length, so a rename does not fail for a full directory.
        name = f"{spot.prefix}{ticket:016d}~{name_of(self.contender)}~{self.sign}~{_HELD if held else _WAITS}"
        return self._replace(ticket=ticket, held=held, name=name)

    def holding(self, number: int | None = None) -> QueueEntry:
        """Return the entry as a holder; *number* is its first fence, if that is not its ticket."""
        state = _HELD if number is None else f"{_RAISED}{number}"
        return self._replace(held=True, name=f"{self.name.rsplit('~', 2)[0]}~{self.sign}~{state}")

    def reading(self, number: int) -> QueueEntry:
        """Return the entry of an exclusive holder, changed into a reader's with the fence *number*."""
        return self._replace(wants=READING).holding(number)


class Spot(NamedTuple):
    """The place of the entries of one key."""

    shard: int
    folder: str
    prefix: str


def proof_of(token: str) -> str:
    return hashlib.blake2b(token.encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=1024)
def wants(text: str) -> Wants:
    """Parse *text*, the mode in a name. An unknown text, of a newer version, counts as exclusive."""
    if text == READING.text:
        return READING
    if permits := _PERMITS.fullmatch(text):
        return Wants(text, PERMIT, int(permits[1]), int(permits[2]))
    return Wants(text, EXCLUSIVE)


#: An exclusive contender.
WHOLE = Wants("", EXCLUSIVE)
READING = Wants("-read", READ)


def wants_of(request: LockRequest) -> Wants:
    """Return what *request* wants."""
    if request.mode == PERMIT:
        return wants(f"-{request.permits}of{request.limit}")
    return READING if request.mode == READ else WHOLE


@lru_cache(maxsize=4096)
def spot_of(key: str) -> Spot:
    """Return the place of the entries of *key*."""
    digest = hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    # The digest tells keys apart even if file names ignore case. The text is for people.
    text = encode(key)[:40] if key.isprintable() else "key"
    shard = int(digest[:2], 16) % SHARDS
    return Spot(shard, f"{shard:02x}", f"{text}~{digest}~")


def spot_of_entry(entry: QueueEntry) -> Spot:
    return Spot(int(entry.folder, 16), entry.folder, "~".join(entry.name.split("~")[:2]) + "~")


def parsed(folder: str, names: list[str], prefix: str = "") -> Iterator[QueueEntry]:
    """Yield the entries of those *names* in *folder* that begin with *prefix*. Skip other programs' files."""
    for name in names:
        if name.startswith(prefix) and (entry := _entry(folder, name)) is not None:
            yield entry


# Entries are cached, because the same names are parsed again and again.
@lru_cache(maxsize=4096)
def _entry(folder: str, name: str) -> QueueEntry | None:
    # Another program's file is no entry.
    with suppress(ValueError):
        _, _, ticket, contender, sign, state = name.split("~")
        if state in {_WAITS, _HELD} or state.startswith(_RAISED):
            proof, dash, text = sign.partition("-")
            wanted = wants(f"-{text}") if dash else WHOLE
            return QueueEntry(
                int(ticket), contender_of(contender), proof, wanted, state != _WAITS, folder, name
            )
    return None


def front(living: Iterable[QueueEntry]) -> Iterator[QueueEntry]:
    """Yield, in order, the entries of *living* that have the lock or may take it."""
    living = iter(living)
    first = next(living, None)
    if first is None:
        return
    if first.wants.mode == PERMIT:
        yield from _permitted([first, *living])
        return
    yield first
    if first.wants.mode == READ:
        yield from takewhile(lambda entry: entry.wants.mode == READ, living)


def is_front(last: QueueEntry, living: Iterable[QueueEntry]) -> bool:
    """Return whether *last*, behind the *living*, may take the lock."""
    return any(entry is last for entry in front(chain(living, (last,))))


def other_limit(mine: QueueEntry, line: Iterable[QueueEntry]) -> int:
    """Return a limit in *line* that differs from the limit of *mine*; 0: there is none, or no permits."""
    if mine.wants.mode != PERMIT:
        return 0
    limits = (entry.wants.limit for entry in line if entry.wants.mode == PERMIT)
    return next((limit for limit in limits if limit != mine.wants.limit), 0)


def _permitted(line: list[QueueEntry]) -> Iterator[QueueEntry]:
    out = sum(entry.wants.permits for entry in line if entry.held)
    room = True
    for entry in line:
        if not entry.held:
            # A caller that wants fewer permits does not overtake a waiter, either.
            room = room and out + entry.wants.permits <= entry.wants.limit
            if not room:
                continue
            out += entry.wants.permits
        yield entry
