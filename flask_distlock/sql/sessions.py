"""What is known of the ``db.session`` of an app: what is open in it, what it has changed, what it passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from flask import Flask, Request, current_app, has_app_context, has_request_context, request
from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from distlock.errors import LockLost
from distlock.grants.current import current_grants, inherited
from distlock.grants.grant import Grant
from distlock.web.guard import check_held, note_commit
from flask_distlock.guarding.kept_lock import KeptSession
from flask_distlock.guarding.required import refuse_unpassed
from flask_distlock.sql.changes import NOTHING, Changes, Work
from flask_distlock.sql.joining import shared_connection
from flask_distlock.sql.session_fences import Fences

#: The events of SQLAlchemy: methods of `Sessions`.
_EVENTS = ("after_begin", "before_commit", "after_commit", "after_transaction_end")


class Sessions:
    """The sessions that one app has had as its ``db.session``. *session*: what it is now."""

    def __init__(self, session: scoped_session[Session]) -> None:
        self.session = session
        self.changes = Changes()
        self.fences = Fences(self._is_current)
        #: The grants of guards under which a transaction was committed.
        self.committed: WeakSet[Grant] = WeakSet()
        #: The grants of guards whose functions have left an app context with uncommitted changes.
        self.dropped: WeakSet[Grant] = WeakSet()
        #: Sessions with changes whose app context is torn down.
        self._leaving: WeakSet[Session] = WeakSet()
        #: The locks that are kept until the transaction of a session has ended, the innermost first.
        self._kept: WeakKeyDictionary[Session, list[KeptSession]] = WeakKeyDictionary()
        #: The state when the view of a request began, and the work in it.
        self._before_view: WeakKeyDictionary[Request, tuple[SessionTransaction | None, Work]] = (
            WeakKeyDictionary()
        )

    def follow(self, session: scoped_session[Session], app: Flask) -> None:
        """Hear from now on what becomes of *session* in the contexts of *app*."""
        followers = _followers.get(session)
        if followers is None:
            followers = _followers[session] = WeakKeyDictionary()
            for name in _EVENTS:
                event.listen(session, name, _teller(name, followers))
        # The app itself: a weak reference to its proxy would not last.
        followers[getattr(app, "_get_current_object", lambda: app)()] = self
        self.session = session

    def current(self) -> Session | None:
        """The session of this request, if it was used already."""
        if not has_app_context() or not self.session.registry.has():
            return None
        return self.session()

    def before_view(self, request: Request) -> None:
        """The view of *request* is about to begin."""
        if (session := self.current()) is not None:
            self._before_view[request] = session.get_transaction(), self.changes.work(session)
        else:
            self._before_view[request] = None, NOTHING

    def done_by_view(self, session: Session) -> Work | None:
        """Return what the view, or the script, has done in the open transaction of *session*.

        None: nothing. Hooks have begun it, as a login does.
        """
        done = self.changes.work(session)
        if not has_request_context():
            return done
        known, asked = self._before_view, request._get_current_object()  # type: ignore[attr-defined]
        opened, before = known.get(asked, (session.get_transaction(), done))
        if opened is not session.get_transaction():
            return done
        mine = Work(done.all - before.all, done.acts - before.acts)
        return mine if mine.all else None

    @contextmanager
    def noting_dropped(self) -> Iterator[None]:
        """The block tears the current app context down: note changes of its session that it does not commit.

        They are noted for the guards around the code that leaves the context.
        """
        session = self.current()
        if session is None or not (self.changes.known(session) or session.in_transaction()):
            yield
            return
        if self.changes.of(session):
            self._leaving.add(session)
        try:
            yield
        finally:
            if session in self._leaving:
                self._leaving.discard(session)
                self.dropped.update(one.grant for one in current_grants() if one.running)

    def keep(self, session: Session, kept: KeptSession) -> None:
        """Let *kept* go when the transaction of *session* has ended."""
        self._kept.setdefault(session, []).append(kept)

    def after_begin(self, session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        self.changes.begin(session, connection)
        if self.fences.open:
            self.fences.begin(session, connection)

    def before_commit(self, session: Session) -> None:
        refuse_unpassed()
        # The last moment at which nothing has happened yet: a lost lock makes the view's commit() raise.
        try:
            check_held()
            if self.fences.open:
                self.fences.refuse_commit(session, self.changes.known)
        except LockLost as error:
            for kept in self._kept.get(session, ()):
                kept.refused = error
            raise

    def after_commit(self, session: Session) -> None:
        if not session.in_nested_transaction():
            self._leaving.discard(session)
            if shared_connection.get() is None:
                note_commit()
                self.committed.update(one.grant for one in inherited())
            if self.fences.open:
                self.fences.committed(session)
            for kept in self._kept.get(session, ()):
                kept.committed = True

    def after_transaction_end(self, session: Session, transaction: SessionTransaction) -> None:
        self.changes.end(session)
        for kept in tuple(self._kept.get(session, ())):
            kept.transaction_ended()

    def _is_current(self, session: Session) -> bool:
        return session is self.current()


# One listener for each event of a session, however many apps share it, as in a test suite.

_Followers = WeakKeyDictionary[Flask, Sessions]
_followers: WeakKeyDictionary[scoped_session[Session], _Followers] = WeakKeyDictionary()

#: The extensions in whose apps a session was used.
_of: WeakKeyDictionary[Session, WeakSet[Sessions]] = WeakKeyDictionary()


def _teller(name: str, followers: _Followers) -> Callable[..., None]:
    def tell(session: Session, *args: Any) -> None:
        if args and args[0].parent is not None:
            # A savepoint, or a flush, is part of a transaction.
            return
        known = _of.setdefault(session, WeakSet())
        if has_app_context():
            app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
            if (here := followers.get(app)) is not None:
                known.add(here)
        # All of them where it was used in none of their apps.
        for one in tuple(known or followers.values()):
            getattr(one, name)(session, *args)

    return tell
