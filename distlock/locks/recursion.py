"""What the owners of re-entrant locks are inside of, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distlock.grants.grant import Grant
from distlock.grants.joint import MultiGrant
from distlock.modes import EXCLUSIVE
from distlock.owner import Owner


@dataclass(frozen=True, slots=True)
class Entered:
    """How often its owner is inside one name."""

    grant: Grant
    #: The names that were requested together with it.
    whole: Grant
    count: int = 1
    #: The same for a lock that was lost since, in a block further out.
    before: Entered | None = None

    @property
    def is_held(self) -> bool:
        return not self.grant.released and not self.grant.lost

    @property
    def is_written(self) -> bool:
        """It is held, and nobody else reads: it was not downgraded."""
        return self.is_held and self.grant.mode == EXCLUSIVE

    def unreleased(self) -> Entered | None:
        """This one, or the next one further out whose end is still to come."""
        one: Entered | None = self
        while one is not None and one.grant.released:
            one = one.before
        return one


def together(entered: list[Entered]) -> Grant:
    """One grant of all of them: that which was asked for, where it has no other name."""
    whole = entered[0].whole
    if len(whole.names) == len(entered) and all(one.whole is whole for one in entered):
        return whole
    return entered[0].grant if len(entered) == 1 else MultiGrant([one.grant for one in entered])


#: The recursion of one owner, by name. It is replaced, never changed, so that no interrupt finds it halfway.
Names = Mapping[str, Entered]

#: It belongs to the namespace: two objects of the same names are the same lock.
Inside = dict[Owner, Names]
