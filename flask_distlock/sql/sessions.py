"""What is known of the ``db.session`` of an app, and what a guard does about it.

It starts fresh, and its lock is kept while it may be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from flask import Flask, Request, current_app, has_app_context, has_request_context, request
from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from distlock.errors import ConfigurationError, LockLost
from distlock.grants.current import CurrentGrant, current_grants, inherited
from distlock.grants.grant import Grant
from distlock.web.guard import check_held
from distlock.web.stack import STACK
from flask_distlock.binds import engine_of, shown
from flask_distlock.guarding.request import refuse_unpassed, status_of
from flask_distlock.guarding.whole_request import KeptLock, served_request
from flask_distlock.sql.changes import NOTHING, Changes, Work, joins, shared_connection
from flask_distlock.sql.fence_row import Fenced, Fences, Left, fenced

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
        self._kept: WeakKeyDictionary[Session, list[KeptLock]] = WeakKeyDictionary()
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
        """Return the session of this request, if it was used already."""
        if not has_app_context() or not self.session.registry.has():
            return None
        return self.session()

    def roll_back(self) -> None:
        """Roll back what this request has open in the session."""
        if (session := self.current()) is not None:
            session.rollback()

    def before_view(self, request: Request) -> None:
        """Note the state in which the view of *request* begins."""
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
    def noting_dropped(self, session: Session) -> Iterator[None]:
        """Note changes of *session* that the block drops, which tears its app context down.

        They are noted for the guards around the code that leaves the context.
        """
        if self.changes.of(session):
            self._leaving.add(session)
        try:
            yield
        finally:
            if session in self._leaving:
                self._leaving.discard(session)
                self.dropped.update(one.grant for one in current_grants() if one.running)

    def keep(self, session: Session, kept: KeptLock) -> None:
        """Let *kept* go when the transaction of *session* has ended."""
        self._kept.setdefault(session, []).append(kept)

    def after_begin(self, session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        self.changes.begin(session, connection)
        if self.fences.open:
            self.fences.begin(session, connection)

    def before_commit(self, session: Session) -> None:
        refuse_unpassed()
        # Nothing is written yet, and nothing will be if this raises: commit() of the view does.
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
                for one in inherited():
                    one.grant._note_commit()
                    self.committed.add(one.grant)
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


def refuse_opened(
    session: Session, changes: Changes, where: str, names: Sequence[str], nested: bool, mine: Work | None
) -> None:
    """Raise `ConfigurationError` if the transaction of *session* must not be ended before the lock *names*.

    *nested*: a guard is around *where*. *mine*: what the code that asks has done there itself, and may rely
    on; None: all of it was a hook's, as to load the user.
    """
    shown = ", ".join(map(repr, names))
    if nested:
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside the transaction of the guard around it: "
            f"name all locks in one place, the outer one: @distributed_lock(…, {shown}), or the rule. "
            f"{STACK}"
        )
    if _begun(session):
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside a transaction that db.session.begin() has "
            "opened, and released before its COMMIT: write 'with db.session.begin():' inside "
            f"{where}, or @distributed_lock(…) on the function around both."
        )
    if changes.of(session):
        raise ConfigurationError(
            f"db.session has changes that are not committed, and {where} is about to wait for "
            f"{shown}. They would be committed together. Call db.session.commit() or rollback() before."
        )
    if joins(session):
        # A lock that is held there belongs to the code that has begun it, and stays.
        return
    locks = changes.holds_locks(session)
    if locks or (mine is not None and mine.acts):
        raise ConfigurationError(
            f"{where} is about to wait for {shown} inside a transaction of db.session which has locked rows "
            "or a table, as with SELECT … FOR UPDATE, has an advisory lock, or has set something, as with "
            "SET LOCAL. Ending it would release that. Do that under the lock, or call db.session.commit() or "
            "rollback() before."
        )
    if mine is not None and locks is None:
        raise ConfigurationError(
            f"{where} would be locked on {shown} inside a transaction of db.session, which the code around "
            "has begun with a query, and the database can't tell what it has locked there. Take the lock "
            "before the first query, or call db.session.commit() or rollback() before."
        )


def _begun(session: Session) -> bool:
    """Tell whether somebody has begun the transaction of *session* in so many words, and means to end it."""
    transaction = session.get_transaction()
    explicit = transaction is not None and transaction.origin.name == "BEGIN"
    return explicit or session.in_nested_transaction()


class SessionTransactions:
    """See `flask_distlock.guarding.state.GuardTransactions`."""

    def __init__(self, sessions: Sessions, where: str, is_view: bool, outlives: bool) -> None:
        self.sessions = sessions
        self._where = where
        self.is_view = is_view
        self._outlives = outlives
        #: The result of the function.
        self.result: object = None
        #: Ends the fencing, where that comes after the call.
        self._open: ExitStack | None = None
        self._changed = False

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        sessions, session = self.sessions, self.sessions.current()
        if session is None:
            return
        if session.in_transaction():
            mine = None if self.is_view else sessions.done_by_view(session)
            refuse_opened(session, sessions.changes, self._where, names, nested, mine)
            # Rows that were read before the lock may be stale by the time we have it. Reading again is cheap.
            if mine is not None and joins(session):
                # A ROLLBACK would be that of the test around it.
                session.expire_all()
            else:
                session.rollback()
        elif not sessions.changes.known(session):
            # With expire_on_commit=False it still knows what it read before the lock.
            session.expire_all()

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Left) -> Iterator[bool]:
        with ExitStack() as stack:
            if fenced_in is not None:
                self._pass_fence(stack, grant, fenced_in, left)
            try:
                # The view commits by itself; `Sessions` checks the lock then.
                yield False
                # A reader may have nothing to commit, and answers all the same.
                if fenced_in is not None and (session := self.sessions.current()) is not None:
                    self._look_again(session)
                self._refuse_dropped(grant)
            except BaseException:
                # An error handler might commit what the view left behind.
                self.sessions.roll_back()
                raise
            if self.is_view and self._outlives and served_request() is not None:
                is_open = self._leave_to_request()
                # A row's lock ends with its transaction.
                if is_open or not grant.held_by_transaction:
                    self._open = stack.pop_all()
            elif self._may_be_committed_later():
                self._open = stack.pop_all()

    def leave(self, current: CurrentGrant, /, failed: bool) -> ExitStack | None:
        if self._may_be_committed_later(failed):
            self._open = ExitStack()
        return self.keep(current)

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        request, session = served_request(), self.sessions.current()
        if request is None:
            return None
        # A row's lock is over as soon as its transaction is.
        by_request = self.is_view and self._outlives and not current.grant.held_by_transaction
        if not by_request and (self._open is None or session is None):
            return None
        kept = KeptLock(
            self._where,
            None if session is None or (joins(session) and not self._changed) else session,
            self._open,
            changed=self._changed,
            committed=current.grant in self.sessions.committed,
            until_transaction=not by_request,
        )
        if session is not None:
            self.sessions.keep(session, kept)
        return request.keep(current, kept)

    def _leave_to_request(self) -> bool:
        """Leave what is open to the hooks of the request, unless the view refuses. Returns whether it is."""
        session = self.sessions.current()
        if session is None or not session.in_transaction():
            return False
        if not self._refuses():
            self._changed = self.sessions.changes.of(session) is True
        elif not joins(session):
            session.rollback()
        return session.in_transaction()

    def _pass_fence(self, stack: ExitStack, grant: Grant, fenced_in: str, left: Left) -> None:
        """Let every transaction of the session pass the fence of this bind, until *stack* is closed."""
        engine = self.engine_of(fenced_in)
        session = self.sessions.session()
        stack.enter_context(fenced(session, engine, grant, left, fenced_in))
        # The rows of the fence are locked until these transactions end.
        stack.callback(self.sessions.roll_back)
        stack.callback(session.rollback)
        stack.enter_context(self.sessions.fences.passing(session, Fenced(engine, grant, left)))

    def _look_again(self, session: Session) -> None:
        if session.in_transaction():
            self.sessions.fences.look_again(session)
            if not self._refuses():
                # The view has not called session.commit(). If the driver's commit() stood in its place, more
                # than the fenced transaction may have been committed.
                self.sessions.fences.refuse_ended(session)

    def _refuse_dropped(self, grant: Grant) -> None:
        """Raise `ConfigurationError` if the call succeeds, and has left an app context with changes."""
        if grant in self.sessions.dropped and not self._refuses():
            raise ConfigurationError(
                f"{self._where} has left an app context, as at the end of 'with app.app_context():', with "
                "uncommitted changes in its db.session, which are rolled back: call db.session.commit() or "
                "rollback() inside that block."
            )

    def _refuses(self) -> bool:
        """Return whether the view answers with an error: what it leaves behind was not meant to stay."""
        return self.is_view and status_of(self.result) >= 400

    @contextmanager
    def ending_all(self, grant: Grant) -> Iterator[None]:
        """End what is open in the session after the block. Raises `ConfigurationError` for changes."""
        try:
            yield
            self._refuse_dropped(grant)
            # The view has its last moment to commit now: nothing is kept.
            self._may_be_committed_later()
        finally:
            self.sessions.roll_back()

    def engine_of(self, fenced_in: str) -> Engine:
        engine: Engine | None = engine_of(fenced_in)
        if engine is None:
            db: Any = current_app.extensions["sqlalchemy"]
            raise ConfigurationError(
                f"{self._where} has fence={fenced_in!r}, which SQLALCHEMY_BINDS does not have: it has "
                f"{shown(bind for bind in db.engines if bind is not None)}."
            )
        return engine

    def _may_be_committed_later(self, failed: bool = False) -> bool:
        """Tell whether the site may still commit what the call has left. Else it is rolled back.

        Changes that nobody will commit are an error, unless the call has *failed*.
        """
        session = self.sessions.current()
        if session is None or not session.in_transaction():
            return False
        changed = False if self._refuses() else self.sessions.changes.of(session)
        self._changed = changed is True and not failed
        if not changed and joins(session):
            # The transaction is that of a test, around the whole request. No COMMIT of the site ends it.
            return False
        if changed is not False and self._outlives and served_request() is not None:
            return True
        session.rollback()
        if self._changed:
            raise ConfigurationError(
                f"{self._where} returned with uncommitted changes in db.session, and a commit after its lock "
                "is released would be seen too late by the next. They are rolled back: call "
                "db.session.commit() inside it."
            )
        return False
