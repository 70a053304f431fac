"""Make threads change between the lines of a site's own code, so that a race shows where it can happen.

A view is over in less time than the interpreter gives to one thread: without this most races would be lost
unseen.
"""

from __future__ import annotations

import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

#: How many lines of one call are interrupted: a loop must not take for ever.
LINES = 500
#: Seconds, as short as the system has them: it is the change of threads that counts.
MOMENT = 1e-6

#: Python's own code, ours, and what is no file.
_OTHERS = (sysconfig.get_path("stdlib"), str(Path(__file__).parents[1]), "<")
_INSTALLED = ("/site-packages/", "/dist-packages/")


@contextmanager
def shaken() -> Iterator[None]:
    """In the block this thread gives way to others before each line of the site's own code.

    Not where a debugger or a coverage tool traces the thread: it has one place for that.
    """
    if sys.gettrace() is not None:
        yield
        return
    left = LINES

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if event == "line" and left > 0:
            left -= 1
            time.sleep(MOMENT)
        return line

    def call(frame: FrameType, event: str, arg: Any) -> Any:
        return line if left > 0 and is_the_sites(frame) else None

    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(None)


def is_the_sites(frame: FrameType) -> bool:
    """Whether it runs neither Python's own code nor that of an installed package."""
    file = frame.f_code.co_filename
    return not file.startswith(_OTHERS) and not any(folder in file for folder in _INSTALLED)
