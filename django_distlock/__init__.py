"""distlock for Django: ``@distributed_lock("product_<int:id>")`` on views, ``locks.lock(...)`` elsewhere."""

from __future__ import annotations

try:
    import django as _django
except ImportError as error:
    from distlock.suggestions import install_hint

    raise ImportError(f"django_distlock needs Django. {install_hint('django')}") from error

from distlock import __all__ as _core
from distlock.suggestions import unknown_name as _unknown_name
from django_distlock.clients.by_alias import locks
from django_distlock.decorators import atomic, distributed_lock

del _django

__all__ = ["atomic", "distributed_lock", "locks"]


def __getattr__(name: str) -> object:
    raise _unknown_name(__name__, name, _core)
