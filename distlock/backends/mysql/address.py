"""Where the server is: the URL, as other libraries of MySQL read it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from distlock.errors import ConfigurationError

_HOW = "Write mysql://user:password@host:3306/database, special characters as %XX."
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def _flag(text: str) -> bool:
    if text.lower() not in _YES + _NO:
        raise ValueError
    return text.lower() in _YES


#: The parameters that the URL's query may have.
_PARAMETERS: dict[str, Callable[[str], object]] = {
    "unix_socket": str,
    "ssl_ca": str,
    "ssl_cert": str,
    "ssl_key": str,
    "ssl_verify_cert": _flag,
    "ssl_verify_identity": _flag,
    "ssl_disabled": _flag,
}
_OF_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")


class Address:
    """*url*: ``mysql://[user[:password]@][host][:port]/database[?parameter=value…]``."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
            # A password with a special character in it ends there, and what is left of it is no database.
            if "@" in f"{parts.path}{parts.query}" or parts.fragment:
                raise ValueError
        except ValueError:
            # Its message may quote the password.
            raise ConfigurationError(f"The URL of the mysql backend cannot be read. {_HOW}") from None
        self.host = parts.hostname or "localhost"
        self.port = port
        self.database = unquote(parts.path.removeprefix("/"))
        if not self.database or "/" in self.database:
            raise ConfigurationError(f"The URL of the mysql backend names no database. {_HOW}")
        given = _parameters(parts.query)
        self.socket = given.get("unix_socket")
        #: For people, without a password.
        self.shown = f"{self.socket or f'{self.host}:{port}'}/{self.database}"
        tls = {word: given[word] for word in _OF_TLS if given.get(word)}
        if tls and given.get("ssl_disabled"):
            raise ConfigurationError(
                f"The URL of the mysql backend has ssl_disabled beside {', '.join(tls)}: leave out either."
            )
        #: The server has to speak TLS.
        self.encrypted = bool(tls)
        #: For PyMySQL. Without a word about TLS it does as it likes.
        self.arguments: dict[str, Any] = {
            "user": unquote(parts.username or ""),
            # As text it could have Latin letters only.
            "password": unquote(parts.password or "").encode(),
            "host": self.host,
            "port": port,
            "database": self.database,
            "ssl_disabled": bool(given.get("ssl_disabled")),
            "ssl": _context(tls) if tls else None,
        }


def _parameters(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word, text in parse_qsl(query, keep_blank_values=True):
        if word not in _PARAMETERS:
            raise ConfigurationError(
                f"The URL of the mysql backend has {word!r}, which it does not know. It knows: "
                f"{', '.join(_PARAMETERS)}."
            )
        try:
            found[word] = _PARAMETERS[word](text)
        except ValueError:
            raise ConfigurationError(
                f"In the URL of the mysql backend {word} has to be true or false."
            ) from None
    return found


def _context(tls: dict[str, Any]) -> ssl.SSLContext:
    """A file of certificates that is named is also looked at, and a name that is verified has one."""
    try:
        context = ssl.create_default_context(cafile=tls.get("ssl_ca"))
        if "ssl_cert" in tls or "ssl_key" in tls:
            context.load_cert_chain(tls.get("ssl_cert", ""), tls.get("ssl_key"))
    except OSError as error:
        raise ConfigurationError(
            f"The certificates in the URL of the mysql backend can't be used: {error}. Check "
            f"{', '.join(word for word in tls if not word.startswith('ssl_verify'))}."
        ) from error
    # Python 3.13 refuses the certificates that MySQL makes for itself.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = "ssl_verify_identity" in tls
    if not tls.keys() & {"ssl_ca", "ssl_verify_cert", "ssl_verify_identity"}:
        context.verify_mode = ssl.CERT_NONE
    return context
