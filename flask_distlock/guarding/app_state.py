"""The state that the extension keeps for one app, and how it finds the ``db.session`` of the app.

This module imports `flask_distlock.sql` only for apps that have a session, because it needs SQLAlchemy.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from flask import Flask, appcontext_pushed, current_app, has_app_context

from distlock.errors import ConfigurationError
from distlock.grants.current import CurrentGrant, current_grants
from distlock.grants.grant import Grant
from distlock.web.batch import BatchSeat
from distlock.web.guard import Transactions
from distlock.web.guard_options import one_database
from distlock.web.settings.clients import Clients
from distlock.web.stale_writes import SETTING as STALE_WRITES
from distlock.web.stale_writes import Mode, add_detector, mode_of
from flask_distlock.guarding.kept_locks import KeptLock, ServedRequest
from flask_distlock.guarding.request import UserKey
from flask_distlock.private import put_around

if TYPE_CHECKING:
    from flask_distlock.sql.sessions import Sessions

View = Callable[..., Any]


#: The apps that `DistLock` serves.
_apps: WeakSet[Flask] = WeakSet()


def detect_stale_writes(app: Flask | None = None) -> None:
    """Turn the detector of stale writes on if the configuration of any served app wants it, else off.

    There is one detector, because all apps of the process share SQLAlchemy's events. *app*: an app that is
    served from now on; None: the served apps stay the same. Raises `ConfigurationError` for an unknown
    setting.
    """
    if app is not None:
        _mode_in(app)
        _apps.add(getattr(app, "_get_current_object", lambda: app)())
    wanted = any(_mode_in(one) != "off" for one in tuple(_apps))
    if "sqlalchemy.orm" in sys.modules and (wanted or _DETECTOR in sys.modules):
        from flask_distlock.sql.stale_writes import switch

        switch(wanted, _mode_here)


_DETECTOR = "flask_distlock.sql.stale_writes"


def _mode_in(app: Flask) -> Mode:
    return mode_of(app.config.get(STALE_WRITES), app.debug)


def _mode_here() -> Mode:
    """Return how stale writes of the running code are reported: as the current app says, else by warnings."""
    return _mode_in(current_app) if has_app_context() else "warn"


add_detector(detect_stale_writes)


class GuardTransactions(Transactions, Protocol):
    """The transactions of ``db.session`` in one call of a guard, or in one ``with`` block."""

    #: The result of the guarded function.
    result: object

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        """See `distlock.web.guard.Keep`."""

    def leave(self, current: CurrentGrant, /, failed: bool) -> ExitStack | None:
        """Do as `keep`, for a ``with`` block whose lock is no row. *failed*: whether an exception ends it."""


@dataclass
class NoSession:
    """`GuardTransactions` of an app without a session. It begins no transaction."""

    where: str
    is_view: bool
    request: ServedRequest | None
    result: object = field(default=None, init=False)

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        """Do nothing, because no transaction is open."""

    def begin(
        self, grant: Grant, fenced_in: str | None, left: Callable[[], float]
    ) -> AbstractContextManager[bool]:
        if fenced_in is not None:
            raise ConfigurationError(
                f"{self.where} has a fence, which needs the db.session of Flask-SQLAlchemy: write "
                "'db.init_app(app)' before the first request, or leave fence= out."
            )
        return nullcontext(False)

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        """Keep a view's lock until the request is over, because hooks and teardowns may still commit."""
        request = self.request
        if not self.is_view or request is None or request.closed:
            return None
        return request.keep(current, KeptLock(self.where))

    def leave(self, current: CurrentGrant, /, failed: bool) -> None:
        """Do nothing, because the lock ends with the block."""


def inside_guard() -> bool:
    """Return whether a guard is around the running code."""
    return any(one.running for one in current_grants())


KEY = "distlock"


@dataclass(eq=False)
class State:
    """The extension's state in ``app.extensions["distlock"]``."""

    clients: Clients
    #: Returns the user's key; None: Flask-Login is asked.
    user: UserKey | None = None
    #: Makes the transactions of a guard or block. Arguments: its name in messages, whether it is a view, and
    #: the request that may keep its lock after the call.
    transactions: Callable[[str, bool, ServedRequest | None], GuardTransactions] = field(
        default_factory=lambda: NoSession, init=False
    )
    #: What is known of the app's ``db.session``; None: `watch` has not found one yet.
    sessions: Sessions | None = field(default=None, init=False)
    #: Whether the checks at the first request have passed.
    checked: bool = field(default=False, init=False)
    #: The views that were wrapped in locks of rules or base classes, by endpoint.
    ruled: dict[str, Callable[..., Any]] = field(default_factory=dict, init=False)
    mutex: threading.RLock = field(default_factory=threading.RLock, init=False)

    def watch_contexts(self, app: Flask) -> None:
        """Call `watch` at each app context of *app*, and note changes that the end of a context drops."""
        # No earlier event is needed: a session can be used only in an app context.
        appcontext_pushed.connect(self.watch, app)
        put_around(app, "do_teardown_appcontext", self._noting_dropped)

    def _noting_dropped(self, teardown: View) -> View:
        """Return *teardown*, which ends an app context, wrapped to note changes that it drops in a guard."""

        def do_teardown_appcontext(*args: Any) -> Any:
            sessions = self.sessions
            # After an exception the changes are meant to be dropped.
            if sessions is None or isinstance(args[-1], BaseException):
                return teardown(*args)
            session = sessions.current()
            if session is None or not session.in_transaction() or not inside_guard():
                return teardown(*args)
            with sessions.noting_dropped(session):
                return teardown(*args)

        return do_teardown_appcontext

    def watch(self, app: Flask, **_: Any) -> None:
        """Find the session of *app*, and listen to its events, unless that was done before."""
        # Don't use getattr(): the property `session` of Flask-SQLAlchemy-Lite would make a session.
        session = getattr(app.extensions.get("sqlalchemy"), "__dict__", {}).get("session")
        if session is (None if self.sessions is None else self.sessions.session):
            # It is the same session as before. A test may replace the session at any time.
            return
        orm = sys.modules.get("sqlalchemy.orm")
        if orm is None or not isinstance(session, orm.scoped_session):
            return
        from flask_distlock.sql.sessions import SessionTransactions, sessions_of

        with self.mutex:
            sessions = sessions_of(session)
            self.transactions = partial(SessionTransactions, sessions)
            detect_stale_writes(app)
            # Set this last: other threads take it as a sign that everything else is done.
            self.sessions = sessions

    def in_batch(
        self, where: str, is_view: bool, fenced_in: str | None, seat: BatchSeat, most: int
    ) -> GuardTransactions:
        """Make the transactions of a call in a batch.

        Raises `ConfigurationError` if the guard has no fence, or the app no session.
        """
        if fenced_in is None or self.sessions is None:
            raise one_database(where, [])
        from flask_distlock.sql.batch_transactions import SessionBatchTransactions

        return SessionBatchTransactions(self.sessions, where, is_view, None, seat, most)


def current_state() -> State:
    """Return the extension's state for the current app.

    Raises `ConfigurationError` if there is no current app, or `DistLock` does not serve it.
    """
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
