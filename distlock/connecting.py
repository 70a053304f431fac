"""`connect` to a lock service."""

from __future__ import annotations

from typing import Any

from distlock.backends.registry import Location, create, located
from distlock.engine.engine import Engine
from distlock.engine.notifications import OnLifted, OnLost
from distlock.grants.grant import OnReleaseRequested
from distlock.listening import Listened, Listener, check_listener, reporting, reporting_reconnects
from distlock.locks.client import Locks
from distlock.locks.engine_namespace import EngineNamespace
from distlock.names import check_prefix, identity
from distlock.numbers import LONG, check_count, check_seconds
from distlock.operate.typed import typed_for
from distlock.suggestions import TRANSLATIONS, refuse_unknown


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
    epoch: int = 1,
    turn: float | None = None,
    on_lost: OnLost | None = None,
    on_lifted: OnLifted | None = None,
    on_release_requested: OnReleaseRequested | None = None,
    listener: Listener | None = None,
    **options: Any,
) -> Locks:
    """Make a client of the lock service at *url*. Nothing is connected before the first lock is acquired.

    One client serves a whole process: threads, tasks and forked children share it.

    *url*: ``redis://[user:password@]host[:port][/db]``, ``rediss://`` for TLS, ``unix:///path/redis.sock``;
    ``redis+sentinel://[user:password@]host[:port][,host…]/name[/db]``, the hosts of the sentinels;
    ``redis+cluster://[user:password@]host[:port][,host…]``;
    ``redlock://[user:password@]host,host,host[/db]``;
    ``zookeeper://[user:password@]host[:port][,host…][/path]``, ``zookeepers://`` for TLS;
    ``postgresql://[user:password@]host[:port]/database``; ``mysql://`` likewise;
    ``file:///directory`` for the processes of one host; ``memory://name`` for one process, in tests; or the
    scheme of a backend that is installed.
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
    *epoch*: 1 or more. Raise it when the same names move to another lock service.
    *turn*: seconds for which a process may pass a lock on among its own callers while other processes wait.
    0: it never does. None: 0.05.
    *on_lost*: called with the grant and the reason when a lock is lost, mostly in a thread of its own.
    *on_lifted*: called with the grant and its former fence when a database had seen a larger one already.
    *on_release_requested*: called with each grant that somebody wants back, in a thread of its own.
    *listener*: told of each acquisition, such as `distlock.metrics.listener`. None: nobody, at no cost.
    *options*: those of the backend, such as ``io_timeout=2.0`` seconds. Its page in the documentation, under
    "Reference, Backends", lists them.

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
    check_count("epoch", epoch)
    if timeout != -1:
        check_seconds("timeout", timeout, zero=True, most=LONG)
    if turn is not None:
        check_seconds("turn", turn, zero=True)
    check_prefix(prefix)
    for word in options.keys() & TRANSLATIONS.keys():
        refuse_unknown("connect", [word])
    if listener is not None:
        check_listener(listener)
        on_lost, on_lifted = reporting(listener, "lost", on_lost), reporting(listener, "lifted", on_lifted)
        on_release_requested = reporting(listener, "release_requested", on_release_requested)
    url, found = located(url, backend)
    options = {**found, **options}
    engine = Engine(
        create(url, backend, **options),
        ttl=ttl,
        max_hold=max_hold,
        max_waiters=max_waiters,
        max_waiters_total=max_waiters_total,
        epoch=epoch,
        turn=turn,
        on_lost=on_lost,
        on_lifted=on_lifted,
        on_release_requested=on_release_requested,
        on_reconnected=reporting_reconnects(listener),
    )
    namespace = EngineNamespace(engine, prefix)
    namespace.identity = identity(url, backend, prefix, options)
    if engine.backend.capabilities.several_processes:
        namespace.typed = typed_for(None if found else url, prefix or None)
    return Locks(namespace if listener is None else Listened(namespace, listener), timeout)
