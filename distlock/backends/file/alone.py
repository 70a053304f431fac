"""Where nobody has come since we looked: then the folder of a shard need not be read again.

A contender that joins a line takes a ticket before, as the only writer of the shard. So nobody has joined one
of its lines while the counter of the tickets stands where we left it.
"""

from __future__ import annotations

#: In the place of our ticket: our entry has left as well.
_NOBODY = 0


class Alone:
    """What one contender knows of the shards that it was alone in."""

    def __init__(self) -> None:
        #: By shard: the ticket of our entry, and where the counter stood when that was the only one.
        self._last: dict[int, tuple[int, int]] = {}

    def came(self, shard: int, ticket: int, counter: int) -> None:
        """Our entry came into an empty folder; *counter* is what its ticket has left. Only as the writer."""
        self._last[shard] = ticket, counter

    def left(self, shard: int, ticket: int, counter: int) -> bool:
        """Our entry is gone. Whether nobody has joined since it came."""
        if self._last.get(shard) != (ticket, counter):
            return False
        # Another thread that has come in between took a ticket: then what is written here is never true.
        self._last[shard] = _NOBODY, counter
        return True

    def empty(self, shard: int, counter: int) -> bool:
        """Whether the folder is empty for certain. Only as the writer."""
        return self._last.get(shard) == (_NOBODY, counter)
