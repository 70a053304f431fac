"""``@distributed_lock`` for views and plain functions, and a fenced ``transaction()`` of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, cast

from flask.views import View

from distlock.errors import ConfigurationError
from distlock.grants.grant import Grant
from distlock.web.decorator import Guarded, Told, explaining, told_here
from distlock.web.names.templates import NameSource
from distlock.web.settings.problems import DEFAULT_ALIAS
from flask_distlock.guarding.guarded_call import wrap
from flask_distlock.guarding.placement import remember, remember_class
from flask_distlock.private import is_made_by_as_view

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session, scoped_session

F = TypeVar("F", bound=Callable[..., Any])


def distributed_lock(
    *names: NameSource,
    alias: str = DEFAULT_ALIAS,
    timeout: float | None = None,
    ttl: float | None = None,
    max_hold: float | None = None,
    methods: Iterable[str] | None = None,
    fence: bool | str | None = None,
    batch: int | None = None,
    mode: Literal["exclusive", "shared"] = "exclusive",
    limit: int | None = None,
    on_contended: Literal["respond", "raise", "skip"] = "respond",
    **unknown: Never,
) -> Callable[[F], F]:
    """Let one call at a time run on all servers, for each value of *names*. Stands below ``@app.route``.

    *names*: what is locked, all or none: templates such as ``"product_<int:id>"``, filled in from the
    arguments of the decorated function, or from the request, as in ``"cart_<int:query.id>"``; or callables
    that return a name or several, and get the request and the arguments of a view, else those of the
    function.
    *alias*: a key of ``app.config["DISTLOCK"]``: which lock service.
    *timeout*: the longest wait, seconds; 0: the lock service is asked once; None: the alias's. -1 is refused.
    *ttl*: how long the lock lives without renewal, seconds, more than 0; None: the alias's.
    *max_hold*: after so many seconds a holder counts as hung, and its lock is not renewed any more; None: the
    alias's.
    *methods*: the HTTP methods that are locked, such as ``["POST"]``; ``["*"]``: all; None: all of a
    function's, and all of a class's but GET, and HEAD where ``get`` answers that.
    *fence*: True: the transaction of the default database passes the fence; a str: that of this key of
    ``SQLALCHEMY_BINDS``; False: none; None: as the alias is set.
    *batch*: so many requests at the most, 2 to 1000, that wait for one lock in this process share one
    transaction, with a savepoint each, and one COMMIT; None: each has its own.
    *mode*: "shared": any number of readers at once, and no writer, which is a guard on the same name without
    it. It locks GET and HEAD, unless *methods* says otherwise.
    *limit*: so many calls at once, over all servers, for each value of *names*, which have nothing to do with
    locks of the same names; None: one.
    *on_contended*: "respond": a view's client is answered 423 where the lock stays taken; "raise": the view
    raises `LockTimeout` instead; "skip": a function that is no view, such as a task, is left out, and its
    call returns None.

    It stands on functions, async ones too, a `flask.views.View`, one of its methods, and what ``as_view()``
    returns. The lock is kept until the last transaction of ``db.session`` under it has ended.

    A view answers lock errors, by Werkzeug exceptions: 423 (`LockTimeout`), 503 (`TooManyWaiters`,
    `BackendUnavailable`, `LockLost`) or 400 (`InvalidName`: a value for a name is missing or malformed). Any
    other function raises them.
    Raises `ConfigurationError` at import for what can never work, and TypeError for unknown arguments.

    Example::

        @app.post("/products/<int:id>/reduce")
        @distributed_lock("product_<id>", timeout=2)
        def reduce_stock(id):
            return "sold"
    """
    told = told_here(
        names,
        unknown,
        alias=alias,
        timeout=timeout,
        ttl=ttl,
        max_hold=max_hold,
        methods=methods,
        fence=fence,
        batch=batch,
        mode=mode,
        limit=limit,
        on_contended=on_contended,
    )

    def decorate(target: Callable[..., Any]) -> Callable[..., Any]:
        if isinstance(target, type):
            return _decorate_class(target, told)
        remember(target)
        guarded = Guarded(target, told)
        if is_made_by_as_view(target):
            guarded.where = f"{target.__module__}.{target.__name__}"
        return wrap(target, guarded)

    return cast(Callable[[F], F], explaining(told, decorate))


def _decorate_class(cls: type[Any], told: Told) -> type[Any]:
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
    guarded = Guarded(cls.dispatch_request, told)
    guarded.where = where
    # In place: views that as_view() has made of the class before are locked, too.
    cls.dispatch_request = wrap(cls.dispatch_request, guarded)  # type: ignore[method-assign]
    remember_class(cls, guarded)
    return cls


def transaction(
    grant: Grant, session: Session | scoped_session[Any], engine: Engine | None = None
) -> AbstractContextManager[None]:
    """A transaction of SQLAlchemy that is committed only if no later grant's was, and the lock is still ours.

    *grant*: what the ``with`` of a lock gives.
    *session*: a ``Session``, or ``db.session``, that has begun no transaction yet. It is committed at the end
    of the block, and what it knew before is read anew.
    *engine*: whose database has the fence; None: the session's.

    It waits for the transactions of earlier grants for as long as the lock may be waited for: its
    ``timeout``, seconds.

    Raises `LockLost`, and `LockTimeout` after that wait, and rolls back; `NotHeld` after the release;
    `ConfigurationError` where the session has begun a transaction, in async code, and where the lock is a row
    of the database.

    Example::

        with locks.lock("product_1") as grant, transaction(grant, db.session):
            db.session.get(Product, 1).stock = 100
    """
    from flask_distlock.sql import own_transactions

    return own_transactions.transaction(grant, session, engine)
