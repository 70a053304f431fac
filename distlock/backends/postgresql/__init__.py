"""Locks in a PostgreSQL server: its advisory locks, in sessions of their own."""

from __future__ import annotations

from distlock.backends.postgresql.backend import PostgreSQLBackend

__all__ = ["PostgreSQLBackend"]
