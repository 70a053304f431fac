"""A lock that outlives the call of its guard, until the transaction that was begun under it has ended."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from distlock.current_grants import Kept
from distlock.errors import ConfigurationError, LockError, LockLost

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

logger = logging.getLogger("distlock")


class KeptLock(Kept):
    """One such lock.

    *where*: whose it was. *changed*: whether its call has left changes for certain. *fencing*: closed when
    the transaction has ended, and before `rest`, which releases the lock.
    """

    __slots__ = ("_fencing", "_session", "changed", "committed", "refused", "rest", "where")

    def __init__(self, session: Session, where: str, changed: bool, fencing: ExitStack) -> None:
        super().__init__()
        self._session = session
        self._fencing = fencing
        self.where = where
        self.changed = changed
        self.committed = False
        #: Why a COMMIT was refused.
        self.refused: LockLost | None = None
        self.rest = ExitStack()

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.transaction_ended()

    def transaction_ended(self) -> None:
        """Let go, unless a call is inside, or has begun the next transaction under the lock."""
        if not self.entered and not self._session.in_transaction():
            self._let_go()

    def end(self) -> None:
        """The request is over: let go in any case. What is open is rolled back."""
        try:
            self._session.rollback()
        except Exception:
            # The connection is gone, and with it the transaction.
            logger.exception("db.session could not be rolled back at the end of the request.")
        finally:
            self._let_go()

    def problem(self) -> LockError | None:
        """Why the answer can't be success; None if it can."""
        if not self.changed or self.committed:
            return None
        return self.refused or ConfigurationError(
            f"{self.where} returned with uncommitted changes in db.session, and nobody has committed them by "
            "the end of the request. They are rolled back: call db.session.commit() inside it."
        )

    def _let_go(self) -> None:
        try:
            self._fencing.close()
        finally:
            self.rest.close()
