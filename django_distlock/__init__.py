"""distlock for Django: ``@distributed_lock("product_<int:id>")`` on views, ``locks.lock(...)`` elsewhere."""

from __future__ import annotations

try:
    import django as _django
except ImportError as error:
    raise ImportError("django_distlock needs Django. Run: pip install 'distlock[django]'") from error

from django_distlock.decorators import distributed_lock
from django_distlock.handler import locks

del _django

__all__ = ["distributed_lock", "locks"]
