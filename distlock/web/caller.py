"""The line that an error is about, where only the stack knows it."""

from __future__ import annotations

import sys
from types import FrameType

#: What stands between a line of the site and the raise: our packages, and what drives them.
_BETWEEN = frozenset({"distlock", "django_distlock", "flask_distlock", *sys.stdlib_module_names})


def this_code() -> str:
    """The code that has called distlock, with its file and line if this thread's stack has it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return "This code" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno}: this code"
