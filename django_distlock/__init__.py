"""distlock for Django: ``@distributed_lock("product_<int:id>")`` on views, ``locks.lock(...)`` elsewhere."""

from __future__ import annotations

try:
    import django as _django
except ImportError as error:
    from distlock.extras import remedy

    raise ImportError(f"django_distlock needs Django. {remedy('django')}") from error

from django_distlock.clients.by_alias import locks
from django_distlock.decorators import distributed_lock
from django_distlock.guarding.own_transactions import atomic

del _django

__all__ = ["atomic", "distributed_lock", "locks"]
