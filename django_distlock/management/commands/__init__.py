"""The commands of ``manage.py``, by their names."""

from __future__ import annotations
