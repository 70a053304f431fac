"""Where the servers are: a URL of several hosts as a URL of `RedisBackend` for each."""

from __future__ import annotations

import re
from typing import NamedTuple

from distlock.backends.redis.address import Address
from distlock.errors import ConfigurationError

_URL = re.compile(
    r"redlock(?P<tls>s?)://(?P<login>[^/?#]*@)?(?P<hosts>[^/?#@]*)(?P<more>.*)", re.DOTALL | re.IGNORECASE
)
_WRITE = (
    "Write redlock://[user:password@]host[:port],host[:port],host[:port][/db], or redlocks://… for TLS; in "
    "user, password and query write special characters as %XX."
)


class ServerAddress(NamedTuple):
    """One of the servers: its URL, and how it may be shown."""

    url: str
    shown: str


def addresses_in(url: str) -> list[ServerAddress]:
    """Return the addresses that *url* names. Raises `ConfigurationError`, and shows no secret."""
    parts = _URL.fullmatch(url)
    hosts = parts["hosts"].split(",") if parts is not None else []
    if parts is None or not all(hosts):
        raise ConfigurationError(f"The URL of the Redlock servers cannot be read. {_WRITE}")
    scheme, login = "rediss" if parts["tls"] else "redis", parts["login"] or ""
    urls = [f"{scheme}://{login}{host}{parts['more']}" for host in hosts]
    shown = [Address(one).shown.lower() for one in urls]
    _refuse_number(len(hosts))
    for one in shown:
        if shown.count(one) > 1:
            raise ConfigurationError(
                f"The URL of the Redlock servers names {one} twice: when that is away, two are. Name "
                "servers that don't fail together, each once."
            )
    return list(map(ServerAddress, urls, shown))


def _refuse_number(servers: int) -> None:
    if servers < 3:
        named = f"{servers} server" + "s" * (servers != 1)
        raise ConfigurationError(
            f"The URL of the Redlock servers names {named}, and needs 3 or more: the majority of fewer is "
            f"all of them, and none may fail. Name more, or one with redis://. {_WRITE}"
        )
    if servers % 2 == 0:
        raise ConfigurationError(
            f"The URL of the Redlock servers names {servers}, an even number: no more of them may fail than "
            f"of {servers - 1}. Take one out, or name another one."
        )
