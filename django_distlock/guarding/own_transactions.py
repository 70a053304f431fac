"""``grant.atomic()``: one's own fenced transaction, in tasks, commands and imports."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from distlock.clock import now
from distlock.errors import ConfigurationError
from distlock.faces import refuse_async
from distlock.grant import Grant
from django_distlock.guarding.fence import database_of, fenced
from django_distlock.guarding.leftovers import refuse_failed
from django_distlock.guarding.transactions import find_open


@contextmanager
def atomic(grant: Grant, using: str | None, timeout: float) -> Iterator[None]:
    """See `Grant.atomic`. *timeout*: seconds that it may wait for transactions of earlier grants."""
    refuse_async("grant.atomic()")
    alias = database_of(using or True)
    assert alias is not None
    names = ", ".join(map(repr, grant.names))
    if (found := find_open(alias)) is not None:
        if found.manual:
            raise ConfigurationError(
                f"grant.atomic() on {names}: autocommit is off on the database {alias!r}, so that Django "
                "commits nothing by itself. Leave AUTOCOMMIT = False out of its settings."
            )
        raise ConfigurationError(
            f"grant.atomic() on {names}: a transaction of the database {alias!r} is open already, so that "
            "the fence would come too late. Take the lock first, and write 'with locks.lock(…) as grant, "
            "grant.atomic():' in the place of the outermost 'with transaction.atomic():'. A view has "
            "@distributed_lock(…, fence=True)."
        )
    grant.check()
    deadline = now() + timeout if timeout >= 0 else math.inf
    with fenced(grant, alias, lambda: deadline - now()):
        yield
        refuse_failed([alias])
        # The last moment at which nothing has happened yet.
        grant.check()
