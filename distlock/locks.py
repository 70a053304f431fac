"""The client: `connect` to a lock service, then make locks of names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Never

from distlock.acquirer import Acquirer, AtEnd
from distlock.backends import create
from distlock.backends.location import Location, located
from distlock.engine.lifting import OnLifted
from distlock.engine.loss import OnLost
from distlock.engine.machine import Engine
from distlock.listening import Listened, Listener, check_listener, on_lifted_of, on_lost_of, on_reconnected_of
from distlock.lock import Lock
from distlock.names import check_name, check_prefix
from distlock.namespace import EngineNamespace, identity
from distlock.numbers import LONG, check_count, check_seconds, check_timeout
from distlock.operate.looking import Listed, LockState, inspect, list_locks
from distlock.operate.typed import typed_for
from distlock.rlock import RLock
from distlock.terms import Terms, calling_code

#: What other libraries call our words. Passing theirs gives an error that translates.
TRANSLATIONS = {
    "blocking_timeout": "timeout= (the longest wait, in seconds)",
    "expire": "ttl= (lifetime without renewal, in seconds)",
    "auto_renewal": "nothing: every lock is renewed until it is released or max_hold is over",
    "sleep": "nothing: waiters are woken, they do not poll",
    "thread_local": "nothing: a grant may be released by any thread",
    "retry_interval": "nothing: waiters are woken, they do not poll",
    "key_prefix": "prefix=",
    "wait": "timeout= (the longest wait, in seconds)",
    "lease_time": "ttl= (lifetime without renewal, in seconds)",
}


class Locks:
    """Locks of one lock service under one prefix. Threads, tasks and forked children share it."""

    def __init__(self, acquirer: Acquirer, timeout: float, at_end: AtEnd | None = None) -> None:
        """*acquirer*: what takes the names. *timeout*: the longest wait, seconds; -1: no limit."""
        self.acquirer = acquirer
        self.namespace = acquirer.namespace
        self.prefix = self.namespace.prefix
        self.timeout = timeout
        self.at_end = at_end

    def lock(
        self,
        *names: str,
        timeout: float | None = None,
        ttl: float | None = None,
        max_hold: float | None = None,
        **unknown: Never,
    ) -> Lock:
        """A lock of *names*: all of them or none, in one order for everybody. Cheap; nothing is asked yet.

        *names*: one or several, each text of 1 to 255 characters.
        *timeout*: the longest wait, seconds. 0: the lock service is asked once. -1: no limit. None: the
        client's.
        *ttl*: how long the lock lives without renewal, seconds, more than 0. None: the client's.
        *max_hold*: after so many seconds its holder counts as hung, and is not renewed any more; more than 0.
        None: the client's.

        Returns a `Lock`, for ``with``, ``async with``, or its `Lock.acquire`. Raises `InvalidName`; TypeError
        without a name or with an unknown argument; `ConfigurationError` for a *ttl* or *max_hold*, and
        ValueError or OverflowError for a *timeout*, that can't be.

        The ``with`` gives a `Grant`. It raises `LockTimeout` if the lock stays taken; `TooManyWaiters` if it
        would most likely be waited for in vain; `BackendUnavailable`; `Reentered` in a signal handler in the
        middle of a call of ours; `ConfigurationError` inside a ``with`` or a guard on the same name, which
        would wait for itself; and at its end `LostInside` if the lock was lost.

        Example::

            with locks.lock("product_1", "product_2", timeout=2) as grant:
                grant.check()
        """
        return Lock(self, *self._checked("lock", names, timeout, ttl, max_hold, unknown))

    def rlock(
        self,
        *names: str,
        timeout: float | None = None,
        ttl: float | None = None,
        max_hold: float | None = None,
        **unknown: Never,
    ) -> RLock:
        """A re-entrant lock of *names*: its owner, the running thread or task, may take it again.

        *names*, *timeout*, *ttl*, *max_hold*: as for `lock`. `RLock` says what counts as the owner.

        Raises what `lock` raises. Only its owner may release it: elsewhere `RLock.release` raises `NotHeld`.

        Example::

            with locks.rlock("product_1"):
                with locks.rlock("product_1", "product_2") as grant:
                    grant.check()
        """
        return RLock(self, *self._checked("rlock", names, timeout, ttl, max_hold, unknown))

    def inspect(self, name: str) -> LockState:
        """The holder of *name*, since when, and those that wait for it, in order: a picture of one moment.

        Asks the lock service, and changes nothing. Raises `InvalidName`; `BackendUnavailable`;
        `ConfigurationError` where the lock service does not show it.

        Example::

            state = locks.inspect("product_1")
            print(state.holder, state.remaining, state.queue)
        """
        return inspect(self.namespace, name)

    def list(self, before: str = "") -> Iterator[Listed]:
        """The names that are held or waited for, in all processes, for longer than about three seconds.

        *before*: what the names begin with. Each process says of itself what it has, every few seconds;
        what it says is read in small parts while you go through it, so it is no picture of one moment.
        Raises `BackendUnavailable`; `ConfigurationError` where the lock service does not show it.

        Example::

            for one in locks.list("product_"):
                print(one.name, "held" if one.held else "waited for", one.party)
        """
        return list_locks(self.namespace, before)

    def close(self) -> None:
        """Give everything back and drop threads and connections. The client may be used again."""
        self.namespace.close()

    def _checked(
        self,
        word: str,
        names: tuple[str, ...],
        timeout: float | None,
        ttl: float | None,
        max_hold: float | None,
        unknown: dict[str, Any],
    ) -> tuple[tuple[str, ...], float | None, Terms]:
        if unknown:
            refuse_unknown(word, unknown)
        if not names:
            raise TypeError(f"{word}() needs at least one name, for example {word}('product_1').")
        # Deduplicated, and in one order for everybody: two carts with the same products never wait in a ring.
        ordered = tuple(sorted({check_name(name) for name in names})) if names[1:] else (check_name(*names),)
        if timeout is not None and timeout != -1:
            check_timeout(timeout)
        usual = self.namespace.terms
        ttl = usual.ttl if ttl is None else check_seconds("ttl", ttl)
        max_hold = usual.max_hold if max_hold is None else check_seconds("max_hold", max_hold)
        return ordered, timeout, Terms(ttl, max_hold, calling_code())


def connect(
    url: Location,
    *,
    backend: str | None = None,
    prefix: str = "",
    ttl: float = 10.0,
    timeout: float = 5.0,
    max_hold: float = 60.0,
    max_waiters: int | None = None,
    max_waiters_total: int | None = None,
    era: int = 1,
    on_lost: OnLost | None = None,
    on_lifted: OnLifted | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Locks:
    """Make a client of the lock service at *url*. Nothing is connected before the first lock is acquired.

    One client serves a whole process: threads, tasks and forked children share it.

    *url*: ``redis://[user:password@]host[:port][/db]``, ``rediss://`` for TLS, ``unix:///path/redis.sock``;
    ``zookeeper://[user:password@]host[:port][,host…][/path]``; ``file:///directory`` for the processes of
    one host; ``memory://name`` for one process, in tests; or the scheme of a backend that is installed.
    Instead of a URL: a client of redis-py, of which the connection arguments are read and nothing else; a
    dict of such arguments; or a function without arguments that returns a URL or one of these. It is called
    once, now.
    *backend*: a scheme, or the dotted path of a class, such as ``shop.locks.MyBackend``; None: as *url* says.
    *prefix*: stands before every name, so that two shops may share a lock service; at most 64 characters.
    *ttl*: how long a lock lives without renewal, seconds, more than 0. It is renewed every third of that.
    *timeout*: the longest wait, seconds. 0: the lock service is asked once. -1: no limit.
    *max_hold*: after so many seconds a holder counts as hung, and is not renewed any more; more than 0.
    *max_waiters*, *max_waiters_total*: how many callers of this process may wait, for one name and in all,
    1 or more. None: no fixed limit. A caller that would most likely wait in vain is refused without one,
    too, unless it is the next in line or has no time-out.
    *era*: 1 or more. Raise it when the same names move to another lock service.
    *on_lost*: called with the grant and the reason when a lock is lost, mostly in a thread of its own.
    *on_lifted*: called with the grant and its former fence when a database had seen a larger one already.
    *listener*: told of each acquisition, such as `distlock.metrics.listener`. None: nobody, at no cost.
    *options*: those of the backend, such as ``io_timeout=2.0`` seconds. Its page in
    ``docs/reference/backends/`` lists them.

    Returns a `Locks`. Raises `ConfigurationError` for a URL, a number or an option that can't work, and for
    an extra that is not installed; TypeError for the words of other libraries, with the word to write.

    Example::

        locks = distlock.connect("memory://shop", prefix="shop", ttl=10, timeout=5)
        with locks.lock("product_1") as grant:
            print(grant.fence)
    """
    check_seconds("ttl", ttl)
    check_seconds("max_hold", max_hold)
    for word, cap in (("max_waiters", max_waiters), ("max_waiters_total", max_waiters_total)):
        if cap is not None:
            check_count(word, cap)
    check_count("era", era)
    if timeout != -1:
        check_seconds("timeout", timeout, zero=True, most=LONG)
    check_prefix(prefix)
    for word in options.keys() & TRANSLATIONS.keys():
        refuse_unknown("connect", [word])
    if listener is not None:
        check_listener(listener)
        on_lost, on_lifted = on_lost_of(listener, on_lost), on_lifted_of(listener, on_lifted)
    url, found = located(url, backend)
    options = {**found, **options}
    engine = Engine(
        create(url, backend, **options),
        ttl=ttl,
        max_hold=max_hold,
        max_waiters=max_waiters,
        max_waiters_total=max_waiters_total,
        era=era,
        on_lost=on_lost,
        on_lifted=on_lifted,
        on_reconnected=on_reconnected_of(listener),
    )
    namespace = EngineNamespace(engine, prefix)
    namespace.identity = identity(url, backend, prefix, options)
    if engine.backend.capabilities.several_processes:
        namespace.typed = typed_for(None if found else url, prefix or None)
    return Locks(namespace if listener is None else Listened(namespace, listener), timeout)


def refuse_unknown(function: str, unknown: Iterable[str]) -> None:
    for word in unknown:
        if word in TRANSLATIONS:
            raise TypeError(f"{function}() has no {word!r}. Here that is {TRANSLATIONS[word]}.")
        raise TypeError(f"{function}() has no argument {word!r}.")
