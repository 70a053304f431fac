"""Which methods of its own a method of a class calls, as its code says."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from distlock.web.decorator import chain

#: Instructions between ``super`` and the attribute that is taken from it.
_CALLING = ("PUSH_NULL", "PRECALL", "CALL", "CACHE", "LOAD_DEREF", "LOAD_FAST")


def reached(cls: type, name: str) -> set[str]:
    """Return *name* and the methods of *cls* that a call of the method *name* may come to."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for member in (vars(base)[one] for base in cls.__mro__ if one in vars(base)):
            calls = set(_calls(member))
            waiting += [each for each in calls if callable(getattr(cls, each, None))]
            if one not in calls:
                break  # It does not call the next one in the MRO.
    return found


def _calls(function: Callable[..., Any]) -> Iterator[str]:
    for one in chain(function):
        if isinstance(code := getattr(one, "__code__", None), CodeType):
            yield from _of_self(code)


def _of_self(code: CodeType) -> Iterator[str]:
    """Yield the attributes that *code* takes from its first argument, or from ``super()``."""
    own = code.co_varnames[0] if code.co_argcount else ""
    of_self = of_super = False
    for step in dis.get_instructions(code):
        if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")):
            if of_self or of_super or step.opname.startswith("LOAD_SUPER"):
                yield str(step.argval)
            of_self = of_super = False
            continue
        of_super = step.argval == "super" or (of_super and step.opname.startswith(_CALLING))
        last = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
        of_self = bool(own) and step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and last == own
