"""Fakes for a site's own tests: a lock that somebody else has, a lock service that is away, a lost lock.

They work on the clients that the site has, whatever their lock service is, and wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distlock.errors import BackendUnavailable
from distlock.grants.grant import Grant
from distlock.locks.namespace import Namespace, namespaces
from distlock.names import check_name
from distlock.testing.losing import lose_grant
from distlock.testing.standing_in import Fake


def contended(*names: str) -> Fake:
    """In the block somebody else has the locks *names*; without names every lock.

    A call that asks for one of them ends as after its time-out, but at once: a guarded view answers
    423, ``with`` raises `LockTimeout`, `Lock.acquire` returns None. A caller without a time-out
    gets an AssertionError, because it would wait for ever. A lock that is held already stays held.

    Returns what goes into a ``with``. Raises `InvalidName`.

    Example::

        with contended("product_1"):
            assert client.post("/products/1/reduce").status_code == 423
    """
    is_meant = _meant(names)
    return Fake(keeps=lambda _, asked: any(map(is_meant, asked)))


def backend_down() -> Fake:
    """In the block no lock service answers: a guarded view answers 503, ``with`` raises `BackendUnavailable`.

    With ``ON_BACKEND_DOWN: "run"`` the fence row serves meanwhile, as it would. The backend ``database`` has
    no lock service that could be away.

    Returns what goes into a ``with``. Raises nothing.

    Example::

        with backend_down():
            assert client.post("/products/1/reduce").status_code == 503
    """

    def keeps(namespace: Namespace, asked: tuple[str, ...]) -> bool:
        if namespace.may_be_away:
            raise BackendUnavailable("The lock service does not answer: the test plays backend_down().")
        return False

    return Fake(keeps=keeps)


def lose(*names: str) -> Fake:
    """The locks *names* that this process holds are lost, now; without names all that it holds.

    In a ``with``: so is each that is granted in the block, as soon as it is. The transaction of a guarded
    view is rolled back instead of committed, and it answers 503; ``with`` raises `LostInside` at its end, and
    `Grant.check` raises `LockLost`. Callbacks and signals are told. On the lock service the lock is free.

    Returns what may go into a ``with``. Raises `InvalidName`.

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
    """The names of the locks that this process holds just now, sorted: for what the guarded code calls.

    A name that two clients hold, under two prefixes, comes twice. Raises nothing.

    Example::

        with locks.lock("product_1"):
            assert held_locks() == ["product_1"]
    """
    return sorted(grant.names[0] for grant in _held())


@contextmanager
def taken_locks() -> Iterator[list[str]]:
    """Gives a list, to which each name is added that is granted in the block.

    What a guard finds held by the guard around it is not taken again. Raises nothing.

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
    """Whether a name is one of *names*. Raises `InvalidName`."""
    checked = frozenset(map(check_name, names))
    return lambda name: not checked or name in checked
