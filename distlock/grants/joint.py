"""Grants of several names: of one lock, or of a `multi_lock`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from distlock.engine.sans_io import Commands
from distlock.grants.grant import Fence, Grant
from distlock.terms import EXCLUSIVE, Mode


class MultiGrant(Grant):
    """A grant of several names that were acquired together."""

    __slots__ = ("_grants",)

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._grants = tuple(grants)

    def __repr__(self) -> str:
        return f"<Grant of {', '.join(map(repr, self._grants))}>"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(grant.names[0] for grant in self._grants)

    @property
    def since(self) -> float:
        return max(grant.since for grant in self._grants)

    @property
    def fences(self) -> Mapping[str, Fence]:
        return {grant.names[0]: grant.fence for grant in self._grants}

    @property
    def namespace(self) -> str:
        return self._grants[0].namespace

    @property
    def holder_ids(self) -> Mapping[str, str]:
        return {name: holder_id for grant in self._grants for name, holder_id in grant.holder_ids.items()}

    @property
    def mode(self) -> Mode:
        # A downgrade may have failed after some of the names. The other names are still exclusive then.
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

    def raise_fence(self, name: str, number: int) -> bool:
        return any(grant.raise_fence(name, number) for grant in self._grants if name in grant.names)

    def _keep_if_killed(self) -> None:
        for grant in self._grants:
            grant._keep_if_killed()

    def _downgrade(self) -> Commands[None]:
        for grant in self._grants:
            yield from grant._downgrade()

    def _release(self, until: float = math.inf) -> Commands[None]:
        # Names are released in the reverse of the order in which they were taken.
        rest = list(self._grants)
        try:
            while rest:
                yield from rest[-1]._release(until)
                rest.pop()
        except BaseException as error:
            for grant in rest:
                grant._abandon(error)
            raise

    def _abandon(self, error: BaseException) -> None:
        for grant in self._grants:
            grant._abandon(error)


class JointGrant(MultiGrant):
    """The grant of a `multi_lock`: one grant for each of its locks."""

    __slots__ = ("grants",)

    def __init__(self, grants: Sequence[Grant], taken: Sequence[Grant]) -> None:
        """Join *grants*. *taken*: the same grants, in the order in which the locks were acquired."""
        super().__init__(taken)
        #: The grants of the locks, in the order of the arguments of `multi_lock`.
        self.grants = tuple(grants)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for grant in self.grants for name in grant.names)

    @property
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name. Raises `AttributeError` if two prefixes have one name: see `grants`."""
        names = self.names
        if len(set(names)) < len(names):
            raise AttributeError(
                "Two of the locks have the same name under other prefixes, and each has its fence: use "
                "grant.grants[0].fence, in the order in which multi_lock() was given them."
            )
        return {name: fence for grant in self.grants for name, fence in grant.fences.items()}

    @property
    def namespace(self) -> str:
        """Raises `AttributeError`, because each of `grants` has its own namespace."""
        raise AttributeError("The locks may have several prefixes: use grant.grants[0].namespace.")

    @property
    def unnumbered_by(self) -> str | None:
        return next((told for grant in self.grants if (told := grant.unnumbered_by) is not None), None)

    def _vouch(self) -> None:
        super()._vouch()
        for grant in self._grants:
            grant._vouch()

    def of(self, namespace: str, name: str) -> Grant:
        """Return the grant of the lock *name* under the prefix *namespace*."""
        return next(one for one in self.grants if one.namespace == namespace and name in one.names)
