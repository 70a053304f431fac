"""Locks in a MariaDB or MySQL server."""

from __future__ import annotations

from pymysql import Error

from distlock.backends.advisory.backend import AdvisoryBackend
from distlock.backends.mysql.dialect import MySQL


class MySQLBackend(AdvisoryBackend):
    """The server at ``mysql://user:password@host:3306/database``: see `AdvisoryBackend`.

    The server counts whole seconds: *ack_window* and the lease are rounded up.
    """

    errors = Error

    @staticmethod
    def speaking(url: str, pools_sessions: bool) -> MySQL:
        return MySQL(url, pools_sessions)
