"""Fakes for a site's own tests: a lock that another process has, an unavailable lock service, a lost lock.

They work with the site's own clients and any lock service, and never wait. A fake replaces methods of the
namespaces' classes during its block only, so other acquisitions cost nothing more.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol, Self, runtime_checkable

from distlock import signal_safety
from distlock.engine.hold import NameGrant
from distlock.engine.hold_calls import HoldCalls
from distlock.engine.sans_io import Commands, Parker
from distlock.errors import BackendUnavailable
from distlock.grants.grant import Grant
from distlock.locks.namespace import Namespace, namespaces
from distlock.names import check_name
from distlock.owner import in_event_loop
from distlock.terms import Terms

#: Called with the namespace and the names of an acquisition: returns whether the acquisition has to fail. May
#: raise a `LockError`. Also called for `Namespace.locked`, and without names before an operator's call.
Refuses = Callable[[Namespace, tuple[str, ...]], bool]
#: Called with each grant before its caller has it.
Granted = Callable[[Grant], None]

_mutex = threading.RLock()
#: The active fakes.
_active: list[Fake] = []
#: The replaced methods: class, name and function.
_replaced: list[tuple[type[Any], str, Any]] = []


def contended(*names: str) -> Fake:
    """Pretend that another process holds the locks *names* during the block; without names, every lock.

    An acquisition of one of *names* times out at once: a guarded view answers 423, ``with`` raises
    `LockTimeout`, `Lock.acquire` returns None. A caller without a time-out gets an AssertionError, because it
    would wait for ever. A lock that this process holds already stays held.

    Returns a context manager. Raises `InvalidName`.

    Example::

        with contended("product_1"):
            assert client.post("/products/1/reduce").status_code == 423
    """
    is_meant = _meant(names)
    return Fake(refuses=lambda _, asked: any(map(is_meant, asked)))


def backend_down() -> Fake:
    """Pretend that no lock service answers during the block.

    A guarded view answers 503, and ``with`` raises `BackendUnavailable`. With ``ON_BACKEND_DOWN: "run"``
    the view runs, serialised by its fence row. This does nothing to the backend ``database``, which has no
    lock service.

    Returns a context manager. Raises nothing.

    Example::

        with backend_down():
            assert client.post("/products/1/reduce").status_code == 503
    """

    def refuses(namespace: Namespace, asked: tuple[str, ...]) -> bool:
        if namespace.may_be_unavailable:
            raise BackendUnavailable("The lock service does not answer: the test plays backend_down().")
        return False

    return Fake(refuses=refuses)


def lose(*names: str) -> Fake:
    """Lose the locks *names* that this process holds; without names, all that it holds.

    The call loses the locks that are held now. If you enter its result with ``with``, each lock that is
    granted in the block is lost at once, too. A guarded view rolls its transaction back and answers 503;
    ``with locks.lock(...)`` raises `LostInside` at its end, and `Grant.check` raises `LockLost`. Callbacks
    and signals run. On the lock service, the lock becomes free.

    Returns a context manager, which need not be entered. Raises `InvalidName`.

    Example::

        with lose("product_1"):
            assert client.post("/products/1/reduce").status_code == 503
    """
    is_meant = _meant(names)

    def lost(grant: Grant) -> None:
        for name, part in grant.parts.items():
            if is_meant(name):
                lose_grant(part, "the test plays lose()")

    for grant in _held():
        lost(grant)
    return Fake(granted=lost)


def held_locks() -> list[str]:
    """Return the sorted names of the locks that this process holds now, for tests of code under a guard.

    A name that two clients hold under two prefixes is listed twice. Raises nothing.

    Example::

        with locks.lock("product_1"):
            assert held_locks() == ["product_1"]
    """
    return sorted(grant.names[0] for grant in _held())


@contextmanager
def taken_locks() -> Iterator[list[str]]:
    """Yield a list that collects the name of each lock that is granted in the block.

    A nested guard acquires no lock that the guard around it holds, so it adds no name. Raises nothing.

    Example::

        with taken_locks() as taken:
            client.post("/products/1/reduce")
        assert taken == ["product_1"]
    """
    taken: list[str] = []
    with Fake(granted=lambda grant: taken.extend(grant.names)):
        yield taken


def _held() -> list[Grant]:
    return [grant for namespace in namespaces() for grant in namespace.grants()]


def _meant(names: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a predicate that is true of *names*; without *names*, of every name. Raises `InvalidName`."""
    checked = frozenset(map(check_name, names))
    return lambda name: not checked or name in checked


