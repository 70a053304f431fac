"""A lock that outlives the call of its guard: a view's until ``wsgi_app`` returns, others' until COMMIT."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from distlock.errors import ConfigurationError, LockError, LockLost
from distlock.grants.current import CurrentGrant, Keeping, Kept

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

logger = logging.getLogger("distlock")


class KeptLock(Kept):
    """A lock that a request keeps. Closing `rest` releases it.

    *where*: the guarded function, for messages.
    """

    __slots__ = ("rest", "where")

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.rest = ExitStack()

    def end(self) -> None:
        """Release the lock: the request is over."""
        self.rest.close()

    def problem(self) -> LockError | None:
        """Return why the answer can't be success; None if it can."""
        return None

    @property
    def is_committed(self) -> bool:
        """Whether the work of the call was committed, so that its answer stands if the lock is lost."""
        return False


class KeptSession(KeptLock):
    """A lock over the transaction that a call may have left open in ``db.session``.

    *session*: None if the call has not used it, or if its transaction belongs to a test around the request.
    *fencing*: closed before the release. *changed*: whether the call has left changes for certain.
    *committed*: whether it has committed. *until_transaction*: release the lock when the transaction ends.
    """

    __slots__ = (
        "_committed",
        "_fencing",
        "_session",
        "_until_transaction",
        "changed",
        "committed",
        "refused",
    )

    def __init__(
        self,
        where: str,
        session: Session | None,
        fencing: ExitStack,
        *,
        changed: bool,
        committed: bool,
        until_transaction: bool,
    ) -> None:
        super().__init__(where)
        self._session = session
        self._fencing = fencing
        self._committed = committed
        self._until_transaction = until_transaction
        self.changed = changed
        #: Whether a transaction was committed since the call has ended.
        self.committed = False
        #: Why a COMMIT was refused.
        self.refused: LockLost | None = None

    @property
    def with_request(self) -> bool:
        return not self._until_transaction

    @property
    def is_committed(self) -> bool:
        return self.committed or (self._committed and not self.changed)

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self.transaction_ended()

    def transaction_ended(self) -> None:
        """Release a lock that ends with its transaction, unless a call is inside it."""
        if self._until_transaction and not self.entered and not self._in_transaction():
            self._release()

    def end(self) -> None:
        """Roll back what is open, and release the lock: the request is over."""
        try:
            if self._session is not None:
                self._session.rollback()
        except Exception:
            # The connection is gone, and with it the transaction.
            logger.exception("db.session could not be rolled back at the end of the request.")
        finally:
            self._release()

    def problem(self) -> LockError | None:
        if not self.changed or self.committed:
            return None
        return self.refused or ConfigurationError(
            f"{self.where} returned with uncommitted changes in db.session, and nobody has committed them by "
            "the end of the request. They are rolled back: call db.session.commit() inside it."
        )

    def _in_transaction(self) -> bool:
        return self._session is not None and self._session.in_transaction()

    def _release(self) -> None:
        try:
            self._fencing.close()
        finally:
            self.rest.close()


def keep_in(request: Keeping, current: CurrentGrant, kept: KeptLock) -> ExitStack:
    """Let *request* end *kept*, the lock of *current*. Returns the stack that releases it when closed."""
    request.kept.append(replace(current, kept=kept))
    return kept.rest
