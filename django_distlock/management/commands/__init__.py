"""``manage.py`` commands."""

from __future__ import annotations
