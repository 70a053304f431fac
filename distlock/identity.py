"""Whether the clients of two configurations have one namespace, as far as their settings tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: A URL of a server: scheme, login, hosts and the rest. The login may change while processes run.
_SERVER = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:[^/@]*@)?(?P<hosts>[^/?]*)(?P<rest>.*)", re.DOTALL | re.IGNORECASE
)
#: The ports that a URL need not name.
_PORTS = {"redis": 6379, "rediss": 6379, "zookeeper": 2181, "postgresql": 5432, "mysql": 3306}
#: Names of this host.
_HERE = ("localhost", "[::1]")


def identity(
    url: str, backend: str | None, prefix: str, options: Mapping[str, object], row: object = None
) -> object:
    """Return a value that two configurations have in common if and only if they share locks."""
    # An object has another text in each process.
    told = {name: value for name, value in options.items() if name != "credential_provider"}
    return _spelled(url), backend, prefix, told, row


def lock_service(of: object) -> str:
    """Return a text for the lock service in the `identity` *of* a client; "" if that is unknown.

    It is the same in every process that spells the host alike, and sorts lock services.
    """
    if not isinstance(of, tuple):
        return ""
    url, backend, _, _, row = of
    return repr((url, backend, row)) if url else ""


def _spelled(url: str) -> str:
    """Return *url* without a login, and as most people write it: ``redis://127.0.0.1:6379/0``."""
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
