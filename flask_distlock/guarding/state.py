"""The state that the extension keeps for one app, and its ``db.session``, if it has one.

SQLAlchemy is there only where an app has a session: nothing else imports `flask_distlock.sql`.
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
from distlock.web.stale_writes import Mode, add_face, mode_of
from flask_distlock.guarding.request import UserKey
from flask_distlock.guarding.whole_request import KeptLock, ServedRequest
from flask_distlock.private import put_around

if TYPE_CHECKING:
    from flask_distlock.sql.sessions import Sessions

View = Callable[..., Any]


#: The apps that are served.
_served: WeakSet[Flask] = WeakSet()


def detect_stale_writes(app: Flask | None = None) -> None:
    """Turn the detector of stale writes on or off, as the configuration of the served apps wants it.

    *app*: is served from now on. SQLAlchemy's events are those of the whole process. Raises
    `ConfigurationError` for a setting that means nothing.
    """
    if app is not None:
        _mode_in(app)
        _served.add(getattr(app, "_get_current_object", lambda: app)())
    wanted = any(_mode_in(one) != "off" for one in tuple(_served))
    if "sqlalchemy.orm" in sys.modules and (wanted or _DETECTOR in sys.modules):
        from flask_distlock.sql.stale_writes import switch

        switch(wanted, _mode_here)


_DETECTOR = "flask_distlock.sql.stale_writes"


def _mode_in(app: Flask) -> Mode:
    return mode_of(app.config.get(STALE_WRITES), app.debug)


def _mode_here() -> Mode:
    """Return how stale writes are told to the running code."""
    return _mode_in(current_app) if has_app_context() else "warn"


add_face(detect_stale_writes)


class GuardTransactions(Transactions, Protocol):
    """The handling of the session by one guard, or one block."""

    #: Whether the guard's call is that of a view.
    is_view: bool
    #: The result of its function.
    result: object

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        """See `distlock.web.guard.Keep`."""

    def leave(self, current: CurrentGrant, /, failed: bool) -> ExitStack | None:
        """Do as `keep`, for a block that begins no transaction. *failed*: it ends because of an error."""


@dataclass
class NoSession:
    """The transactions of a guard in an app without a session: nothing is begun or fenced."""

    where: str
    is_view: bool
    request: ServedRequest | None
    result: object = field(default=None, init=False)

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        """Do nothing: no transaction is open."""

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
        """Keep a view's lock until the request is over: hooks and teardowns may commit what it has done."""
        request = self.request
        if not self.is_view or request is None or request.closed:
            return None
        return request.keep(current, KeptLock(self.where))

    def leave(self, current: CurrentGrant, /, failed: bool) -> None:
        """Do nothing: nothing outlives the block."""


def inside_guard() -> bool:
    """Tell whether a guard is around the running code, which has the transaction."""
    return any(one.running for one in current_grants())


KEY = "distlock"


@dataclass(eq=False)
class State:
    """The extension's state in ``app.extensions["distlock"]``."""

    clients: Clients
    #: Returns the user's key; None: Flask-Login's.
    user: UserKey | None = None
    #: Makes the transactions of a guard or block: of what messages call it, whether it is a view, and the
    #: request with which its lock may be kept after the call.
    transactions: Callable[[str, bool, ServedRequest | None], GuardTransactions] = field(
        default_factory=lambda: NoSession, init=False
    )
    #: What is known of the app's ``db.session``; None if the app has none yet.
    sessions: Sessions | None = field(default=None, init=False)
    #: Whether the first request has come, and found nothing wrong.
    checked: bool = field(default=False, init=False)
    #: The views that have rules around them, by endpoint.
    ruled: dict[str, Callable[..., Any]] = field(default_factory=dict, init=False)
    mutex: threading.RLock = field(default_factory=threading.RLock, init=False)

    def look_out(self, app: Flask) -> None:
        """Watch the app's session from the first app context in which it is there."""
        # There is no use of the session before that.
        appcontext_pushed.connect(self.watch, app)
        put_around(app, "do_teardown_appcontext", self._noting_dropped)

    def _noting_dropped(self, teardown: View) -> View:
        """Return *teardown*, which ends an app context, with a note of changes dropped under a guard."""

        def do_teardown_appcontext(*args: Any) -> Any:
            sessions = self.sessions
            # A block that fails was not meant to change anything.
            if sessions is None or isinstance(args[-1], BaseException):
                return teardown(*args)
            session = sessions.current()
            if session is None or not session.in_transaction() or not inside_guard():
                return teardown(*args)
            with sessions.noting_dropped(session):
                return teardown(*args)

        return do_teardown_appcontext

    def watch(self, app: Flask, **_: Any) -> None:
        """Find the app's session, and follow what is written in it."""
        # Flask-SQLAlchemy-Lite has a property, which would make a session.
        session = getattr(app.extensions.get("sqlalchemy"), "__dict__", {}).get("session")
        if session is (None if self.sessions is None else self.sessions.session):
            # It may be replaced at any time, as in tests.
            return
        orm = sys.modules.get("sqlalchemy.orm")
        if orm is None or not isinstance(session, orm.scoped_session):
            return
        from flask_distlock.sql.sessions import SessionTransactions, sessions_of

        with self.mutex:
            sessions = sessions_of(session)
            self.transactions = partial(SessionTransactions, sessions)
            detect_stale_writes(app)
            # Last: another thread takes it for a sign that all of that is done.
            self.sessions = sessions

    def in_batch(
        self, where: str, is_view: bool, fenced_in: str | None, seat: BatchSeat, most: int
    ) -> GuardTransactions:
        """Make `transactions` for a call that may share them. Raises `ConfigurationError` where it can't."""
        if fenced_in is None or self.sessions is None:
            raise one_database(where, [])
        from flask_distlock.sql.batches import SessionBatchTransactions

        return SessionBatchTransactions(self.sessions, where, is_view, None, seat, most)

    def roll_back(self) -> None:
        """Roll back what this request has open in the session."""
        if self.sessions is not None:
            self.sessions.roll_back()


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
