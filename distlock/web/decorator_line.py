"""The line of a decorator whose words can't work: what it decorates is not known yet."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told, Words
from distlock.web.names.templates import NameSource


def told_here(names: Sequence[NameSource], words: Words) -> Told:
    """What the caller's caller has told its decorator. Raises what `Told` raises, with that line's place."""
    try:
        return Told(names, **words)
    except ConfigurationError as error:
        line = sys._getframe(2)
        place = f"{line.f_globals.get('__name__', '?')}, line {line.f_lineno}"
        raise ConfigurationError(f"{place}: {error}") from None
