"""Locks in a MariaDB or MySQL server: those of GET_LOCK, in sessions of their own."""

from __future__ import annotations

from distlock.backends.mysql.backend import MySQLBackend

__all__ = ["MySQLBackend"]
