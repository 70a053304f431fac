"""The shop as a Django project."""

from __future__ import annotations
