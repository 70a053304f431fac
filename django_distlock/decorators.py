"""``@distributed_lock`` for views and plain functions, and ``atomic(grant)`` for your own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar, Unpack

from distlock.errors import ConfigurationError
from distlock.fence.transaction import refuse_unfit, time_left
from distlock.grants.grant import Grant
from distlock.locks.client import takes
from distlock.web.guard_marks import options_here, refusing_as_view
from distlock.web.guard_options import ALL_BUT_GET, USUAL, GuardKeywords
from distlock.web.names.templates import NameSource
from django_distlock.guarding.fence import database_of, fenced
from django_distlock.guarding.open_transactions import find_open, noting_rollbacks, refuse_failed
from django_distlock.guarding.view_classes import view_class
from django_distlock.guarding.views import guard_class, guard_function, guard_view
from django_distlock.private_of_others import is_api_view

P = ParamSpec("P")
R = TypeVar("R")


@takes(GuardKeywords, **USUAL)
def distributed_lock(
    *names: NameSource, **options: Unpack[GuardKeywords]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Run one call at a time, on all servers together, for each value of *names*.

    *names*: the names to lock, all of them or none: templates such as ``"product_<int:id>"``, filled in from
    the arguments of the decorated function, or from the request, as in ``"cart_<int:query.id>"``; or
    callables that get the arguments of the function and return one name or several.
    *alias*: the lock service, a key of ``settings.DISTLOCK``.
    *timeout*: the longest wait in seconds. 0: ask the lock service once. None: ``TIMEOUT`` of the alias. -1,
    no limit, is refused.
    *ttl*: how many seconds the lock lives without renewal, more than 0. None: ``TTL`` of the alias.
    *max_hold*: the seconds after which a holder counts as hung, and its lock is no longer renewed. None:
    ``MAX_HOLD`` of the alias.
    *methods*: the HTTP methods to lock, such as ``["POST"]``. ``["*"]``: all. None: all methods of a function
    or of a single handler; of a class, all handlers except ``get``, a ``head`` that is ``get``, and the
    framework's own ``options``.
    *fence*: the database whose transaction has to pass the fence: True for the default one, or a key of
    ``DATABASES``. False: no database. None: ``FENCE`` of the alias.
    *batch*: how many requests, 2 to 1000, that wait for one lock in this process may share one transaction
    and its COMMIT, with a savepoint for each request. None: each request has its own transaction.
    *mode*: "exclusive", or "shared": any number of shared guards on one name run their calls at once, but
    never together with an exclusive guard. A shared guard locks GET and HEAD, unless *methods* is given.
    *limit*: how many calls run at once, on all servers together, for each value of *names*. Locks of the same
    names are independent of it. None: one call.
    *on_contended*: what happens if the lock stays taken. "respond": the client of a view gets 423; "raise":
    the view raises `LockTimeout`; "skip": a function that is no view, such as a task, does not run, and its
    call returns None.

    Use it on plain functions and on views of every kind: functions, async functions, classes, their
    ``dispatch`` or a single method, what ``as_view()`` returns, and sync views of REST framework. The
    transactions of ``ATOMIC_REQUESTS`` begin after the lock is acquired, and are committed before it is
    released.

    A view answers lock errors with 423 (`LockTimeout`), 503 (`TooManyWaiters`, `BackendUnavailable`,
    `LockLost`, `BatchFailed`), 500 (`LostInside`, `OutcomeUnknown`: what the view did may stand), 413
    (`BodyTooLarge`) or 400 (`InvalidName`: a value for a name is missing or malformed). Any other function
    raises them. Raises `ConfigurationError` at import for arguments that can never work, and TypeError for
    unknown ones.

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

    return refusing_as_view(checked, decorate)


@contextmanager
def atomic(grant: Grant, using: str | None = None) -> Iterator[None]:
    """Run the block in a transaction. Commit it if the lock is still held, and no later grant has committed.

    *grant*: the value of ``with locks.lock(…) as grant``.
    *using*: a key of ``DATABASES``. None: the default database.

    Use it in place of the outermost ``transaction.atomic()``. It waits for the transactions of earlier
    grants, at most for the ``timeout`` of the lock.

    Raises `LockLost` if the lock was lost or a later grant has committed: the transaction is rolled back;
    `LockTimeout` if the transaction of an earlier grant did not end in time; `NotHeld` if *grant* was
    released before; `ConfigurationError` if a transaction is open already, if the code is async, if the lock
    is a row of the database, or if *using* is no database that can have a fence.

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
        # If the lock was lost, raise before COMMIT, so that nothing is written.
        grant.check()
    grant._vouch()
