"""The extension. All state is the app's: one `DistLock` may serve several apps of one process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

from flask import Flask, current_app, request
from flask.sessions import SecureCookieSessionInterface

from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.grants.grant import Fence, Grant
from distlock.locks.client import LockOptions, Locks, takes
from distlock.locks.lock import Lock
from distlock.locks.rlock import RLock
from distlock.terms import READ
from distlock.web.bodies import DEFAULTS, size_setting
from distlock.web.guard_options import one_database
from distlock.web.names.templates import joined
from distlock.web.sessions import REFRESH_SESSION
from distlock.web.settings.aliases import AliasSettings, contended_status, read, refuse_problems
from distlock.web.settings.clients import (
    Clients,
    DefaultAlias,
    make_client,
    refuse_unusable,
    warn_if_alone,
    without_settings,
)
from distlock.web.settings.problems import DEFAULT_ALIAS, misspelled
from distlock.web.stale_writes import SETTING as STALE_WRITES
from flask_distlock.binds import bind_of
from flask_distlock.clients import BLOCK, SessionAcquirer, looking, refuse_unshared, row_client
from flask_distlock.commands import command_of, commands
from flask_distlock.decorators import distributed_lock
from flask_distlock.exceptions import answer_lock_errors
from flask_distlock.guarding.placement import check_placement, open_methods
from flask_distlock.guarding.request import SERVER_TIMING, UserKey
from flask_distlock.guarding.server_session import stamp_session
from flask_distlock.guarding.state import KEY, State, current_state, detect_stale_writes
from flask_distlock.guarding.whole_request import enclose
from flask_distlock.guarding.wrapped_views import RULES, refuse_replaced, views_with_locks
from flask_distlock.private import put_around, redis_that_writes, run_first, views_of
from flask_distlock.signals import fence_lifted, lock_lost, lock_release_requested, send

logger = logging.getLogger("distlock")


class DistLock(DefaultAlias):
    """Locks for Flask apps. Inside an app context they are those of the current app.

    *app*: the app to serve; None: `init_app` names it later, or several.
    *user*: called without arguments in a request, for ``<user.pk>`` in names; returns the user's key, None
    for a user that is not logged in. None: Flask-Login is asked.

    ``app.config["DISTLOCK"]`` has the settings. Nothing is connected before the first lock is acquired.
    Raises `ConfigurationError` for settings that can't work; `check` looks at the views and rules, too.

    Example::

        app.config["DISTLOCK"] = {"default": {"LOCATION": "redis://localhost:6379/0", "PREFIX": "shop"}}
        locks = DistLock(app)
        with app.app_context(), locks.lock("product_1") as grant:
            grant.check()
    """

    def __init__(self, app: Flask | None = None, *, user: UserKey | None = None) -> None:
        self._user = user
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Serve *app*. Connects to nothing.

        Raises `ConfigurationError` if it is served already, for settings that can't work, and for what is no
        app of Flask, as those of Quart.
        """
        if not isinstance(app, Flask):
            other = f"{type(app).__module__}.{type(app).__qualname__}"
            raise ConfigurationError(
                f"DistLock serves apps of Flask, and this is one of {other}. In an async framework write "
                "'async with locks.lock(...)', with distlock.connect(...)."
            )
        if KEY in app.extensions:
            raise ConfigurationError(
                f"DistLock serves the app {app.name!r} already: call init_app once per app."
            )
        app.config.setdefault("DISTLOCK", None)
        app.config.setdefault("DISTLOCK_CONTENDED_STATUS", 423)
        app.config.setdefault(RULES, None)
        for name, size in DEFAULTS.items():
            app.config.setdefault(name, size)
        app.config.setdefault(SERVER_TIMING, False)
        app.config.setdefault(REFRESH_SESSION, True)
        app.config.setdefault(STALE_WRITES, None)
        detect_stale_writes(app)
        if app.config["DISTLOCK"] is not None:
            refuse_problems(app.config["DISTLOCK"])
        clients = Clients(
            lambda: _read(app),
            lambda settings: _make(app, settings),
            fenced_in=bind_of,
            command=command_of(app),
        )
        state = State(clients, self._user)
        app.extensions[KEY] = state
        state.look_out(app)
        enclose(app)
        # First of all: an earlier hook might answer, and the mistake would go unseen.
        run_first(app, partial(_begin_request, app, state))
        # Last of all: a hook may replace the view, also at the first request.
        put_around(app, "dispatch_request", partial(_watched, app, state))
        app.cli.add_command(commands)

    def check(self, app: Flask) -> None:
        """Look now for what the first request would find: guards in the wrong place, rules for no route.

        Call it when all routes are registered. A lock directory is looked at, too, and no server is asked.
        Raises `ConfigurationError`.
        """
        with app.app_context():
            _check(app, current_state())
        if app.config["DISTLOCK"] is not None:
            for settings in _read(app).values():
                # A full disk may pass before the first request.
                with suppress(BackendUnavailable):
                    refuse_unusable(settings)

    def __getitem__(self, alias: str) -> Locks:
        """Return the current app's client of *alias*. Raises `ConfigurationError`. Connects to nothing."""
        state = current_state()
        guards, settings = state.clients[alias], state.clients.settings(alias)
        state.watch(current_app)
        if settings.row_is_lock:
            # The block is a transaction, and its end is that of the row's lock.
            transactions = state.transactions(BLOCK, False, None)
            return row_client(guards, transactions, bind_of(settings.fence))
        return Locks(SessionAcquirer(guards.acquirer, state), guards.timeout)

    @takes(LockOptions)
    def lock(self, *names: str, on_push: bool = False, **options: Unpack[LockOptions]) -> Lock:
        """A lock of the default alias, for views, commands and tasks; ``locks["other"].lock`` of another.

        *names*, *timeout*, *ttl*, *max_hold*, *on_push*, *on_release_requested*:
        as for `distlock.Locks.lock`, which tells the errors, too.

        Raises `ConfigurationError` where ``db.session`` has changed or locked something before.

        Example::

            with locks.lock("product_1") as grant:
                grant.check()
        """
        return self[DEFAULT_ALIAS].lock(*names, on_push=on_push, **options)

    @takes(LockOptions)
    def rlock(self, *names: str, **options: Unpack[LockOptions]) -> RLock:
        """Return a re-entrant lock of the default alias.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. Raises what that
        raises, and `ConfigurationError` where the lock is a row of the database.

        Example::

            with locks.rlock("product_1") as grant:
                grant.check()
        """
        return self[DEFAULT_ALIAS].rlock(*names, **options)

    #: For code that has the extension at hand.
    distributed_lock = staticmethod(distributed_lock)

    def close(self) -> None:
        """Close the clients of the current app. They may be used again."""
        current_state().clients.reset()


