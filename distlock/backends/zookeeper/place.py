"""A place in the line for one lock: one node of ours."""

from __future__ import annotations

from dataclasses import dataclass

from distlock.backends.base import Ask, Held
from distlock.backends.zookeeper.nodes import first_number_of

#: The net under a lost hint, seconds. Watches are reliable, but one before us may hang.
POLL = 1.0


@dataclass(slots=True, eq=False)
class Place:
    ask: Ask
    #: The lock's node, and the name of ours below it.
    parent: str
    name: str
    #: The session that it lives and dies with.
    owner: int
    #: The transaction that made it.
    czxid: int
    #: When the engine last asked for it, or renewed it.
    seen: float
    #: It is the first, and nobody may send it away any more.
    held: bool = False
    #: The node that was first when we came.
    first: str = ""
    #: The connection and the node that we watch; whether nobody else was before us; whether it is gone.
    watched: tuple[int, str] = (0, "")
    second: bool = False
    called: bool = False
    #: The node that seems to hang at the head of the line, and since when.
    suspect: str = ""
    suspect_since: float = 0.0

    @property
    def path(self) -> str:
        return f"{self.parent}/{self.name}"

    def lapsed(self, now: float) -> bool:
        """Nobody here has cared for it for so long that it has to go, although our session lives on."""
        life = self.ask.ttl if self.held else max(self.ask.ttl, 4 * POLL)
        return now > self.seen + life

    def hold(self) -> Held:
        self.held = True
        return Held(first_number_of(self.czxid, self.ask.span), self.ask.ttl)