@runtime_checkable
class Losable(Protocol):
    """A grant that loses itself, because no lock service knows it: one of the backend ``dummy``."""

    def lose(self, why: str) -> None: ...


def lose_grant(grant: Grant, why: str) -> None:
    """Lose *grant*, which has one name, for the reason *why*, and free its lock on the lock service."""
    if isinstance(grant, Losable):
        grant.lose(why)
    elif isinstance(grant, NameGrant) and isinstance(grant._hold_calls, HoldCalls):
        hold = grant._hold
        # Callbacks run before lose() returns, except in an event loop, which they could block.
        grant._hold_calls.lose(hold, why, cancel=False, off_thread=in_event_loop())
        with suppress(BackendUnavailable):
            signal_safety.call(grant._hold_calls.backend.release, hold.request)


class Fake:
    """A fake that is active during its ``with`` block, for all clients and threads of this process."""

    def __init__(self, *, refuses: Refuses | None = None, granted: Granted | None = None) -> None:
        self.refuses = refuses
        self.granted = granted

    def __enter__(self) -> Self:
        with _mutex:
            if not _active:
                _install()
            if self not in _active:
                _active.append(self)
        return self

    def __exit__(self, *exc_info: object) -> None:
        with _mutex:
            if self in _active:
                _active.remove(self)
                if not _active:
                    _restore()


def _install() -> None:
    # A namespace may inherit a method from a class that is no namespace.
    classes: list[type[Any]] = [Namespace, *_below(Namespace)]
    for one in {part for each in classes for part in each.__mro__}:
        for name, stand_in in _STAND_INS.items():
            if (real := vars(one).get(name)) is not None:
                _replaced.append((one, name, real))
                setattr(one, name, stand_in(real))


def _restore() -> None:
    while _replaced:
        one, name, real = _replaced.pop()
        setattr(one, name, real)


def _below(one: type[Any]) -> Iterator[type[Any]]:
    for inherited in one.__subclasses__():
        yield inherited
        yield from _below(inherited)


def _stays_taken(namespace: Namespace, names: tuple[str, ...]) -> bool:
    # copy() is one step: other threads may change the list meanwhile.
    return any(fake.refuses(namespace, names) for fake in _active.copy() if fake.refuses is not None)


def _acquire_stand_in(real: Callable[..., Commands[Grant | None]]) -> Callable[..., Commands[Grant | None]]:
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
            for fake in _active.copy():
                if fake.granted is not None:
                    fake.granted(grant)
        return grant

    return acquire


def _locked_stand_in(real: Callable[[Namespace, str], bool]) -> Callable[[Namespace, str], bool]:
    @functools.wraps(real)
    def locked(self: Namespace, name: str) -> bool:
        return _stays_taken(self, (name,)) or real(self, name)

    return locked


def _operator_stand_in(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def ask(self: Namespace, *arguments: Any) -> Any:
        # This raises while a `backend_down` is active. Without names, other fakes have no effect.
        _stays_taken(self, ())
        return real(self, *arguments)

    return ask


#: Makes the replacement of a method of `Namespace`, by the method's name.
_STAND_INS: dict[str, Callable[[Any], Any]] = {
    "acquire": _acquire_stand_in,
    "locked": _locked_stand_in,
    "inspect": _operator_stand_in,
    "announced": _operator_stand_in,
    "break_hold": _operator_stand_in,
}
