"""The shop as a Flask application."""

from __future__ import annotations
