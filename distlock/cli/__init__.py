"""The command ``distlock``: alone, as ``manage.py distlock``, and as ``flask distlock``."""

from __future__ import annotations
