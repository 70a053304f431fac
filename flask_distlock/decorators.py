"""``@distributed_lock`` for views and plain functions, and a fenced ``transaction()`` for other code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from flask.views import View

from distlock.errors import ConfigurationError
from distlock.grants.grant import Grant
from distlock.locks.client import takes
from distlock.web.guard_marks import Guarded, options_here, refusing_as_view
from distlock.web.guard_options import USUAL, GuardKeywords, GuardOptions
from distlock.web.names.templates import NameSource
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.view_guards import remember, remember_class
from flask_distlock.private import is_made_by_as_view

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session, scoped_session

F = TypeVar("F", bound=Callable[..., Any])


@takes(GuardKeywords, **USUAL)
def distributed_lock(*names: NameSource, **options: Unpack[GuardKeywords]) -> Callable[[F], F]:
    """Run one call at a time, on all servers together, for each value of *names*.

    Write it below ``@app.route``.

    *names*: the names to lock, all of them or none: templates such as ``"product_<int:id>"``, filled in from
    the arguments of the decorated function, or from the request, as in ``"cart_<int:query.id>"``; or
    callables that return one name or several. For a view they get the request and the view's arguments, else
    the arguments of the function.
    *alias*: the lock service, a key of ``app.config["DISTLOCK"]``.
    *timeout*: the longest wait, seconds; 0: the lock service is asked once; None: the alias's. -1 is refused.
    *ttl*: how long the lock lives without renewal, seconds, more than 0; None: the alias's.
    *max_hold*: seconds after which a holder counts as hung, and its lock is no longer renewed; None: the
    alias's.
    *methods*: the HTTP methods to lock, such as ``["POST"]``; ``["*"]``: all; None: for a function all, for a
    class all except GET, and except HEAD if ``get`` answers it.
    *fence*: the database whose transaction has to pass the fence. True: the default one; a str: this key of
    ``SQLALCHEMY_BINDS``; False: none; None: the alias's.
    *batch*: the most requests, 2 to 1000, that wait for one lock in this process and share one transaction,
    with a savepoint each, and one COMMIT; None: each has its own.
    *mode*: "shared": any number of such calls run at once, but none together with a call of an "exclusive"
    guard on the same name. A shared guard locks GET and HEAD, unless *methods* is given.
    *limit*: how many calls run at once, on all servers together, for each value of *names*; None: one. Guards
    with a limit and guards without one are independent, even on the same name.
    *on_contended*: what happens if the lock stays taken. "respond": the client of a view gets 423; "raise":
    the view raises `LockTimeout`; "skip": a function that is no view, such as a task, does not run, and its
    call returns None.

    Use it on functions, also async ones, on a `flask.views.View` or one of its methods, and on what
    ``as_view()`` returns. A view keeps its lock until the hooks and teardowns of its request have run.
    Another function keeps it until it returns, or until the transaction of ``db.session`` that it leaves open
    has ended.

    A view answers lock errors by Werkzeug exceptions, with 423 (`LockTimeout`), 503 (`TooManyWaiters`,
    `BackendUnavailable`, `LockLost`) or 400 (`InvalidName`: a value for a name is missing or malformed). Any
    other function raises them.
    Raises `ConfigurationError` at import for arguments that can never work, and TypeError for unknown ones.

    Example::

        @app.post("/products/<int:id>/reduce")
        @distributed_lock("product_<id>", timeout=2)
        def reduce_stock(id):
            return "sold"
    """
    checked = options_here(names, **options)

    def decorate(target: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(target, type):
            return _decorate_class(target, checked)
        remember(target)
        guarded = Guarded(target, checked)
        if is_made_by_as_view(target):
            guarded.where = f"{target.__module__}.{target.__name__}"
        return wrap(target, guarded)

    return cast(Callable[[F], F], refusing_as_view(checked, decorate))


def _decorate_class(cls: type[Any], options: GuardOptions) -> type[Any]:
    where = f"{cls.__module__}.{cls.__qualname__}"
    if not issubclass(cls, View):
        raise ConfigurationError(
            f"{where} is a class, and no view: decorate the function that does the work."
        )
    if cls.dispatch_request is View.dispatch_request:
        raise ConfigurationError(
            f"{where} has no dispatch_request to lock: decorate the class that has one, or derive from "
            "MethodView."
        )
    guarded = Guarded(cls.dispatch_request, options)
    guarded.where = where
    # Change the class itself, so that views that as_view() has already made are locked, too.
    cls.dispatch_request = wrap(cls.dispatch_request, guarded)  # type: ignore[method-assign]
    remember_class(cls, guarded)
    return cls


def transaction(
    grant: Grant, session: Session | scoped_session[Any], engine: Engine | None = None
) -> AbstractContextManager[None]:
    """Return a context manager that runs its block in a transaction of SQLAlchemy.

    The transaction commits only if the lock is still held, and no later grant has committed one.

    *grant*: the value of ``with locks.lock(…) as grant``.
    *session*: a ``Session``, or ``db.session``, that has begun no transaction yet. It is committed at the end
    of the block. Objects that it loaded before are read again.
    *engine*: the engine of the database that has the fence; None: the session's.

    At its beginning it waits until the transactions of earlier grants have ended, for at most as many seconds
    as the ``timeout`` of the lock.

    Raises `LockTimeout` if that takes longer; `LockLost`, after a rollback; `NotHeld` after the release;
    `ConfigurationError` if the session has begun a transaction, in async code, and if the lock is a row of
    the database.

    Example::

        with locks.lock("product_1") as grant, transaction(grant, db.session):
            db.session.get(Product, 1).stock = 100
    """
    from flask_distlock.sql import fenced_sessions

    return fenced_sessions.transaction(grant, session, engine)
