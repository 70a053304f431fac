"""What an operator of a Flask app sees of its locks: a blueprint with the page of locks."""

from __future__ import annotations

from flask_distlock.operate.blueprint import locks_blueprint

__all__ = ["locks_blueprint"]
