"""Migrations of the table of the fence."""

from __future__ import annotations
