"""Follows the ``db.session`` of an app, and handles it under the locks of guards.

Under a guard's lock, a session does not reuse rows that it read before, and the lock is kept while the
session may still be committed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from flask import Request, current_app, has_app_context, has_request_context, request
from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from distlock.errors import ConfigurationError, LockLost
from distlock.grants.current import CurrentGrant, current_grants
from distlock.grants.grant import Grant
from distlock.web.guard import check_held
from distlock.web.guard_stack import STACK
from flask_distlock.binds import engine_of, shown
from flask_distlock.guarding.kept_locks import KeptLock, ServedRequest
from flask_distlock.guarding.request import required_lock, status_of
from flask_distlock.sql.changes import NOTHING, Changes, Work, joins, shared_connection
from flask_distlock.sql.fenced_sessions import Fenced, Fences, Left, fenced

#: The events of SQLAlchemy that `Sessions` has methods for.
_EVENTS = ("after_begin", "before_commit", "after_commit")


class Sessions:
    """The sessions that one ``db.session`` makes. Several apps may share it."""

    def __init__(self, session: scoped_session[Session]) -> None:
        self.session = session
        self.changes = Changes()
        self.fences = Fences(self._is_current)
        #: The grants of guards under which a transaction was committed.
        self.committed: WeakSet[Grant] = WeakSet()
        #: The grants of guards whose functions have left an app context with uncommitted changes.
        self.dropped: WeakSet[Grant] = WeakSet()
        #: Sessions with changes whose app context is being torn down.
        self._leaving: WeakSet[Session] = WeakSet()
        #: The locks that each session keeps in its request.
        self.kept: WeakKeyDictionary[Session, list[KeptLock]] = WeakKeyDictionary()
        #: The grants under which each session is about to commit.
        self._held: WeakKeyDictionary[Session, Sequence[CurrentGrant]] = WeakKeyDictionary()
        #: The transaction that was open when the view of a request began, and the statements sent in it.
        self._before_view: WeakKeyDictionary[Request, tuple[SessionTransaction | None, Work]] = (
            WeakKeyDictionary()
        )

    def follow(self) -> None:
        """Listen from now on to the events of the sessions."""
        for name in _EVENTS:
            event.listen(self.session, name, getattr(self, name))

    def current(self) -> Session | None:
        """Return the session of the current app context, or None if none was used there yet."""
        return self.session() if has_app_context() and self.session.registry.has() else None

    def roll_back(self) -> Session | None:
        """Roll back the open transaction of the current session. Return the session, or None."""
        if (session := self.current()) is not None:
            session.rollback()
        return session

    def before_view(self, request: Request) -> None:
        """Note which transaction is open when the view of *request* begins, and what was sent in it."""
        transaction, done = None, NOTHING
        if self.session.registry.has() and (session := self.session()).in_transaction():
            transaction, done = session.get_transaction(), self.changes.work(session)
        self._before_view[request] = transaction, done

    def done_by_view(self, session: Session) -> Work | None:
        """Return the statements that the view, or a script, has sent in the open transaction of *session*.

        None: it sent none, and a hook has begun the transaction, for example to load the user.
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
        """Note changes of *session* that the block, which tears down the app context, drops.

        `dropped` then has the grants of the guards around the code that leaves the context.
        """
        if self.changes.of(session):
            self._leaving.add(session)
        try:
            yield
        finally:
            if session in self._leaving:
                self._leaving.discard(session)
                self.dropped.update(one.grant for one in current_grants() if one.running)

    def after_begin(self, session: Session, transaction: SessionTransaction, connection: Connection) -> None:
        # SQLAlchemy calls this for savepoints, too, whose transaction was begun before.
        if transaction.parent is None:
            self.changes.begin(transaction, connection)
            if self.fences.open:
                self.fences.begin(session, connection)

    def before_commit(self, session: Session) -> None:
        if (required := required_lock.get()) is not None:
            required.refuse()
        # An error here prevents COMMIT: commit() of the view raises it, and nothing is written.
        try:
            self._held[session] = check_held()
            if self.fences.open:
                self.fences.refuse_commit(session, self.changes.known)
        except LockLost as error:
            for kept in self.kept.get(session, ()):
                kept.refused = error
            raise

    def after_commit(self, session: Session) -> None:
        held = self._held.pop(session, ())
        if session.in_nested_transaction():
            return
        self._leaving.discard(session)
        if shared_connection.get() is None:
            for one in held:
                one.grant._note_commit()
                self.committed.add(one.grant)
        if self.fences.open:
            self.fences.committed(session)
        for kept in self.kept.get(session, ()):
            kept.committed = True

    def transaction_ended(self, session: Session, transaction: SessionTransaction) -> None:
        """Release the locks that *session* keeps until its transaction ends. A savepoint releases none."""
        if transaction.parent is None:
            for kept in tuple(self.kept.get(session, ())):
                kept.transaction_ended()

    def _is_current(self, session: Session) -> bool:
        return session is self.current()


