"""The address of an ensemble: the parts of its URL."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import NoReturn
from urllib.parse import parse_qsl, unquote

from distlock.backends.tls import TLS, Tls
from distlock.errors import ConfigurationError

#: The parts of a URL. Some versions of `urlsplit` refuse a list of hosts that has IPv6 addresses.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<netloc>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?P<more>.*)",
    re.DOTALL,
)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PORT = 2181
#: The scheme for TLS, and the only supported mechanism of SASL.
_SECURE, _DIGEST = "zookeepers", "DIGEST-MD5"
_WRITE = (
    "Write zookeeper://[user:password@]host[:port][,host[:port]…][/path], or zookeepers://… for TLS; quote "
    "special characters as %XX."
)


class ZooKeeperAddress:
    """The parts of an ensemble's URL: servers, TLS, path and login. The repr and errors show no secret."""

    def __init__(self, url: str) -> None:
        parts = _URL.fullmatch(url)
        # An unencoded /, ? or # in a password ends the netloc too early: then the @ comes behind the netloc.
        if parts is None or "@" in f"{parts['path']}{parts['query']}{parts['more']}":
            # The error does not quote the URL, which may have a password.
            raise ConfigurationError(f"The URL of ZooKeeper cannot be read. {_WRITE}")
        login, _, hosts = parts["netloc"].rpartition("@")
        #: In kazoo's form: ``host:port,host:port``.
        self.hosts = ",".join(_host(text) for text in hosts.split(","))
        given = self._parameters(parts["scheme"].lower(), parts["query"] or "", parts["more"])
        mechanism = given.pop("sasl", None)
        #: The TLS settings; None: the connection is not encrypted.
        self.tls = self._tls(given) if parts["scheme"].lower() == _SECURE else None
        #: The node above all nodes of distlock: ``/path``, or "".
        self.chroot = _chroot(parts["path"])
        self.shown = f"{self.hosts}{self.chroot}"
        user, colon, password = login.partition(":")
        if login and not (user and colon):
            raise ConfigurationError(
                f"The URL of ZooKeeper at {self.hosts} has a user without a password. {_WRITE}"
            )
        user, password = unquote(user), unquote(password)
        #: kazoo's options for a login by SASL; None: the login, if any, is in `auth`.
        self.sasl = None if mechanism is None else self._sasl(mechanism, user, password)
        self.auth = [("digest", f"{user}:{password}")] if login and not self.sasl else []

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    def _parameters(self, scheme: str, query: str, more: str) -> dict[str, str]:
        """Return the parameters in *query*. Raises `ConfigurationError` if one is wrong or *more* follows."""
        given = parse_qsl(query, keep_blank_values=True)
        for name, _ in given:
            if name not in ("sasl", *TLS):
                self._refuse(f"It has an unknown parameter: {name!r}. Known are sasl, {', '.join(TLS)}.")
            if name in TLS and scheme != _SECURE:
                self._refuse(f"{name} is for TLS: write {_SECURE}://.")
        if len(dict(given)) < len(given):
            self._refuse("It says something twice.")
        if more:
            self._refuse("It has a #: quote it as %23.")
        return dict(given)

    def _tls(self, given: dict[str, str]) -> Tls:
        try:
            return Tls(given)
        except ValueError as error:
            self._refuse(str(error))

    def _sasl(self, mechanism: str, user: str, password: str) -> dict[str, str]:
        if mechanism != _DIGEST:
            self._refuse(f"sasl has to be {_DIGEST}.")
        if not user:
            self._refuse("sasl needs user:password@ before the hosts.")
        if find_spec("puresasl") is None:
            self._refuse("sasl needs another package: pip install pure-sasl.")
        return {"mechanism": mechanism, "username": user, "password": password}

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigurationError(f"The URL of ZooKeeper at {self.hosts} can't be used. {why}") from None


def _host(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match["port"] or _PORT) < 65536:
        # The error does not quote this part: if the @ was forgotten, it contains the password.
        raise ConfigurationError(f"The URL of ZooKeeper names a host that cannot be read. {_WRITE}")
    return f"{match['name']}:{match['port'] or _PORT}"


def _chroot(path: str) -> str:
    steps = [unquote(step) for step in path.strip("/").split("/")] if path.strip("/") else []
    for step in steps:
        if step in ("", ".", "..") or "/" in step or not step.isprintable() or len(step) > 255:
            raise ConfigurationError(
                f"The URL of ZooKeeper names the path {path!r}, which cannot be a node. {_WRITE}"
            )
    if steps and steps[0] == "zookeeper":
        raise ConfigurationError("The path /zookeeper is ZooKeeper's own: choose another for the locks.")
    return "".join(f"/{step}" for step in steps)
