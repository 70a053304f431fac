"""Where the server is: the URL, as libpq reads it."""

from __future__ import annotations

import difflib
import os
import socket
from urllib.parse import parse_qsl

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from distlock.errors import ConfigurationError

#: How an application_name begins that says who the process is.
SAYS_WHO = "distlock"
#: Defaults that the URL may change. The kernel notices a vanished peer, even while nothing is sent.
_USUAL = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}


class Address:
    """*url*: ``postgresql://[user[:password]@][host][:port][/database][?parameter=value…]``."""

    def __init__(self, url: str) -> None:
        # libpq takes what is left of a password with a special character in it for a host, port or database.
        login, at, rest = url.partition("?")[0].partition("://")[2].partition("@")
        try:
            if (at and "/" in login) or "@" in rest:
                raise ProgrammingError
            given = conninfo_to_dict(url)
        except ProgrammingError:
            # Its message may quote the password.
            raise ConfigurationError(
                "The URL of the postgresql backend cannot be read. Write "
                "postgresql://user:password@host:5432/database, special characters as %XX." + _meant(url)
            ) from None
        host = given.get("host") or given.get("hostaddr") or "its default socket"
        port = f":{given['port']}" if "port" in given else ""
        database = given.get("dbname") or given.get("user") or "the user's database"
        #: For people, without a password.
        self.shown = f"{host}{port}/{database}"
        self._given = given

    def conninfo(self) -> bytes:
        """For a session of this process, which may be a forked child."""
        # It tells operators whose locks these are. The server keeps so many bytes of it.
        name = f"{SAYS_WHO}:{os.getpid()}@{socket.gethostname()}"[:63]
        words = {**_USUAL, "application_name": name, **self._given, "client_encoding": "UTF8"}
        return make_conninfo("", **words).encode()


def _meant(url: str) -> str:
    """Which parameters a misspelt one may be. Never quoted: it may be what is left of a password."""
    known = [one.keyword.decode() for one in pq.Conninfo.get_defaults()]
    said = [name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True) if name not in known]
    close = [word for name in said for word in difflib.get_close_matches(name, known, n=1)]
    return f" Did you mean {', '.join(close)} in the query?" if close else ""
