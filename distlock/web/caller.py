"""The line that an error is about, where only the stack knows it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Never, Unpack

from distlock.errors import ConfigurationError
from distlock.web.decorator import Told, Words, told_at
from distlock.web.names.templates import NameSource

#: The packages between a line of the site and the raise: ours, and what calls them.
_BETWEEN = frozenset({"distlock", "django_distlock", "flask_distlock", *sys.stdlib_module_names})


def this_code() -> str:
    """The code that has called distlock, with its file and line if this thread's stack has it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return "This code" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno}: this code"


def told_here(names: Sequence[NameSource], unknown: Mapping[str, Never], **words: Unpack[Words]) -> Told:
    """Return the options that the caller's caller gave its decorator. Errors of `Told` get that line's place.

    *unknown*: words that its signature does not have. `Told` says what to write in their place.
    """
    line = sys._getframe(2)
    try:
        return Told(names, **words, **unknown)
    except ConfigurationError as error:
        place = f"{line.f_globals.get('__name__', '?')}, line {line.f_lineno}"
        raise told_at(line, ConfigurationError(f"{place}: {error}")) from None
    except TypeError as error:
        raise told_at(line, error) from None
