"""The grant of a semaphore's permits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never

from distlock.engine.name_grant import NameGrant
from distlock.errors import ConfigurationError
from distlock.grant import Fence


class PermitGrant(NameGrant):
    """It has no fence: several hold permits at once, and none of them comes after the others."""

    __slots__ = ()

    def __repr__(self) -> str:
        of = f"{self._terms.permits} of {self._terms.limit}"
        return f"<Grant {self.name!r} permits={of} {self._state()}>"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def fence(self) -> Fence:
        self._refuse()

    @property
    def fences(self) -> Mapping[str, Fence]:
        self._refuse()

    @property
    def seals(self) -> Mapping[str, str]:
        self._refuse()

    def shown(self) -> str:
        return f"semaphore {self.name!r}"

    def _refuse(self) -> Never:
        raise ConfigurationError(
            f"The semaphore {self.name!r} has no fence, for several may be inside at once: take a lock where "
            "a transaction has to pass one."
        )
