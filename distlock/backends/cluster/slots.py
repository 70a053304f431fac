"""Which node of a cluster has a key.

See https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.scripts import key_of
from distlock.errors import BackendUnavailable
from distlock.names import encode

SLOTS = 16384
#: The host of a node without a name, in a cluster with ``cluster-preferred-endpoint-type hostname``.
UNNAMED = "?"
_REDIRECTION = re.compile(r"MOVED (\d+) (.*):(\d+)")


class Endpoint(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def slot_of(key: str) -> int:
    """All keys of one lock have its encoded name as their hash tag."""
    return _slot(encode(key).encode())


def slot_of_command(command: bytes) -> int:
    """Return the slot of *command*, whose key has no hash tag."""
    return _slot(key_of(command))


def _slot(hashed: bytes) -> int:
    return binascii.crc_hqx(hashed, 0) % SLOTS


class Slots:
    """Slot -> primary, as far as is known. Threads share it: what is written is one step."""

    def __init__(self) -> None:
        self._places: dict[int, Endpoint] = {}

    def __getitem__(self, slot: int) -> Endpoint | None:
        return self._places.get(slot)

    def __setitem__(self, slot: int, place: Endpoint) -> None:
        self._places[slot] = place

    @property
    def primaries(self) -> set[Endpoint]:
        return set(self._places.values())

    def read(self, reply: Sequence[Any], asked: Endpoint) -> None:
        """Take in what ``CLUSTER SLOTS`` of the node *asked* says."""
        places: dict[int, Endpoint] = {}
        for first, last, primary, *_ in reply:
            host = _host_of(*primary) or asked.host
            places.update(dict.fromkeys(range(first, last + 1), Endpoint(host, primary[1])))
        self._places = places


def _host_of(host: bytes | None, _: int, __: bytes, beside: Sequence[bytes] = ()) -> str:
    """Empty where it is the one that we came by: a node that does not know its own leaves it out."""
    if host == UNNAMED.encode():
        host = dict(zip(beside[::2], beside[1::2], strict=False)).get(b"ip")
    return host.decode() if host else ""


def moved(error: BackendUnavailable, asked: Endpoint) -> tuple[int, Endpoint] | None:
    """The slot that the node *asked* has not, and who has it, if that is what *error* says."""
    found = _REDIRECTION.fullmatch(said(error))
    if found is None:
        return None
    slot, host, port = found.groups()
    return int(slot), Endpoint(host or asked.host, int(port))


def said(error: BackendUnavailable) -> str:
    """Return the server's answer in *error*, or "" if it has none."""
    return str(error.__cause__) if isinstance(error.__cause__, ReplyError) else ""
