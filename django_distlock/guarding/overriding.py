"""Methods that override a guarded one: do requests still come to the guard?

One that does not call it answers without a lock, and nothing in a request tells that. So their code is read:
to refuse every override would refuse mixins in front of a locked ``dispatch``, too.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Any, NamedTuple

from distlock.web.decorator import Guarded, chain, enclosed, guards_of

_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")


class PassedBy(NamedTuple):
    """A guard that a class inherits, and whose requests don't come to it."""

    #: The class whose method does not call the next one.
    hiding: type
    #: The class that has the guard on its method of that name.
    base: type
    guarded: Guarded


def passed_by(cls: type, name: str) -> Iterator[PassedBy]:
    """The guards on the method *name* of bases of *cls* that an override does not call."""
    mro = cls.__mro__
    above: list[int] = []
    for number, base in enumerate(mro):
        if name not in vars(base):
            continue
        if guards := guards_of(vars(base)[name]):
            for one in above:
                if not calls_super(vars(mro[one])[name], name, mro[one + 1 : number + 1]):
                    yield from (PassedBy(mro[one], base, guarded) for guarded in guards)
                    return
            # A guard further up is overridden by this one, on purpose.
            return
        above.append(number)


def calls_super(function: Any, name: str, bases: Sequence[type]) -> bool:
    """Whether *function* seems to call the method *name* of one of *bases*, which are in their order.

    ``super().render()`` is no call of ``post``, and ``super(Last, self)`` goes past the last one.
    """
    codes = list(_codes(function, set()))
    # Code that was compiled in another way can't be read.
    if not any(code.co_code for code in codes):
        return True
    known = {word for code in codes for word in code.co_names}
    return any(_calls(code, name, bases, name in known) for code in codes)


def _codes(function: Callable[..., Any], seen: set[int]) -> Iterator[CodeType]:
    """The code of *function*, of what it wraps, also without `functools.wraps`, and of what is in them."""
    for one in chain(function):
        code = getattr(one, "__code__", None)
        if not isinstance(code, CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        yield from _within(code)
        for inner in enclosed(one):
            yield from _codes(inner, seen)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)


def _calls(code: CodeType, name: str, bases: Sequence[type], later: bool) -> bool:
    names = [base.__name__ for base in bases]
    # A class may have the name of its base.
    last = names[-1] if f".{names[-1]}." not in f".{code.co_qualname}" else None
    #: Whether the next attribute is one of a base, and whether ``super`` stands before it.
    of_base = of_super = False
    for step in dis.get_instructions(code):
        word = step.argval
        if step.opname.startswith(_ATTRIBUTE):
            if of_base and word == name:
                return True
            of_base = word in names and not (of_super and word == last)
            of_super = of_super and of_base
        elif step.opname.startswith("STORE_"):
            if of_base and later:
                # parent = super(), and then parent.post().
                return True
            of_base = of_super = False
        elif step.opname == "LOAD_CONST":
            if of_super and word == name:
                # getattr(super(), "post")
                return True
        elif step.opname.startswith("LOAD_") and isinstance(word, str):
            if word == "super":
                of_base = of_super = True
            elif word in names:
                of_base = not (of_super and word == last)
            elif not of_super:
                of_base = False
    return False
