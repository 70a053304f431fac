"""Where the server is: the URL taken apart, and how it may be shown."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from distlock.errors import ConfigurationError

#: What the backend decides itself. In the URL they would be silently overruled.
_OURS = {
    "socket_timeout": "io_timeout",
    "socket_connect_timeout": "io_timeout",
    "max_connections": "max_connections",
    "client_name": "client_name",
}
#: What a URL may say in its query.
_PLAIN = ("db", "username", "password")
TLS = (
    "ssl_ca_certs",
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
)
_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CERT_REQS = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


def hide(text: str, secrets: Iterable[str]) -> str:
    """*text* without *secrets*."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text


@contextmanager
def _named(name: str, told: dict[str, str]) -> Iterator[None]:
    """What TLS can't read of the file that *name* tells is an OSError with the name of that file."""
    try:
        yield
    except ssl.SSLError as error:
        if name not in told:
            raise ValueError("ssl_ca_data holds no certificate") from None
        raise OSError(errno.EINVAL, f"{name} can't be used ({error})", told[name]) from None


class Address:
    """One server and database. Connects to nothing; never shows a secret."""

    def __init__(self, url: str) -> None:
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
        self.tls = parts.scheme == "rediss"
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.shown = f"{host}:{self.port}" if self.path is None else f"unix://{self.path}"
        # What is left of a password with a special character in it may look like a port or a path.
        if self.port == 0 or "@" in f"{parts.path}{parts.query}" or (self.path and parts.hostname):
            self._unreadable()
        if not all(pairs):
            self._refuse("Its query has an & too many: take it out.")
        given = self._given(query)
        username = given.get("username") or unquote(parts.username or "")
        password = given.get("password") or unquote(parts.password or "")
        #: What AUTH is told; nothing: nobody logs in.
        self.login = (username, password) if username else (password,) if password else ()
        self.db = self._database(parts, given.get("db"))
        self._ssl = {name: value for name, value in given.items() if name.startswith("ssl_")}
        self._verify = self._cert_reqs(), self._flag("ssl_check_hostname", True)
        self._secrets = [secret for secret in (password, self._ssl.get("ssl_password")) if secret]

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    @cached_property
    def context(self) -> ssl.SSLContext:
        """How TLS is spoken, and the server verified: the host's name, too, unless the URL says otherwise.

        Reads files. Raises OSError where it can't.
        """
        told = self._ssl
        # OpenSSL says that a file is missing, and not which one.
        for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
            if name in told:
                os.close(os.open(told[name], os.O_RDONLY | os.O_CLOEXEC))
        with _named("ssl_ca_certs", told):
            context = ssl.create_default_context(
                cafile=told.get("ssl_ca_certs"),
                capath=told.get("ssl_ca_path"),
                cadata=told.get("ssl_ca_data"),
            )
        needed, check_hostname = self._verify
        context.check_hostname = check_hostname and needed is not ssl.CERT_NONE
        context.verify_mode = needed
        if "ssl_certfile" in told:
            with _named("ssl_certfile", told):
                context.load_cert_chain(
                    told["ssl_certfile"], told.get("ssl_keyfile"), told.get("ssl_password")
                )
        return context

    def redact(self, text: str) -> str:
        """Take the secrets out of *text*: a server quotes what it does not understand, AUTH for one."""
        return hide(text, self._secrets)

    def _given(self, query: list[tuple[str, str]]) -> dict[str, str]:
        given: dict[str, str] = {}
        for name, value in query:
            if name in _OURS:
                self._refuse(f"Take {name} out of it: it is the option {_OURS[name]}.")
            if name not in (*_PLAIN, *TLS):
                known = ", ".join((*_PLAIN, *TLS))
                self._refuse(f"It has an unknown parameter: {name!r}. Known are {known}.")
            if name in TLS and not self.tls:
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

    def _cert_reqs(self) -> ssl.VerifyMode:
        said = self._ssl.get("ssl_cert_reqs", "required").lower().removeprefix("cert_")
        if said not in _CERT_REQS:
            self._refuse("ssl_cert_reqs has to be required, optional or none.")
        return _CERT_REQS[said]

    def _flag(self, name: str, default: bool) -> bool:
        said = self._ssl.get(name)
        if said is None:
            return default
        if said.lower() not in _FLAGS:
            self._refuse(f"{name} has to be true or false.")
        return _FLAGS[said.lower()]

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