def _read(app: Flask) -> Mapping[str, AliasSettings]:
    setting = app.config["DISTLOCK"]
    return without_settings(app.debug) if setting is None else read(setting, partial(_redis_of, app))


def _redis_of(app: Flask, alias: str) -> Any:
    """Return the client of redis-py with which the cache of *app* writes: Flask-Caching knows just one.

    Raises `ConfigurationError` where there is none, or several are.
    """
    if alias != "default":
        raise ConfigurationError(f"Flask-Caching has no aliases such as {alias!r}: write 'cache:default'.")
    caches = list(app.extensions.get("cache", {}).values())
    if len(caches) != 1:
        raise ConfigurationError(
            f"The app {app.name!r} has {len(caches)} caches of Flask-Caching, and 'cache:default' means the "
            "only one. Call Cache.init_app() before the first request, or let LOCATION be a client of "
            "redis-py."
        )
    found = redis_that_writes(caches[0])
    if found is None:
        raise ConfigurationError(
            f"CACHE_TYPE of {app.name!r} is {type(caches[0]).__name__}, which keeps nothing in Redis. Let it "
            "be RedisCache, or write a URL."
        )
    return found


def _make(app: Flask, settings: AliasSettings) -> Locks:
    if not app.debug and not app.testing:
        warn_if_alone(settings)

    def on_lost(grant: Grant, why: str) -> None:
        send(lock_lost, app, alias=settings.alias, names=grant.names, grant=grant, why=why)

    def on_lifted(grant: Grant, was: Fence) -> None:
        send(fence_lifted, app, alias=settings.alias, names=grant.names, grant=grant, was=was)

    def wanted(grant: Grant) -> None:
        send(lock_release_requested, app, alias=settings.alias, names=grant.names, grant=grant)

    return make_client(settings, on_lost, on_lifted, lambda: looking(bind_of(settings.fence)), wanted)


def _check(app: Flask, state: State) -> dict[str, Callable[..., Any]]:
    """Return the views of *app* with its rules around them, and what classes inherit.

    Raises `ConfigurationError` for what can't work.
    """
    for problem in misspelled(app.config):
        raise ConfigurationError(str(problem))
    contended_status(app.config["DISTLOCK_CONTENDED_STATUS"])
    for name in DEFAULTS:
        size_setting(name, app.config[name])
    views = views_with_locks(app)
    for open_method in open_methods(app, views):
        logger.warning("%s", open_method)
    for guarded in check_placement(app, views):
        for shared in joined(guarded.told.names.templates):
            logger.warning("%s: %s", guarded.where, shared)
        # Made, and not connected: an extra that is missing is a mistake like the others.
        terms = state.clients.terms(guarded)
        if terms.lock.mode == READ and state.clients.settings(guarded.told.alias).row_is_lock:
            refuse_unshared(terms.fenced_in, str(guarded.told))
        if guarded.told.batch is not None and terms.fenced_in is None:
            raise one_database(guarded.where, [])
    return views


def _begin_request(app: Flask, state: State) -> None:
    if not state.checked:
        with state.mutex:
            if not state.checked:
                _begin_serving(app, state)
    if not isinstance(app.session_interface, SecureCookieSessionInterface):
        stamp_session(app)


def _begin_serving(app: Flask, state: State) -> None:
    """Check *app*, whose first request has come, and put around its views what they don't stand below."""
    # Not marked before it has passed: a site that is set up wrongly stays loud.
    try:
        views = _check(app, state)
    except ConfigurationError as error:
        # A site that handles all errors would make an everyday answer of it.
        logger.critical("%s answers no request: %s", app.name, error)
        raise
    # Debug mode may have been set since the app was made.
    detect_stale_writes()
    served = views_of(app)
    state.ruled = {name: view for name, view in views.items() if view is not served[name]}
    served.update(views)
    answer_lock_errors(app)
    state.watch(app)
    state.checked = True


def _watched(app: Flask, state: State, dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Return *dispatch*, which calls the view of a request, behind a look at what is to be called."""

    def dispatch_request(*args: Any) -> Any:
        if state.ruled:
            refuse_replaced(app, state.ruled, request.endpoint)
        if (sessions := state.sessions) is not None:
            sessions.before_view(request._get_current_object())  # type: ignore[attr-defined]
        return dispatch(*args)

    return dispatch_request
