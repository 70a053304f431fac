"""The fence: an overtaken transaction is not committed."""

from __future__ import annotations
