"""``@distributed_lock`` for views and plain functions, and ``atomic(grant)`` for your own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, Unpack

from distlock.errors import ConfigurationError
from distlock.fence.transaction import refuse_unfit, time_left
from distlock.grants.grant import Grant
from distlock.locks.client import takes
from distlock.web.decorator import explaining, options_here
from distlock.web.guard_options import ALL_BUT_GET, USUAL, Words
from distlock.web.names.templates import NameSource
from django_distlock.guarding.fence import database_of, fenced
from django_distlock.guarding.open_transactions import find_open, noting_rollbacks, refuse_failed
from django_distlock.guarding.viewclasses import view_class
from django_distlock.guarding.views import guard_class, guard_function, guard_view
from django_distlock.private_of_others import is_api_view

P = ParamSpec("P")
R = TypeVar("R")


@takes(Words, **USUAL)
def distributed_lock(
    *names: NameSource, **options: Unpack[Words]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run one call at a time, on all servers together, for each value of *names*.

    *names*: the names to lock, all of them or none: templates such as ``"product_<int:id>"``, filled in from
    the arguments of the decorated function, or from the request, as in ``"cart_<int:query.id>"``; or
    callables that get the arguments of the function and return one name or several.
    *alias*: the lock service, a key of ``settings.DISTLOCK``.
    *timeout*: the longest wait, seconds; 0: the lock service is asked once; None: the alias's. -1 is refused.
    *ttl*: how long the lock lives without renewal, seconds, more than 0; None: the alias's.
    *max_hold*: seconds after which a holder counts as hung, and its lock is no longer renewed; None: the
    alias's.
    *methods*: the HTTP methods to lock, such as ``["POST"]``; ``["*"]``: all; None: all of a function, and
    all handlers of a class except ``get``, a ``head`` that is ``get``, and the framework's own ``options``.
    *fence*: the database whose transaction has to pass the fence. True: the default one; a str: this key of
    ``DATABASES``; False: none; None: the alias's.
    *batch*: the most requests, 2 to 1000, that wait for one lock in this process and share one transaction,
    with a savepoint each, and one COMMIT; None: each has its own.
    *mode*: "shared": any number of such calls run at once, but none together with a guard on the same name
    that is not shared. Such a guard locks GET and HEAD, unless *methods* is given.
    *limit*: how many calls run at once, on all servers together, for each value of *names*. Locks of the same
    names are independent of it. None: one.
    *on_contended*: what happens if the lock stays taken. "respond": the client of a view gets 423; "raise":
    the view raises `LockTimeout`; "skip": a function that is no view, such as a task, does not run, and its
    call returns None.

    Use it on views of every kind: functions, async ones, classes, their ``dispatch`` or one method,
    ``as_view()``, and REST framework's. The transactions of ``ATOMIC_REQUESTS`` begin after the lock is
    acquired, and are committed before it is released.

    A view answers lock errors with 423 (`LockTimeout`), 503 (`TooManyWaiters`, `BackendUnavailable`,
    `LockLost`) or 400 (`InvalidName`: a value for a name is missing or malformed). Any other function raises
    them. Raises `ConfigurationError` at import for arguments that can never work, and TypeError for unknown
    ones.

    Example::

        @require_POST
        @distributed_lock("product_<id>", timeout=2)
        def reduce_stock(request, id):
            return HttpResponse("sold")
    """
    checked = options_here(names, **options)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if isinstance(function, type):
            return guard_class(function, checked)
        cls = view_class(function)
        if cls is None:
            return guard_function(function, checked)
        # A site writes a view under @api_view as a function, so a function's default methods apply.
        return guard_view(function, checked, methods=None if is_api_view(cls) else ALL_BUT_GET)

    return explaining(checked, decorate)


@contextmanager
def atomic(grant: Grant, using: str | None = None) -> Iterator[None]:
    """Run the block in a transaction that commits only if no later grant's did, and the lock is still held.

    *grant*: the value of ``with locks.lock(…) as grant``.
    *using*: a key of ``DATABASES``; None: the default one.

    Use it in place of the outermost ``transaction.atomic()``. It waits for the transactions of earlier
    grants, at most the ``timeout`` of the lock, seconds.

    Raises `LockLost`, and `LockTimeout` after that wait, and rolls back; `NotHeld` after the release;
    `ConfigurationError` in an open transaction, in async code, and if the lock is a row of the database.

    Example::

        with locks.lock("product_1") as grant, atomic(grant):
            Product.objects.filter(id=1).update(stock=100)
    """
    refuse_unfit("atomic(grant)", grant)
    alias = database_of(using or True)
    assert alias is not None
    names = ", ".join(map(repr, grant.names))
    if (found := find_open(alias)) is not None:
        if found.manual:
            raise ConfigurationError(
                f"atomic(grant) on {names}: autocommit is off on the database {alias!r}, so that Django "
                "commits nothing by itself. Leave AUTOCOMMIT = False out of its settings."
            )
        raise ConfigurationError(
            f"atomic(grant) on {names}: a transaction of the database {alias!r} is open already, so that "
            "the fence would come too late. Take the lock first, and write 'with locks.lock(…) as grant, "
            "atomic(grant):' in the place of the outermost 'with transaction.atomic():'. A view has "
            "@distributed_lock(…, fence=True)."
        )
    grant.check()
    with noting_rollbacks([alias]), fenced(grant, alias, time_left(grant)):
        yield
        refuse_failed([alias])
        # The last moment before COMMIT: nothing is written if the lock was lost.
        grant.check()
    grant._vouch()
