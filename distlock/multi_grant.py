"""Several names granted as one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from distlock.engine.steps import Steps
from distlock.grant import Fence, Grant
from distlock.modes import EXCLUSIVE, Mode


class MultiGrant(Grant):
    """Several names granted as one: all of them, or none."""

    __slots__ = ("_grants",)

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = tuple(grants)

    def __repr__(self) -> str:
        return f"<Grant of {', '.join(map(repr, self._grants))}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(grant.names[0] for grant in self._grants)

    @property
    def fences(self) -> Mapping[str, Fence]:
        return {grant.names[0]: grant.fence for grant in self._grants}

    @property
    def domain(self) -> str:
        return self._grants[0].domain

    @property
    def seals(self) -> Mapping[str, str]:
        return {name: seal for grant in self._grants for name, seal in grant.seals.items()}

    @property
    def mode(self) -> Mode:
        # A downgrade that failed between two names has left some of them a writer's.
        return EXCLUSIVE if any(grant.mode == EXCLUSIVE for grant in self._grants) else self._grants[0].mode

    @property
    def released(self) -> bool:
        return all(grant.released for grant in self._grants)

    @property
    def lost(self) -> bool:
        return any(grant.lost for grant in self._grants)

    @property
    def why_lost(self) -> str | None:
        return next((grant.why_lost for grant in self._grants if grant.lost), None)

    @property
    def release_requested(self) -> bool:
        return any(grant.release_requested for grant in self._grants)

    @property
    def parts(self) -> Mapping[str, Grant]:
        return {grant.names[0]: grant for grant in self._grants}

    @property
    def unnumbered_by(self) -> str | None:
        return self._grants[0].unnumbered_by

    def remaining(self) -> float:
        return min(grant.remaining() for grant in self._grants)

    def check(self) -> None:
        for grant in self._grants:
            grant.check()

    def lift(self, name: str, number: int) -> bool:
        return any(grant.lift(name, number) for grant in self._grants if name in grant.names)

    def _downgrade(self) -> Steps[None]:
        for grant in self._grants:
            yield from grant._downgrade()

    def _release(self, until: float = math.inf) -> Steps[None]:
        # The reverse of the order in which they were taken.
        rest = list(self._grants)
        try:
            while rest:
                yield from rest[-1]._release(until)
                rest.pop()
        except BaseException as error:
            for grant in rest:
                grant._let_go(error)
            raise

    def _let_go(self, error: BaseException) -> None:
        for grant in self._grants:
            grant._let_go(error)
