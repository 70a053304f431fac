"""Locks in a PostgreSQL server."""

from __future__ import annotations

from psycopg import Error

from distlock.backends.advisory.backend import AdvisoryBackend
from distlock.backends.postgresql.dialect import PostgreSQL


class PostgreSQLBackend(AdvisoryBackend):
    """The server at ``postgresql://user:password@host:5432/database``: see `AdvisoryBackend`."""

    errors = Error

    @staticmethod
    def speaking(url: str, pools_sessions: bool) -> PostgreSQL:
        return PostgreSQL(url, pools_sessions)
