"""The clients behind ``locks``, which take Django's transactions into account."""

from __future__ import annotations
