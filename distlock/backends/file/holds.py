"""What one contender has in the lines: which entry each of its asks is, and the number of each hold.

The file of a hold gets another name when its number is lifted, and when it becomes a reader's. Other threads
may look for it or release it meanwhile: what they don't find by its name they look for in the line.
"""

from __future__ import annotations

from distlock.backends.base import LockRequest
from distlock.backends.file.entry import Entry, Spot, proof_of
from distlock.backends.file.line import Line


class Holds:
    """Of one contender. Threads share it."""

    def __init__(self, line: Line, contender: int) -> None:
        self._line = line
        self._contender = contender
        #: Our entries by token, and those of them that we know to have what they want.
        self.entries: dict[str, Entry] = {}
        self.held: dict[str, Entry] = {}
        #: The first number of each hold.
        self._numbers: dict[str, int] = {}

    def find(self, request: LockRequest, line: list[Entry]) -> Entry | None:
        """Our entry for *request* in *line*.

        A forked child knows its parent's tokens, and may not use them.
        """
        proof = proof_of(request.token)
        ours = (entry for entry in line if entry.contender == self._contender and entry.proof == proof)
        return next(ours, None)

    def own(self, request: LockRequest, spot: Spot) -> Entry | None:
        """The hold of *request*; None if it has none."""
        mine = self.held.get(request.token) or self.find(request, self._line.entries(spot))
        return mine if mine is not None and mine.held else None

    def holds(self, request: LockRequest, patience: float) -> bool:
        """Whether the hold is *request.token*'s, even if another thread asks."""
        mine = self.held.get(request.token)
        if mine is not None and self._line.there(mine):
            return True
        # Its file may have got another name just now.
        line = self._line.exact_entries(self._line.spot(request.key), patience)
        proof = proof_of(request.token)
        if any(entry.proof == proof and entry.held for entry in self._line.living(line)):
            return True
        self.drop(request.token)
        return False

    def is_broken(self) -> bool:
        """Whether somebody has taken one of our holds out of its line."""
        return not all(map(self._line.there, list(self.held.values())))

    def hold(self, request: LockRequest, spot: Spot, mine: Entry, patience: float) -> int:
        """It is our turn. Returns the hold's first number: its ticket, where that is not below the floor."""
        if request.token not in self._numbers:
            if mine.ticket <= (floor := self._line.floor(spot)):
                mine = self._line.lift(spot, mine, request.span, floor, patience) or mine
            self._numbers[request.token] = mine.ticket if mine.ticket > floor else mine.number
        self.entries[request.token] = self.held[request.token] = mine
        return self._numbers[request.token]

    def raise_fence(self, request: LockRequest, spot: Spot, number: int, patience: float) -> int | None:
        """Lift the hold of *request*, and all later ones, above *number*. Returns its first number.

        None if we have no such hold.
        """
        mine, lifted = self.held.get(request.token), self._numbers.get(request.token)
        if mine is None or lifted is None or lifted > number:
            return lifted
        raised = self._line.lift(spot, mine, request.span, number, patience)
        return self._renamed(request.token, raised) if raised is not None else None

    def downgrade(self, request: LockRequest, spot: Spot, mine: Entry, patience: float) -> bool:
        """Turn our hold into a reader's. False if it is gone."""
        reading = self._line.downgrade(spot, mine, request.span, patience)
        if reading is None:
            return False
        self._renamed(request.token, reading)
        return True

    def drop(self, token: str) -> None:
        """We have nothing of *token* any more."""
        self.entries.pop(token, None)
        self.held.pop(token, None)
        self._numbers.pop(token, None)

    def _renamed(self, token: str, mine: Entry) -> int:
        """Our hold of *token* is *mine* now. Returns its first number."""
        self.entries[token] = self.held[token] = mine
        self._numbers[token] = mine.number
        if not self._line.there(mine):
            # Another thread has released it meanwhile, or somebody has broken it.
            self.drop(token)
        return mine.number
