"""Locks that keep nobody out, as a site has them with the backend ``dummy``."""

from __future__ import annotations

from typing import Any

from flask import Flask

import distlock
from flask_distlock import DistLock


def dummy_locks(prefix: str = "shop", **settings: Any) -> distlock.Locks:
    """Return the client of an app with these *settings* of its alias."""
    app = Flask(__name__)
    app.config["DISTLOCK"] = {"default": {"BACKEND": "dummy", "PREFIX": prefix, **settings}}
    locks = DistLock(app)
    with app.app_context():
        return locks["default"]
