"""The extension. All state is the app's: one `DistLock` may serve several apps of one process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from flask import Flask, current_app, has_app_context, request

from distlock.errors import ConfigurationError, LockError
from distlock.lock import Lock
from distlock.locks import Locks
from distlock.rlock import RLock
from distlock.web.answers import ANSWERED, log_level
from distlock.web.services import Services, without_settings
from distlock.web.settings import DEFAULT_ALIAS, Service, contended_status, read
from distlock.web.templates import NameSource
from flask_distlock.decorators import distributed_lock
from flask_distlock.exceptions import exception_for
from flask_distlock.placement import check_placement
from flask_distlock.request import UserKey
from flask_distlock.sessions import Sessions

P = ParamSpec("P")
R = TypeVar("R")

KEY = "distlock"

logger = logging.getLogger("distlock")


@dataclass
class State:
    """What the extension keeps for one app, in ``app.extensions["distlock"]``."""

    services: Services
    #: Gives the user's key; None: Flask-Login's.
    user: UserKey | None = None
    sessions: Sessions = field(default_factory=Sessions)
    mutex: threading.Lock = field(default_factory=threading.Lock)
    checked: bool = False


class DistLock:
    """Locks for Flask apps.

    ``locks = DistLock(app)``, or ``locks = DistLock()`` and later ``locks.init_app(app)``. The settings are
    ``app.config["DISTLOCK"]``, read when the first lock is asked for. Inside an app context
    ``locks.lock("product_1")`` and ``locks["other"]`` use the lock services of the current app.
    """

    def __init__(self, app: Flask | None = None, *, user: UserKey | None = None) -> None:
        self._user = user
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Serve *app*. Connects to nothing. Raises `ConfigurationError` if it is served already."""
        if KEY in app.extensions:
            raise ConfigurationError(
                f"DistLock serves the app {app.name!r} already: call init_app once per app."
            )
        app.config.setdefault("DISTLOCK", None)
        app.config.setdefault("DISTLOCK_CONTENDED_STATUS", 423)
        state = State(Services(lambda: _read(app)), self._user)
        app.extensions[KEY] = state
        # First of all: an earlier hook might answer, and the mistake would go unseen.
        app.before_request_funcs.setdefault(None, []).insert(0, lambda: _check_once(app, state))
        for error in ANSWERED:
            app.register_error_handler(error, _answer)

    def __getitem__(self, alias: str) -> Locks:
        """The client of *alias* of the current app. Raises `ConfigurationError`. Connects to nothing."""
        return current_state().services[alias]

    def lock(self, *names: str, timeout: float | None = None, ttl: float | None = None) -> Lock:
        """A lock of the default alias; see `distlock.Locks.lock`."""
        return self[DEFAULT_ALIAS].lock(*names, timeout=timeout, ttl=ttl)

    def rlock(self, *names: str, timeout: float | None = None, ttl: float | None = None) -> RLock:
        """A re-entrant lock of the default alias; see `distlock.Locks.rlock`."""
        return self[DEFAULT_ALIAS].rlock(*names, timeout=timeout, ttl=ttl)

    def distributed_lock(
        self,
        *names: NameSource,
        alias: str = DEFAULT_ALIAS,
        timeout: float | None = None,
        ttl: float | None = None,
        methods: Iterable[str] | None = None,
        on_contended: str = "respond",
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """`flask_distlock.distributed_lock`, for those who have the extension at hand."""
        return distributed_lock(
            *names, alias=alias, timeout=timeout, ttl=ttl, methods=methods, on_contended=on_contended
        )

    def close(self) -> None:
        """Close the clients of the current app. They may be used again."""
        current_state().services.reset()


def current_state() -> State:
    """What the extension keeps for the current app. Raises `ConfigurationError` where there is none."""
    if not has_app_context():
        raise ConfigurationError(
            "No Flask app is current, so no lock service is known: write 'with app.app_context():'."
        )
    state = current_app.extensions.get(KEY)
    if state is None:
        raise ConfigurationError(
            f"The app {current_app.name!r} has no DistLock: write 'DistLock(app)', or 'locks.init_app(app)'."
        )
    assert isinstance(state, State)
    return state


def _read(app: Flask) -> dict[str, Service]:
    setting = app.config["DISTLOCK"]
    return without_settings(app.debug) if setting is None else read(setting)


def _check_once(app: Flask, state: State) -> None:
    if state.checked:
        return
    with state.mutex:
        if not state.checked:
            # Not marked before it has passed: a site that is set up wrongly stays loud.
            contended_status(app.config["DISTLOCK_CONTENDED_STATUS"])
            check_placement(app)
            state.sessions.watch(app)
            state.checked = True


def _answer(error: LockError) -> Any:
    """Lock errors that leave a view: the same answers, through the site's own error handlers."""
    exception = exception_for(error)
    assert exception is not None  # It is one of ANSWERED.
    logger.log(log_level(error), "%s answered %s: %s", request.endpoint, exception.code, error)
    return current_app.handle_http_exception(exception)
