"""The extension `DistLock`. Each app keeps its own `State`, so one `DistLock` may serve several apps."""

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
from distlock.web.body_before_lock import DEFAULTS, size_setting
from distlock.web.guard_options import one_database
from distlock.web.names.templates import ambiguities
from distlock.web.sessions import REFRESH_SESSION
from distlock.web.settings import aliases
from distlock.web.settings.aliases import AliasSettings
from distlock.web.settings.clients import Clients, DefaultAlias, make_client
from distlock.web.settings.problems import DEFAULT_ALIAS, misspelled
from distlock.web.stale_writes import SETTING as STALE_WRITES
from flask_distlock.binds import bind_of
from flask_distlock.commands import command_of, commands
from flask_distlock.decorators import distributed_lock
from flask_distlock.exceptions import answer_lock_errors
from flask_distlock.guarding.app_state import KEY, State, current_state, detect_stale_writes
from flask_distlock.guarding.applied_rules import RULES, refuse_replaced, views_with_locks
from flask_distlock.guarding.kept_locks import enclose
from flask_distlock.guarding.request import SERVER_TIMING, UserKey
from flask_distlock.guarding.server_session import stamp_session
from flask_distlock.guarding.view_guards import check_placement, open_methods
from flask_distlock.private import put_around, redis_that_writes, run_first, views_of
from flask_distlock.session_blocks import (
    BLOCK,
    SessionAcquirer,
    inspection_connection,
    refuse_unshared,
    row_client,
)
from flask_distlock.signals import fence_lifted, lock_lost, lock_release_requested, send

logger = logging.getLogger("distlock")


#: The settings of an app, with their defaults.
_DEFAULTS = DEFAULTS | {
    "DISTLOCK": None,
    "DISTLOCK_CONTENDED_STATUS": 423,
    RULES: None,
    SERVER_TIMING: False,
    REFRESH_SESSION: True,
    STALE_WRITES: None,
}


class DistLock(DefaultAlias):
    """The locks of Flask apps.

    Its methods use the locks of the current app, and need an app context. `init_app` and `check` need none.

    *app*: the app to serve; None: call `init_app` later, for one app or several.
    *user*: called without arguments in a request, for ``<user.pk>`` in names; returns the user's key, None
    for a user that is not logged in. None: Flask-Login is asked.

    ``app.config["DISTLOCK"]`` has the settings. No connection is opened before the first lock is acquired.
    Raises `ConfigurationError` for settings that can't work. `check` also checks the views and rules.

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
        """Set up the locks and the command ``flask distlock`` of *app*. No connection is opened.

        Raises `ConfigurationError` if *app* was set up before, for settings that can't work, and for apps of
        other frameworks, such as Quart.
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
        for name, value in _DEFAULTS.items():
            app.config.setdefault(name, value)
        detect_stale_writes(app)
        if app.config["DISTLOCK"] is not None:
            aliases.refuse_problems(app.config["DISTLOCK"])
        clients = Clients(
            lambda: _read(app),
            lambda settings: _make(app, settings),
            fenced_in=bind_of,
            command=command_of(app),
        )
        state = State(clients, self._user)
        app.extensions[KEY] = state
        state.watch_contexts(app)
        enclose(app, state.watch)
        # This hook has to run first: an earlier hook might answer, and hide a mistake in the configuration.
        run_first(app, partial(_begin_request, app, state))
        # Check the view at dispatch_request(): Flask calls it after all hooks that may replace the view.
        put_around(app, "dispatch_request", partial(_watched, app, state))
        app.cli.add_command(commands)

    def check(self, app: Flask) -> None:
        """Check guards, rules and settings now, before the first request does.

        Call it when all routes are registered. It asks no server, but looks whether a lock directory can be
        used. Raises `ConfigurationError`, for example if a guard is in the wrong place or a rule's route is
        unknown.
        """
        with app.app_context():
            _check(app, current_state())
        if app.config["DISTLOCK"] is not None:
            for settings in _read(app).values():
                # The lock directory may be available again at the first request, as after a full disk.
                with suppress(BackendUnavailable):
                    settings.refuse_unusable()

    def __getitem__(self, alias: str) -> Locks:
        """Return the current app's client of *alias*, without connecting.

        Raises `ConfigurationError` if there is no such alias, or no app context.
        """
        state = current_state()
        guards, settings = state.clients[alias], state.clients.settings(alias)
        state.watch(current_app)
        if settings.row_is_lock:
            # None: this lock ends with the transaction of its block, so no request has to keep it.
            return row_client(guards, lambda: state.transactions(BLOCK, False, None), bind_of(settings.fence))
        return Locks(SessionAcquirer(guards.acquirer, state), guards.timeout)

    @takes(LockOptions)
    def lock(self, *names: str, on_push: bool = False, **options: Unpack[LockOptions]) -> Lock:
        """Return a lock of the default alias, for views, commands and tasks.

        ``locks["other"].lock(…)`` returns a lock of another alias.

        *names*, *timeout*, *ttl*, *max_hold*, *on_push*, *on_release_requested*:
        as for `distlock.Locks.lock`, which also lists the errors.

        Raises `ConfigurationError` outside an app context. Entering the lock raises it, too, if the open
        transaction of ``db.session`` has changed or locked something, or was begun by ``begin()``.

        Example::

            with locks.lock("product_1") as grant:
                grant.check()
        """
        return self[DEFAULT_ALIAS].lock(*names, on_push=on_push, **options)

    @takes(LockOptions)
    def rlock(self, *names: str, **options: Unpack[LockOptions]) -> RLock:
        """Return a re-entrant lock of the default alias.

        *names*, *timeout*, *ttl*, *max_hold*, *on_release_requested*: as for `lock`. Raises what `lock`
        raises, and `ConfigurationError` if the lock is a row of the database.

        Example::

            with locks.rlock("product_1") as grant:
                grant.check()
        """
        return self[DEFAULT_ALIAS].rlock(*names, **options)

    #: The decorator, for code that imports only the extension.
    distributed_lock = staticmethod(distributed_lock)

    def close(self) -> None:
        """Close the clients of the current app. The next use of an alias makes a new client."""
        current_state().clients.reset()


