"""``DISTLOCK_RULES``: guards from settings alone."""

from __future__ import annotations
