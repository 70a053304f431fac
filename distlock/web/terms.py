"""What a guard works with, once the words of its decorator meet the settings of its alias."""

from __future__ import annotations

from dataclasses import dataclass

from distlock.backends.base import refuse_lacking
from distlock.errors import ConfigurationError
from distlock.locks.client import Locks
from distlock.modes import PERMIT
from distlock.terms import Terms
from distlock.web.decorator import Told
from distlock.web.mode_words import refuse_unable
from distlock.web.settings.aliases import AliasSettings


@dataclass(frozen=True, slots=True)
class GuardTerms:
    """The options that the calls of one guard share as long as the settings are the same."""

    client: Locks
    lock: Terms
    max_names: int
    #: The database that is fenced, in the framework's words; None: none.
    fenced_in: str | None
    #: The database whose rows replace the locks while the lock service is away; None: nothing runs then.
    standby: Locks | None


def fence_for(settings: AliasSettings, told: Told) -> bool | str:
    """The database that a guard fences, in the framework's words: True is the default one, False none.

    Raises `ConfigurationError` if the guard was told what its backend can't do.
    """
    refuse_unable(settings, told.mode, str(told))
    if told.mode == PERMIT:
        return False
    if not settings.row_is_lock:
        if told.fence:
            refuse_lacking(settings.scheme, settings.capabilities, "fence", str(told))
        return settings.fence if told.fence is None else told.fence
    for word in ("ttl", "max_hold"):
        if getattr(told, word) is not None:
            raise ConfigurationError(
                f"{told}: DISTLOCK[{settings.alias!r}] has the backend 'database', where a lock has no "
                f"{word}: it ends with its transaction. Leave {word}= out."
            )
    if told.fence is None or told.fence is True or told.fence == settings.fence:
        return settings.fence
    raise ConfigurationError(
        f"{told}: DISTLOCK[{settings.alias!r}] has the backend 'database', where the fence's row is the "
        "lock: leave fence= out. Another database is another alias, with its name as LOCATION."
    )
