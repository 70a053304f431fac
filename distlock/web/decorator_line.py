"""The line of a decorator whose words can't work: what it decorates is not known yet."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Never, Unpack

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told, Words
from distlock.web.names.templates import NameSource


def told_here(names: Sequence[NameSource], unknown: Mapping[str, Never], **words: Unpack[Words]) -> Told:
    """What the caller's caller has told its decorator. Raises what `Told` raises, with that line's place.

    *unknown*: words that its signature does not have. `Told` says what to write in their place.
    """
    try:
        return Told(names, **words, **unknown)
    except ConfigurationError as error:
        line = sys._getframe(2)
        place = f"{line.f_globals.get('__name__', '?')}, line {line.f_lineno}"
        raise ConfigurationError(f"{place}: {error}") from None
