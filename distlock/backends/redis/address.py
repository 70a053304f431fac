"""Where the server is: the URL taken apart, and how it may be shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from distlock.backends.tls import TLS, Tls
from distlock.errors import ConfigurationError

#: What the backend decides itself. In the URL they would be silently overruled.
_OURS = {
    "socket_timeout": "io_timeout",
    "socket_connect_timeout": "io_timeout",
    "max_connections": "max_connections",
    "client_name": "client_name",
}


def hide(text: str, secrets: Iterable[str | None]) -> str:
    """*text* without *secrets*."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text


class Address:
    """One server and database. Connects to nothing; never shows a secret.

    *shown*: what people read of it, where that is not its host.
    """

    #: What the query of a URL may say.
    _plain: tuple[str, ...] = ("db", "username", "password")

    def __init__(self, url: str, shown: str = "") -> None:
        try:
            parts = urlsplit(url)
            self.host = unquote(parts.hostname or "localhost")
            self.port = 6379 if parts.port is None else parts.port
            pairs = parts.query.split("&") if parts.query else []
            query = parse_qsl(
                "&".join(filter(None, pairs)), keep_blank_values=True, strict_parsing=any(pairs)
            )
            # What no resolver takes is found here, and not at the first lock.
            self.host.encode("idna")
        except (ValueError, UnicodeError):
            self._unreadable()
        if parts.scheme not in ("redis", "rediss", "unix") or "\0" in unquote(url) or parts.fragment:
            self._unreadable()
        #: The path of the socket, or None.
        self.path = unquote(parts.path) or "/" if parts.scheme == "unix" else None
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.shown = shown or (f"{host}:{self.port}" if self.path is None else f"unix://{self.path}")
        # What is left of a password with a special character in it may look like a port or a path.
        if self.port == 0 or "@" in f"{parts.path}{parts.query}" or (self.path and parts.hostname):
            self._unreadable()
        if not all(pairs):
            self._refuse("Its query has an & too many: take it out.")
        given = self._given(query, parts.scheme)
        username = given.get("username") or unquote(parts.username or "")
        password = given.get("password") or unquote(parts.password or "")
        #: What AUTH is told; nothing: nobody logs in.
        self.login: tuple[str, ...] = (username, password) if username else (password,) if password else ()
        self.db = self._database(parts, given.get("db"))
        #: How TLS is spoken, or None.
        self.tls = self._tls(given) if parts.scheme == "rediss" else None
        self._secrets = [password, self.tls.password if self.tls is not None else None]

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    def redact(self, text: str) -> str:
        """Take the secrets out of *text*: a server quotes what it does not understand, AUTH for one."""
        return hide(text, self._secrets)

    def _given(self, query: list[tuple[str, str]], scheme: str) -> dict[str, str]:
        given: dict[str, str] = {}
        for name, value in query:
            if name in _OURS:
                self._refuse(f"Take {name} out of it: it is the option {_OURS[name]}.")
            if name not in (*self._plain, *TLS):
                known = ", ".join((*self._plain, *TLS))
                self._refuse(f"It has an unknown parameter: {name!r}. Known are {known}.")
            if name in TLS and scheme != "rediss":
                self._refuse(f"{name} is for TLS: write rediss://.")
            if name in given:
                self._refuse(f"It says {name} twice.")
            given[name] = value
        return given

    def _database(self, parts: SplitResult, given: str | None) -> int:
        path = "" if self.path is not None else unquote(parts.path).strip("/")
        if path and given is not None:
            self._refuse("It names the database twice: leave db= out.")
        number = given if given is not None else path or "0"
        # Digits of other scripts, signs and blanks are not what a server reads.
        if not (number.isascii() and number.isdecimal()) or len(number) > 9:
            right = f"{self.shown}/0" if self.path is None else f"{self.shown}?db=0"
            self._refuse(f"It names a database that is not a number: write {right}.")
        return int(number)

    def _tls(self, given: dict[str, str]) -> Tls:
        try:
            return Tls({name: value for name, value in given.items() if name in TLS})
        except ValueError as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigurationError(
            f"The URL of the Redis server at {self.shown} can't be used. {why}"
        ) from None

    def _unreadable(self) -> NoReturn:
        # The cause would quote the URL, and with it the password.
        raise ConfigurationError(
            "The URL of the Redis server cannot be read. Write redis://[user:password@]host[:port][/db], "
            "rediss://… for TLS or unix:///path/to/redis.sock[?db=0]; in "
            "user, password and query write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %."
        ) from None
