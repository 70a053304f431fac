"""The callers that came through one lock object, and the ``with`` blocks that it is entered by."""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from distlock.engine.steps import Gate
from distlock.grant import Grant
from distlock.modes import READ
from distlock.owner import Owner

if TYPE_CHECKING:
    from distlock.namespace import Namespace


@dataclass(slots=True, eq=False)
class Entry:
    """One caller's way into a lock: an ``acquire()``, or a ``with`` block."""

    namespace: Namespace
    names: tuple[str, ...]
    owner: Owner
    #: It marks all that the engine does for this entry.
    gate: Gate
    #: What the lock's own books had of the owner before.
    before: Any = None
    grant: Grant | None = None
    #: Whose code has entered the block. A generator is another frame than the code that drives or closes it.
    frame: FrameType | None = None
    #: What its end found, and raises unless the block has raised something itself.
    trouble: Exception | None = None

    @property
    def reads(self) -> bool:
        """Whether others may read under the lock, too."""
        return self.grant is not None and self.grant.mode == READ

    @property
    def is_open(self) -> bool:
        return self.grant is not None and not self.grant.released and not self.grant.lost


class Entries:
    """The books of one `Lock`. Threads and tasks share it; its own thread may be interrupted anywhere."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        #: Those that have a grant: for `release` and ``with``.
        self._out: list[Entry] = []
        #: The ``with`` blocks that are being run, the oldest first.
        self.entered: list[Entry] = []

    def granted(self, entry: Entry) -> None:
        """*entry* has its grant."""
        with self._namespace.books:
            # Grants that were released by themselves need not be remembered.
            self._out = [*self._unreleased(), entry] if self._out else [entry]

    def any_open(self) -> bool:
        """Whether a grant is out, and not lost."""
        return any(entry.is_open for entry in self._out)

    def latest(self, owner: Owner) -> Entry | None:
        """What `release` gives back: the latest of *owner*, else the oldest one. It changes nothing."""
        with self._namespace.books:
            out = self._unreleased()
            mine = (one for one in reversed(out) if one.owner == owner)
            return next(mine, next(iter(out), None))

    def take_out(self, entry: Entry) -> bool:
        """*entry* is being released. False if somebody did so before."""
        with self._namespace.books:
            try:
                self._out.remove(entry)
            except ValueError:
                return False
        return True

    def grant_of(self, block: Entry) -> Grant | None:
        """What the end of *block* gives back: its owner's latest, for the body may have exchanged it."""
        if self._out == [block]:
            return block.grant
        with self._namespace.books:
            others = [entry for entry in self.entered if entry is not block]
            out = [entry for entry in self._unreleased() if entry not in others]
        return next((entry.grant for entry in reversed(out) if entry.owner == block.owner), block.grant)

    def forget(self, block: Entry) -> None:
        """*block* has ended."""
        with self._namespace.books:
            if block in self.entered:
                self.entered.remove(block)
            self._out = self._unreleased() if self._out != [block] else []

    def _unreleased(self) -> list[Entry]:
        return [entry for entry in self._out if entry.grant is not None and not entry.grant.released]
