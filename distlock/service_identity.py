"""Whether two configurations share their locks, and the order of lock services in `multi_lock`."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: The parts of a server's URL, without the login, because that may change while processes run.
_SERVER = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:[^/@]*@)?(?P<hosts>[^/?]*)(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
_PORTS = {"redis": 6379, "rediss": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
#: Names of this host.
_HERE = ("localhost", "[::1]")


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """Return a value by which to compare two configurations: if it is equal, they share their locks.

    If it differs, they may still share them, for example because one server has two host names. *row*: the
    setting ``FENCE`` if the locks are rows of a database; else None.
    """
    # Leave out the provider: its text differs between processes.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return _normalised(url), backend, prefix, told, row


def sort_key_of(of: object) -> str:
    """Return a text for the lock service of *of*, a client's `identity`; "" if that is unknown.

    `multi_lock` sorts lock services by this text, which is the same in all processes that write the same URL.
    """
    if not isinstance(of, tuple):
        return ""
    url, backend, _, _, row = of
    return repr((url, backend, row)) if url else ""


def _normalised(url: str) -> str:
    """Return *url* without its login, in one spelling: ``redis://127.0.0.1:6379/0``."""
    found = _SERVER.fullmatch(url)
    if found is None or (port := _PORTS.get(scheme := found["scheme"].lower())) is None:
        return url if found is None else f"{found['scheme']}://{found['hosts']}{found['rest']}"
    hosts = []
    for host in found["hosts"].lower().split(","):
        name, _, given = host.rpartition(":") if re.search(r":\d+$", host) else (host, "", "")
        hosts.append(f"{'127.0.0.1' if not name or name in _HERE else name}:{given or port}")
    rest = found["rest"]
    if scheme in {"redis", "rediss"} and rest in {"", "/"}:
        rest = "/0"
    return f"{scheme}://{','.join(hosts)}{rest}"
