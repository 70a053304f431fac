"""`connect` to a lock service."""

from __future__ import annotations

from typing import Any

from distlock.backends.factory import Location, create, located
from distlock.engine.engine import Engine
from distlock.engine.events import OnLifted, OnLost
from distlock.grants.grant import OnReleaseRequested
from distlock.listening import Listened, Listener, check_listener, reporting, reporting_reconnects
from distlock.locks.client import Locks
from distlock.locks.engine_namespace import EngineNamespace
from distlock.names import check_prefix
from distlock.numbers import MOST_SECONDS, check_count, check_seconds
from distlock.operate.command_line import typed_for
from distlock.service_identity import identity, sort_key_of
from distlock.suggestions import ARGUMENTS_OF_OTHER_LIBRARIES, refuse_unknown


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
    """Return a client of the lock service at *url*. The client connects when it is first used.

    One client serves a whole process: threads, tasks and forked children share it.

    *url*: ``redis://[user:password@]host[:port][/db]``, ``rediss://`` for TLS, ``unix:///path/redis.sock``;
    ``redis+sentinel://[user:password@]host[:port][,host…]/name[/db]``, the hosts of the sentinels;
    ``redis+cluster://[user:password@]host[:port][,host…]``;
    ``redlock://[user:password@]host,host,host[/db]``;
    ``zookeeper://[user:password@]host[:port][,host…][/path]``, ``zookeepers://`` for TLS;
    ``postgresql://[user:password@]host[:port]/database``; ``mysql://`` likewise;
    ``file:///directory`` for the processes of one host; ``memory://name`` for one process, in tests; or a
    URL with the scheme of another installed backend.
    Instead of a URL, *url* may be a client of redis-py, whose connection arguments are read; a dict of such
    arguments; or a function without arguments that returns a URL, a client or a dict, and is called once.
    *backend*: a scheme, or the dotted path of a class, such as ``shop.locks.MyBackend``. None: the scheme of
    *url*.
    *prefix*: precedes every name, so that two shops may share a lock service. At most 64 letters, digits,
    ``_``, ``.`` or ``-``.
    *ttl*: how long a lock lives without renewal, seconds, more than 0. It is renewed every third of that.
    *timeout*: the longest wait, seconds. 0: the lock service is asked once. -1: no limit.
    *max_hold*: seconds after which a holder counts as hung and is no longer renewed, more than 0.
    *max_waiters*, *max_waiters_total*: how many callers of this process may wait, for one name and in all,
    1 or more. None: no fixed limit. Even then, a caller that would most likely wait in vain is refused,
    unless it is the next in the queue or has no time-out.
    *epoch*: the first half of every fence, 1 or more. Raise it when the names move to another lock service.
    *turn*: seconds for which a process may hand a lock off among its own callers before other processes get
    it. 0: it never does. None: 0.05.
    *on_lost*: called with the grant and the reason when a lock is lost, mostly in a thread of its own.
    *on_lifted*: called with the grant and its former fence after the fence was raised, because a database
    had seen a larger one.
    *on_release_requested*: called with each grant whose release is requested, in a thread of its own.
    *listener*: a `distlock.listening.Listener`, such as `distlock.metrics.listener` makes. None: no listener,
    and no cost.
    *options*: the options of the backend, such as ``io_timeout=2.0`` seconds. The page of the backend in the
    documentation, under "Reference, Backends", lists them.

    Returns a `Locks`. Raises `ConfigurationError` for an invalid URL, number or option, and if the backend
    needs a package that is not installed; TypeError for an argument of another library, such as ``expire``,
    with the argument to write instead.

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
        check_seconds("timeout", timeout, zero=True, most=MOST_SECONDS)
    if turn is not None:
        check_seconds("turn", turn, zero=True)
    check_prefix(prefix)
    for word in options.keys() & ARGUMENTS_OF_OTHER_LIBRARIES.keys():
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
    engine.recovery.join(sort_key_of(namespace.identity))
    if engine.backend.capabilities.several_processes:
        namespace.typed = typed_for(None if found else url, prefix or None)
    return Locks(namespace if listener is None else Listened(namespace, listener), timeout)