def _read(app: Flask) -> Mapping[str, AliasSettings]:
    setting = app.config["DISTLOCK"]
    if setting is None:
        return aliases.without_settings(app.debug)
    return aliases.read(setting, partial(_redis_of, app))


def _redis_of(app: Flask, alias: str) -> Any:
    """Return the redis-py client with which the only cache of *app* writes.

    *alias*: the part of LOCATION after ``cache:``. Raises `ConfigurationError` if it is not "default", or if
    the app has no cache on Redis, or several caches.
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
        settings.warn_if_alone()

    def on_lost(grant: Grant, why: str) -> None:
        send(lock_lost, app, alias=settings.alias, names=grant.names, grant=grant, why=why)

    def on_lifted(grant: Grant, was: Fence) -> None:
        send(fence_lifted, app, alias=settings.alias, names=grant.names, grant=grant, was=was)

    def on_release_requested(grant: Grant) -> None:
        send(lock_release_requested, app, alias=settings.alias, names=grant.names, grant=grant)

    return make_client(
        settings,
        on_lost,
        on_lifted,
        lambda: inspection_connection(bind_of(settings.fence)),
        on_release_requested,
    )


def _check(app: Flask, state: State) -> dict[str, Callable[..., Any]]:
    """Return the views of *app* by endpoint, wrapped in the locks of rules and of base classes.

    Logs a warning for each lock that requests may bypass, and each name that different values may share.
    Raises `ConfigurationError` for guards, rules and settings that can't work.
    """
    for problem in misspelled(app.config):
        raise ConfigurationError(str(problem))
    aliases.contended_status(app.config["DISTLOCK_CONTENDED_STATUS"])
    for name in DEFAULTS:
        size_setting(name, app.config[name])
    views = views_with_locks(app)
    for open_method in open_methods(app, views):
        logger.warning("%s", open_method)
    for guarded in check_placement(app, views):
        for shared in ambiguities(guarded.options.names.templates):
            logger.warning("%s: %s", guarded.where, shared)
        # This makes the client without connecting, and so reports a missing dependency.
        terms = state.clients.terms(guarded)
        if terms.lock.mode == READ and state.clients.settings(guarded.options.alias).row_is_lock:
            refuse_unshared(terms.fenced_in, str(guarded.options))
        if guarded.options.batch is not None and terms.fenced_in is None:
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
    """Check *app* at its first request, and put the locks of rules and base classes around its views."""
    # If this raises, `checked` stays False, so that the next request checks the app and fails, too.
    try:
        views = _check(app, state)
    except ConfigurationError as error:
        # Log the error, because a site that handles all errors would hide it behind an ordinary response.
        logger.critical("%s answers no request: %s", app.name, error)
        raise
    # Debug mode may have been switched since init_app().
    detect_stale_writes()
    served = views_of(app)
    state.ruled = {name: view for name, view in views.items() if view is not served[name]}
    served.update(views)
    answer_lock_errors(app)
    state.watch(app)
    state.checked = True


def _watched(app: Flask, state: State, dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Return *dispatch*, which runs the view of a request, with two steps before.

    The first one refuses a view that has lost the locks around it; the second one notes which transaction was
    open before the view.
    """

    def dispatch_request(*args: Any) -> Any:
        if state.ruled:
            refuse_replaced(app, state.ruled, request.endpoint)
        if (sessions := state.sessions) is not None:
            sessions.before_view(request._get_current_object())  # type: ignore[attr-defined]
        return dispatch(*args)

    return dispatch_request
