"""distlock for Flask: ``DistLock(app)``; ``@distributed_lock("product_<int:id>")`` below ``@app.route``."""

from __future__ import annotations

try:
    import flask as _flask
except ImportError as error:
    from distlock.suggestions import install_hint

    raise ImportError(f"flask_distlock needs Flask. {install_hint('flask')}") from error

from distlock import __all__ as _core
from distlock.suggestions import unknown_name as _unknown_name
from flask_distlock.decorators import distributed_lock, transaction
from flask_distlock.extension import DistLock

del _flask

__all__ = ["DistLock", "distributed_lock", "transaction"]


def __getattr__(name: str) -> object:
    raise _unknown_name(__name__, name, _core)
