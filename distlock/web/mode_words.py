"""What ``mode=`` and ``limit=`` of a guard may be, and what they ask of its lock service."""

from __future__ import annotations

from distlock.backends.base import refuse_lacking
from distlock.errors import ConfigurationError
from distlock.modes import EXCLUSIVE, PERMIT, READ, Mode
from distlock.numbers import check_limit
from distlock.web.settings.aliases import AliasSettings

_MODES: dict[object, Mode] = {"exclusive": EXCLUSIVE, "shared": READ}
#: The capability that each mode needs of the backend.
_CAPABILITIES = {READ: "read", PERMIT: "permits"}


def check_mode(mode: object, limit: object, fence: object, batch: int | None) -> Mode:
    """Return the mode of a guard with these options. Raises `ConfigurationError` for contradictions."""
    if not isinstance(mode, str) or mode not in _MODES:
        raise ConfigurationError(f"mode={mode!r} has to be 'exclusive' or 'shared'.")
    found = _MODES[mode]
    if limit is not None:
        if found == READ:
            raise ConfigurationError(
                f'mode="shared" stands beside limit={limit!r}, and any number of readers may share a lock: '
                "leave one of both out."
            )
        check_limit(limit)
        if fence:
            raise ConfigurationError(
                f"fence={fence!r} stands beside limit={limit}, and several calls at once are in no order "
                "that a fence could keep. Leave fence= out, or fence a lock inside."
            )
        found = PERMIT
    if batch is not None and found != EXCLUSIVE:
        word = 'mode="shared"' if found == READ else f"limit={limit}"
        raise ConfigurationError(
            f"batch={batch} stands beside {word}: a batch is for requests that wait for each other, and "
            "these run at once. Leave batch= out."
        )
    return found


def refuse_unable(settings: AliasSettings, mode: Mode, wish: str) -> None:
    """Raise `ConfigurationError` if the backend of *settings* can't do what a guard was told.

    *wish*: the guard, as the user wrote it.
    """
    if (capability := _CAPABILITIES.get(mode)) is not None:
        refuse_lacking(settings.scheme, settings.capabilities, capability, wish)
