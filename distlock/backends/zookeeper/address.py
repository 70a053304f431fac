"""Where the servers are: the URL taken apart, and how it may be shown."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from distlock.backends.tls import TLS, Tls
from distlock.errors import ConfigurationError

#: Python's own `urlsplit` allows brackets in one host only, and that in some versions and not in others.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<netloc>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?(?P<more>.*)",
    re.DOTALL,
)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PORT = 2181
_WRITE = (
    "Write zookeeper://[user:password@]host[:port][,host[:port]…][/path], or zookeepers://… for TLS; quote "
    "special characters as %XX."
)


class Address:
    """The servers of one ensemble, and the node under which the locks are. Never shows a secret."""

    def __init__(self, url: str) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            # Not quoted: it may have a password.
            raise ConfigurationError(f"The URL of ZooKeeper cannot be read. {_WRITE}")
        login, _, hosts = parts["netloc"].rpartition("@")
        #: As kazoo takes them: ``host:port,host:port``.
        self.hosts = ",".join(_host(text) for text in hosts.split(","))
        if parts["more"]:
            raise ConfigurationError(f"The URL of ZooKeeper at {self.hosts} has a # in it. {_WRITE}")
        #: How TLS is spoken, or None.
        self.tls = self._tls(parts["scheme"].lower() == "zookeepers", parts["query"] or "")
        #: ``/path`` or nothing.
        self.chroot = _chroot(parts["path"])
        self.shown = f"{self.hosts}{self.chroot}"
        user, colon, password = login.partition(":")
        if login and not (user and colon):
            raise ConfigurationError(
                f"The URL of ZooKeeper at {self.hosts} has a user without a password. {_WRITE}"
            )
        #: Pairs of scheme and credential.
        self.auth = [("digest", f"{unquote(user)}:{unquote(password)}")] if login else []

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    def _tls(self, spoken: bool, query: str) -> Tls | None:
        given = parse_qsl(query, keep_blank_values=True)
        for name, _ in given:
            if name not in TLS:
                raise ConfigurationError(
                    f"The URL of ZooKeeper at {self.hosts} has an unknown parameter: {name!r}. Known are, "
                    f"with zookeepers://, {', '.join(TLS)}."
                )
            if not spoken:
                raise ConfigurationError(
                    f"The URL of ZooKeeper at {self.hosts} has {name}, which is for TLS: write zookeepers://."
                )
        if len(dict(given)) < len(given):
            raise ConfigurationError(f"The URL of ZooKeeper at {self.hosts} says something twice.")
        try:
            return Tls(dict(given)) if spoken else None
        except ValueError as error:
            raise ConfigurationError(f"The URL of ZooKeeper at {self.hosts} can't be used. {error}") from None


def _host(text: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match["port"] or _PORT) < 65536:
        # Not quoted: where the @ was forgotten, the password stands here.
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
