"""Where a test steps between the clients of its process and their lock services.

Nothing of it is there outside of the block of a `Fake`: an acquisition costs what it costs.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

from distlock.engine.commands import Commands, Parker
from distlock.grants.grant import Grant
from distlock.locks.namespace import Namespace
from distlock.terms import Terms

#: Whether one of the names stays taken. Raises `LockError` for what a lock service would raise.
Keeps = Callable[[Namespace, tuple[str, ...]], bool]
#: Called with each grant before its caller has it.
Granted = Callable[[Grant], None]


class Fake:
    """A fake that is active during its ``with`` block, for all clients and threads of this process."""

    def __init__(self, *, keeps: Keeps | None = None, granted: Granted | None = None) -> None:
        self.keeps = keeps
        self.granted = granted

    def __enter__(self) -> Self:
        with _mutex:
            if not _playing:
                _step_in()
            if self not in _playing:
                _playing.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with _mutex:
            if self in _playing:
                _playing.remove(self)
                if not _playing:
                    _step_out()


_mutex = threading.RLock()
_playing: list[Fake] = []
#: The replaced methods: class, name and function.
_before: list[tuple[type[Any], str, Any]] = []


def _step_in() -> None:
    # A namespace has classes of its own, too.
    whole = [part for one in _below(Namespace) for part in one.__mro__ if part not in Namespace.__mro__]
    for one in dict.fromkeys(whole):
        for name, stand_in in _STAND_INS.items():
            if (real := vars(one).get(name)) is not None:
                _before.append((one, name, real))
                setattr(one, name, stand_in(real))


def _step_out() -> None:
    while _before:
        one, name, real = _before.pop()
        setattr(one, name, real)


def _below(one: type[Any]) -> Iterator[type[Any]]:
    for inherited in one.__subclasses__():
        yield inherited
        yield from _below(inherited)


def _stays_taken(namespace: Namespace, names: tuple[str, ...]) -> bool:
    # To copy is one step.
    return any(fake.keeps(namespace, names) for fake in _playing.copy() if fake.keeps is not None)


def _acquiring(real: Callable[..., Commands[Grant | None]]) -> Callable[..., Commands[Grant | None]]:
    @functools.wraps(real)
    def acquire(
        self: Namespace, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        if _stays_taken(self, names):
            if seconds == math.inf:
                raise AssertionError(
                    f"{', '.join(map(repr, names))} would be waited for without end: this lock has no "
                    "time-out, and the test plays that somebody else keeps it."
                )
            return None
        grant = yield from real(self, names, parker, seconds, terms)
        if grant is not None:
            for fake in _playing.copy():
                if fake.granted is not None:
                    fake.granted(grant)
        return grant

    return acquire


def _looking(real: Callable[[Namespace, str], bool]) -> Callable[[Namespace, str], bool]:
    @functools.wraps(real)
    def locked(self: Namespace, name: str) -> bool:
        return _stays_taken(self, (name,)) or real(self, name)

    return locked


def _asking(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def ask(self: Namespace, *arguments: Any) -> Any:
        # For no name at all: only a lock service that is away is in the way.
        _stays_taken(self, ())
        return real(self, *arguments)

    return ask


#: By the method of a `Namespace`.
_STAND_INS: dict[str, Callable[[Any], Any]] = {
    "acquire": _acquiring,
    "locked": _looking,
    "inspect": _asking,
    "announced": _asking,
    "break_hold": _asking,
}
