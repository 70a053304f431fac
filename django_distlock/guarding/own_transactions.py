"""``atomic(grant)``: one's own fenced transaction, in tasks, commands and imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db.transaction import Atomic

from distlock.errors import ConfigurationError
from distlock.fence.passing import refuse_unfit, time_left
from distlock.grants.grant import Grant
from django_distlock.guarding.fence import database_of, fenced
from django_distlock.guarding.open_transactions import find_open, noting_rollbacks, refuse_failed


@contextmanager
def atomic(grant: Grant, using: str | None = None) -> Iterator[None]:
    """A transaction that is committed only if no later grant's was, and the lock is still ours.

    *grant*: what the ``with`` of a lock gives.
    *using*: a key of ``DATABASES``; None: the default one.

    It takes the place of the outermost ``transaction.atomic()``. It waits for the transactions of earlier
    grants for as long as the lock may be waited for: its ``timeout``, seconds.

    Raises `LockLost`, and `LockTimeout` after that wait, and rolls back; `NotHeld` after the release;
    `ConfigurationError` in an open transaction, in async code, and where the lock is a row of the database.

    Example::

        with locks.lock("product_1") as grant, atomic(grant):
            Product.objects.filter(id=1).update(stock=100)
    """
    refuse_unfit("atomic(grant)", grant)
    alias = database_of(using or True)
    assert alias is not None
    names = ", ".join(map(repr, grant.names))
    if (found := find_open(alias)) is not None:
        if found.manual:
            raise ConfigurationError(
                f"atomic(grant) on {names}: autocommit is off on the database {alias!r}, so that Django "
                "commits nothing by itself. Leave AUTOCOMMIT = False out of its settings."
            )
        raise ConfigurationError(
            f"atomic(grant) on {names}: a transaction of the database {alias!r} is open already, so that "
            "the fence would come too late. Take the lock first, and write 'with locks.lock(…) as grant, "
            "atomic(grant):' in the place of the outermost 'with transaction.atomic():'. A view has "
            "@distributed_lock(…, fence=True)."
        )
    grant.check()
    with noting_rollbacks([alias]), fenced(grant, alias, time_left(grant)):
        yield
        refuse_failed([alias])
        # The last moment at which nothing has happened yet.
        grant.check()
    grant._vouch()


def refuse_durable(where: str, error: RuntimeError) -> None:
    """Raise `ConfigurationError` if *error*, of the view *where*, is Django's word about ``durable=True``."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is not None and traceback.tb_frame.f_code is Atomic.__enter__.__code__:
        raise ConfigurationError(
            f"{where} has batch=, and begins a transaction with durable=True, whose COMMIT is that of all "
            "requests of the batch. Write transaction.atomic() without it, or leave batch= out."
        ) from error
