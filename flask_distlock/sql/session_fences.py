"""Which fences the transactions of a session pass: all those of the guards around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from flask import has_app_context
from flask.globals import app_ctx
from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session, SessionTransaction

from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.fence.passing import Again
from distlock.fence.row import RolledBack
from distlock.grants.grant import Grant
from distlock.modes import READ
from flask_distlock.sql.fence_row import fence_again, look_again_in, look_at_mark, watch

Left = Callable[[], float]


@dataclass(slots=True, eq=False)
class Fenced:
    """One guard, whose fence the transactions on *engine* pass."""

    engine: Engine
    grant: Grant
    left: Left
    #: Why the transaction that is open did not pass, or is not the one that did.
    refused: Exception | None = None
    #: Whether the lock was a row, which COMMIT has let go: what is read from then on may be stale.
    over: bool = False

    def end(self, error: BaseException) -> None:
        """The database has ended the transaction by itself, with *error*."""
        self.refused = RolledBack(self.grant.names)


class Fences:
    """*is_current*: whether a session is what ``db.session`` is just now."""

    def __init__(self, is_current: Callable[[Session], bool]) -> None:
        self._is_current = is_current
        #: The fences of all sessions, while their guards go on.
        self.open: set[Fenced] = set()
        #: The outermost first.
        self._of: WeakKeyDictionary[Session, tuple[Fenced, ...]] = WeakKeyDictionary()
        #: The same by app contexts: ``db.session.remove()`` in a view gives it another session.
        self._in: WeakKeyDictionary[Any, tuple[Fenced, ...]] = WeakKeyDictionary()

    def of(self, session: Session) -> tuple[Fenced, ...]:
        found = self._of.get(session, ())
        if found or not has_app_context():
            return found
        found = self._in.get(app_ctx._get_current_object(), ())  # type: ignore[attr-defined]
        return found if found and self._is_current(session) else ()

    @contextmanager
    def passing(self, session: Session, fenced: Fenced) -> Iterator[None]:
        """Every transaction of *session* in the block passes *fenced*, too, and the first one has done so."""
        context = app_ctx._get_current_object()  # type: ignore[attr-defined]
        self._of[session] = self._in[context] = (*self.of(session), fenced)
        watch(session.connection(bind_arguments={"bind": fenced.engine}), fenced.end)
        self.open.add(fenced)
        try:
            with beginnable(session):
                yield
        finally:
            # A guard around this one goes on, and one that is kept may be over before.
            rest = tuple(one for one in self._of.get(session, ()) if one is not fenced)
            self._of[session] = self._in[context] = rest
            self.open.discard(fenced)

    def begin(self, session: Session, connection: Connection) -> None:
        """*session* has begun a later transaction, on *connection*."""
        for fenced in self.of(session):
            if connection.engine.pool is not fenced.engine.pool:
                continue
            # A committed transaction is over, and another grant may have been there since.
            fenced.refused = None
            if fenced.over:
                continue
            watch(connection, fenced.end)
            try:
                fence_again(session, connection, fenced.grant, fenced.left)
            except (LockError, Again) as error:
                # Reading does no harm, and the view's answer stands: it may have committed all that it wants.
                fenced.refused = error

    def refuse_commit(self, session: Session, has_changes: Callable[[Session], bool]) -> None:
        """Raise if *session* is about to commit what has not passed."""
        fences = self.of(session)
        for fenced in fences:
            if fenced.refused is not None:
                names = ", ".join(map(repr, fenced.grant.names))
                raise LockLost(
                    f"A transaction under the lock {names} did not pass the fence: {fenced.refused}"
                ) from fenced.refused
        self.look_again(session)
        # A COMMIT of a guard inside it is not under the lock that was released.
        if fences and fences[-1].over and has_changes(session):
            names = ", ".join(map(repr, fences[-1].grant.names))
            raise ConfigurationError(
                f"db.session.commit() is called a second time under the lock {names}, which is a row of the "
                "database and was released by the first commit: write everything before one commit."
            )

    def look_again(self, session: Session) -> None:
        """The open transaction of *session* is about to end. Raises `LockLost` if a reader was overtaken."""
        for fenced in self.of(session):
            # A row is let go by the first COMMIT, which has looked.
            if not fenced.over:
                look_again_in(session, fenced.engine, fenced.grant, fenced.left)

    def refuse_ended(self, session: Session) -> None:
        """Raise `EndedEarly` if the open transaction of *session* is not the one that has passed the fences.

        Readers have nothing that could be committed.
        """
        for fenced in self.of(session):
            if fenced.grant.mode != READ and not fenced.over:
                look_at_mark(session.connection(bind_arguments={"bind": fenced.engine}))

    def committed(self, session: Session) -> None:
        for fenced in self.of(session):
            fenced.over = fenced.grant.held_by_transaction


@contextmanager
def beginnable(session: Session) -> Iterator[None]:
    """In the block `session.begin()` gives the open transaction, the first time it is called.

    SQLAlchemy would say that one is begun already. The site has not: ``with db.session.begin():`` is how many
    views write, and the fence has to be in their transaction.
    """
    if "begin" in vars(session):
        # The fence of a guard around this one.
        yield
        return
    begin, fenced = session.begin, session.get_transaction()

    def first(nested: bool = False) -> SessionTransaction:
        nonlocal fenced
        mine, fenced = fenced, None
        if not nested and mine is not None and mine is session.get_transaction():
            return mine
        return begin(nested)

    session.begin = first  # type: ignore[method-assign]
    try:
        yield
    finally:
        del session.begin
