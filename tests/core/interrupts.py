"""A signal handler at every instruction of our own code at which Python may run one.

CPython runs handlers after a call has returned, at the start of a function and when a loop goes back (see
https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers), and nowhere else: so not
between the end of a ``with`` block and its ``__exit__``.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import distlock

OURS = str(Path(distlock.__file__).parent)
_CHECKS = {"RESUME", "JUMP_BACKWARD"}


class Interrupted(BaseException):
    """What the signal handler raises."""


@functools.cache
def _points(code: CodeType) -> frozenset[int]:
    """The offsets in *code* before which a handler may have run."""
    found = set()
    instructions = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    table = _ranges(code)
    for before, after in itertools.pairwise(instructions):
        checks = before.opname in _CHECKS or before.opname.startswith("CALL")
        # What is raised by a call belongs to the call: where the next instruction has other handlers, an
        # exception raised there says nothing of one that is raised here.
        if checks and _handler(table, before.offset) == _handler(table, after.offset):
            found.add(after.offset)
    return frozenset(found)


def _ranges(code: CodeType) -> list[tuple[int, int, int]]:
    return [(one.start, one.end, one.target) for one in dis._parse_exception_table(code)]  # type: ignore[attr-defined]


def _handler(table: list[tuple[int, int, int]], offset: int) -> int | None:
    return next((target for start, end, target in table if start <= offset < end), None)


def _interrupt() -> None:
    raise Interrupted


class Tracer:
    """Calls *handler* at the point *number* of those that the running thread comes by; counts them.

    *files*: of ours, where those points are. None: everywhere.
    """

    def __init__(
        self,
        number: int | None = None,
        handler: Callable[[], None] = _interrupt,
        files: tuple[str, ...] | None = None,
    ) -> None:
        self.number = number
        self.handler = handler
        self._files = tuple(f"{OURS}/{file}" for file in files) if files else (OURS,)
        self.count = 0
        self.where = ""

    def __enter__(self) -> Tracer:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exc_info: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        # What is raised in a finaliser reaches nobody: Python prints it, and goes on.
        if not frame.f_code.co_filename.startswith(self._files) or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event == "opcode" and frame.f_lasti in _points(frame.f_code):
            self.count += 1
            if self.count == self.number:
                self.where = f"{frame.f_code.co_filename[len(OURS) + 1 :]}:{frame.f_lineno}"
                sys.settrace(None)
                self.handler()
        return self._step


def interrupted(scene: Callable[[], None], number: int) -> str | None:
    """Play *scene*, interrupted at its point *number*. Where that was; None: it has fewer points."""
    assert threading.current_thread() is threading.main_thread()
    tracer = Tracer(number)
    try:
        with tracer:
            scene()
    except Interrupted:
        return tracer.where
    return tracer.where or None
