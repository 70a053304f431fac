"""A grant of a framework's face: the one of the lock service, and what is done at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping

from distlock.engine.steps import Steps
from distlock.grant import Fence, Grant
from distlock.modes import Mode


class GrantWrapper(Grant):
    """*grant* as it is, for clients that do more at its end."""

    __slots__ = ("_grant",)

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def __repr__(self) -> str:
        return repr(self._grant)

    @property
    def fences(self) -> Mapping[str, Fence]:
        return self._grant.fences

    @property
    def domain(self) -> str:
        return self._grant.domain

    @property
    def seals(self) -> Mapping[str, str]:
        return self._grant.seals

    @property
    def mode(self) -> Mode:
        return self._grant.mode

    @property
    def released(self) -> bool:
        return self._grant.released

    @property
    def lost(self) -> bool:
        return self._grant.lost

    @property
    def why_lost(self) -> str | None:
        return self._grant.why_lost

    @property
    def release_requested(self) -> bool:
        return self._grant.release_requested

    @property
    def held_by_transaction(self) -> bool:
        return self._grant.held_by_transaction

    @property
    def unnumbered_by(self) -> str | None:
        return self._grant.unnumbered_by

    def remaining(self) -> float:
        return self._grant.remaining()

    def check(self) -> None:
        self._grant.check()

    def lift(self, name: str, number: int) -> bool:
        return self._grant.lift(name, number)

    def _downgrade(self) -> Steps[None]:
        return self._grant._downgrade()

    def _is_followed(self) -> bool:
        return self._grant._is_followed()

    def _take_along(self, batch: object) -> bool:
        return self._grant._take_along(batch)

    def _join(self, first: Grant) -> None:
        self._grant._join(first)

    def _note_commit(self) -> None:
        self._grant._note_commit()

    def _release(self, until: float = math.inf) -> Steps[None]:
        return self._grant._release(until)

    def _let_go(self, error: BaseException) -> None:
        self._grant._let_go(error)
