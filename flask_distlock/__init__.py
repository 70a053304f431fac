"""distlock for Flask: ``DistLock(app)``; ``@distributed_lock("product_<int:id>")`` below ``@app.route``."""

from __future__ import annotations

try:
    import flask as _flask
except ImportError as error:
    from distlock.extras import remedy

    raise ImportError(f"flask_distlock needs Flask. {remedy('flask')}") from error

from flask_distlock.decorators import distributed_lock
from flask_distlock.extension import DistLock
from flask_distlock.own_transactions import transaction

del _flask

__all__ = ["DistLock", "distributed_lock", "transaction"]
