"""The grant of several locks, perhaps of several lock services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distlock.grant import Fence, Grant
from distlock.multi_grant import MultiGrant


class JointGrant(MultiGrant):
    """What `multi_lock` gives: the grants of all its locks, or of none."""

    __slots__ = ("grants",)

    def __init__(self, grants: Sequence[Grant], taken: Sequence[Grant]) -> None:
        """*grants*: in the order in which the locks were given. *taken*: in that in which they were taken."""
        super().__init__(taken)
        #: Those of the locks, in the order in which `multi_lock` was given them.
        self.grants = tuple(grants)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for grant in self.grants for name in grant.names)

    @property
    def fences(self) -> Mapping[str, Fence]:
        """The fence of each name. Raises `AttributeError` where two prefixes have one name: see `grants`."""
        names = self.names
        if len(set(names)) < len(names):
            raise AttributeError(
                "Two of the locks have the same name under other prefixes, and each has its fence: use "
                "grant.grants[0].fence, in the order in which multi_lock() was given them."
            )
        return {name: fence for grant in self.grants for name, fence in grant.fences.items()}

    @property
    def domain(self) -> str:
        """Raises `AttributeError`: each of `grants` has its own."""
        raise AttributeError("The locks may have several prefixes: use grant.grants[0].domain.")

    @property
    def unnumbered_by(self) -> str | None:
        return next((told for grant in self.grants if (told := grant.unnumbered_by) is not None), None)

    def _vouch(self) -> None:
        super()._vouch()
        for grant in self._grants:
            grant._vouch()

    def of(self, domain: str, name: str) -> Grant:
        """That of the lock *name* under the prefix *domain*."""
        return next(one for one in self.grants if one.domain == domain and name in one.names)