#: The attribute of ``db.session`` with its `Sessions`, which therefore live as long as ``db.session``.
_SESSIONS = "distlock_sessions"
_mutex = threading.Lock()


def sessions_of(session: scoped_session[Session]) -> Sessions:
    """Return the `Sessions` of *session*. The first call makes them, and has them listen to *session*."""
    with _mutex:
        found: Sessions | None = vars(session).get(_SESSIONS)
        if found is None:
            found = Sessions(session)
            found.follow()
            setattr(session, _SESSIONS, found)
    return found


def refuse_opened(
    session: Session, changes: Changes, where: str, names: Sequence[str], nested: bool, mine: Work | None
) -> None:
    """Raise `ConfigurationError` if the transaction of *session* must not be ended before the lock *names*.

    *where*: the guard or block. *nested*: another guard is around it. *mine*: the statements that the calling
    code itself has sent in the transaction, and may rely on; None: only hooks have sent statements, for
    example to load the user.
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
        # The guard does not end a transaction that a test has begun, so its locks stay.
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
    """Return whether the site has begun the transaction of *session* explicitly, or a savepoint in it."""
    transaction = session.get_transaction()
    explicit = transaction is not None and transaction.origin.name == "BEGIN"
    return explicit or session.in_nested_transaction()


@dataclass
class SessionTransactions:
    """See `flask_distlock.guarding.app_state.GuardTransactions`."""

    sessions: Sessions
    #: The guarded function or the block, for messages.
    where: str
    is_view: bool
    #: The request that may keep the lock after the call; None: the lock ends with the call.
    request: ServedRequest | None
    result: object = field(default=None, init=False)
    #: The session at the end of the call.
    _session: Session | None = field(default=None, init=False)
    #: Ends the fencing when it is closed; None: the fencing, if there is any, ends with the call.
    _fencing: ExitStack | None = field(default=None, init=False)
    #: Whether the call has certainly left uncommitted changes.
    _changed: bool = field(default=False, init=False)

    def refuse_open(self, names: Sequence[str], nested: bool) -> None:
        sessions, session = self.sessions, self.sessions.current()
        if session is None:
            return
        if session.in_transaction():
            mine = None if self.is_view else sessions.done_by_view(session)
            refuse_opened(session, sessions.changes, self.where, names, nested, mine)
            # Rows that were read before the lock may be stale under the lock. Reading them again is cheap.
            if joins(session):
                # A ROLLBACK would end the transaction of the test around the request.
                session.expire_all()
            else:
                session.rollback()
        elif not sessions.changes.known(session):
            # With expire_on_commit=False the session still has objects that it read before the lock.
            session.expire_all()

    @contextmanager
    def begin(self, grant: Grant, fenced_in: str | None, left: Left) -> Iterator[bool]:
        with ExitStack() as stack:
            if fenced_in is not None:
                self._pass_fence(stack, grant, fenced_in, left)
            try:
                # False: the view itself commits, and `Sessions.before_commit` checks the lock.
                yield False
                session = self._session = self.sessions.current()
                # Look even if nothing will be committed: the response of a reader depends on the lock, too.
                if fenced_in is not None and session is not None:
                    self._check_fences(session)
                if grant in self.sessions.dropped:
                    self._refuse_dropped()
            except BaseException:
                # An error handler might commit the changes of the view.
                self._session = self.sessions.roll_back()
                raise
            if self.request is not None and self.request.closed:
                self.request = None
            is_open = session is not None and session.in_transaction()
            if self.is_view and self.request is not None:
                if session is not None and is_open:
                    is_open = self._leave_to_request(session)
                # If the lock is a row, it ends with its transaction.
                if is_open or fenced_in is None or not grant.held_by_transaction:
                    self._fencing = stack.pop_all()
            elif self._may_be_committed_later():
                self._fencing = stack.pop_all()

    def leave(self, current: CurrentGrant, /, failed: bool) -> ExitStack | None:
        self._session = self.sessions.current()
        if self._may_be_committed_later(failed):
            self._fencing = ExitStack()
        return self.keep(current)

    def keep(self, current: CurrentGrant, /) -> ExitStack | None:
        request, session = self.request, self._session
        if request is None or request.closed:
            return None
        # If the lock is a row, it ends with its transaction.
        is_row = current.fenced_in is not None and current.grant.held_by_transaction
        by_request = self.is_view and not is_row
        if not by_request and (self._fencing is None or session is None):
            return None
        kept = KeptLock(
            self.where,
            session,
            self._fencing or ExitStack(),
            changed=self._changed,
            committed_inside=current.grant in self.sessions.committed,
            until_transaction=not by_request,
            joined=session is not None and joins(session),
        )
        if session is not None:
            locks = self.sessions.kept.setdefault(session, [])
            locks.append(kept)
            kept.at_end = lambda: locks.remove(kept)
            if not by_request:
                event.listen(session, "after_transaction_end", self.sessions.transaction_ended)
        return request.keep(current, kept)

    def _leave_to_request(self, session: Session) -> bool:
        """Return whether a transaction stays open for the request's hooks. Roll back if the view failed.

        Also note in `_changed` whether the view has left changes.
        """
        if not self._refuses():
            self._changed = self.sessions.changes.of(session) is True
        elif not joins(session):
            session.rollback()
        return session.in_transaction()

    def _pass_fence(self, stack: ExitStack, grant: Grant, fenced_in: str, left: Left) -> None:
        """Let every transaction of the session pass the fence of the bind, until *stack* is closed."""
        engine = self.engine_of(fenced_in)
        session = self.sessions.session()
        stack.enter_context(fenced(session, engine, grant, left, fenced_in))
        # At the end, roll back transactions that are still open, because they lock the fence rows.
        stack.callback(self.sessions.roll_back)
        stack.callback(session.rollback)
        stack.enter_context(self.sessions.fences.passing(session, Fenced(engine, grant, left)))

    def _check_fences(self, session: Session) -> None:
        if session.in_transaction():
            self.sessions.fences.check_absent_rows(session)
            if not self._refuses():
                # The view has not called session.commit(). If it called the driver's commit() instead, it may
                # have committed more than the fenced transaction.
                self.sessions.fences.refuse_ended(session)

    def _refuse_dropped(self) -> None:
        """Raise `ConfigurationError` for changes that an app context has dropped, unless the view failed."""
        if not self._refuses():
            raise ConfigurationError(
                f"{self.where} has left an app context, as at the end of 'with app.app_context():', with "
                "uncommitted changes in its db.session, which are rolled back: call db.session.commit() or "
                "rollback() inside that block."
            )

    def _refuses(self) -> bool:
        """Return whether a view's response is an error, so that its open changes are rolled back."""
        return self.is_view and status_of(self.result) >= 400

    @contextmanager
    def ending_all(self, grant: Grant) -> Iterator[None]:
        """After the block, roll back the transaction that it left open.

        Raises `ConfigurationError` if that loses changes, unless the view failed.
        """
        try:
            yield
            if grant in self.sessions.dropped:
                self._refuse_dropped()
            self._session = self.sessions.current()
            # `request` is None in a batch, so this raises the error for changes that the block has left.
            self._may_be_committed_later()
        finally:
            self.sessions.roll_back()

    def engine_of(self, fenced_in: str) -> Engine:
        engine: Engine | None = engine_of(fenced_in)
        if engine is None:
            db: Any = current_app.extensions["sqlalchemy"]
            raise ConfigurationError(
                f"{self.where} has fence={fenced_in!r}, which SQLALCHEMY_BINDS does not have: it has "
                f"{shown(bind for bind in db.engines if bind is not None)}."
            )
        return engine

    def _may_be_committed_later(self, failed: bool = False) -> bool:
        """Return whether the site may still commit what the call has left. If not, roll it back.

        Raises `ConfigurationError` for changes that are rolled back, unless the call has *failed*.
        """
        session = self._session
        if session is None or not session.in_transaction():
            return False
        changed = False if self._refuses() else self.sessions.changes.of(session)
        self._changed = changed is True and not failed
        if not changed and joins(session):
            # A test has begun the transaction around the whole request, so no COMMIT of the site ends it.
            return False
        if changed is not False and self.request is not None:
            return True
        session.rollback()
        if self._changed:
            raise ConfigurationError(
                f"{self.where} returned with uncommitted changes in db.session, and a commit after its lock "
                "is released would be seen too late by the next. They are rolled back: call "
                "db.session.commit() inside it."
            )
        return False
