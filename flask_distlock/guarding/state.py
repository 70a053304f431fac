"""What the extension keeps for one app."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flask import current_app, has_app_context

from distlock.errors import ConfigurationError
from distlock.web.settings.clients import Clients
from flask_distlock.guarding.request import UserKey
from flask_distlock.guarding.session import AppSession

KEY = "distlock"


@dataclass
class State:
    """The extension's state in ``app.extensions["distlock"]``."""

    clients: Clients
    #: Gives the user's key; None: Flask-Login's.
    user: UserKey | None = None
    session: AppSession = field(default_factory=AppSession)
    mutex: threading.Lock = field(default_factory=threading.Lock)
    #: Whether the first request has come, and found nothing wrong.
    checked: bool = False
    #: The views that have rules around them, by endpoint.
    ruled: dict[str, Callable[..., Any]] = field(default_factory=dict)


def current_state() -> State:
    """Return the extension's state for the current app. Raises `ConfigurationError` if there is none."""
    if not has_app_context():
        raise ConfigurationError(
            "There is no current Flask app, so the lock service is not known: write 'with "
            "app.app_context():'."
        )
    state = current_app.extensions.get(KEY)
    if state is None:
        raise ConfigurationError(
            f"The app {current_app.name!r} has no DistLock: write 'DistLock(app)', or 'locks.init_app(app)'."
        )
    assert isinstance(state, State)
    return state
