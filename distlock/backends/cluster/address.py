"""The nodes that a URL of a cluster names."""

from __future__ import annotations

from typing import NoReturn
from urllib.parse import urlsplit

from distlock.backends.cluster.slots import Endpoint
from distlock.backends.redis.address import Address
from distlock.errors import ConfigurationError

_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}


class ClusterAddress:
    """Some nodes, which tell of the others: ``redis+cluster://[user:password@]host[:port][,host…][?…]``."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            self._refuse("?", "Write redis+cluster://host:port,host:port, or rediss+cluster:// for TLS.")
        # A password with a special character in it ends there, and what is left of it is no host.
        if "@" in f"{parts.path}{parts.query}{parts.fragment}" or parts.fragment:
            self._refuse(
                "?", "In user, password and query write %40 for @, %2F for /, %3F for ? and %23 for #."
            )
        self._scheme = _SCHEMES[parts.scheme]
        self._login, at, hosts = parts.netloc.rpartition("@")
        self._login += at
        self._query = f"?{parts.query}" if parts.query else ""
        if parts.path.strip("/") not in ("", "0"):
            self._refuse(hosts, "A cluster has no database but 0: leave it out.")
        # The first one is told of all that is wrong with the rest of the URL.
        addresses = [
            Address(f"{self._scheme}://{self._login}{host}{self._query}") for host in hosts.split(",")
        ]
        if addresses[0].db:
            self._refuse(hosts, "A cluster has no database but 0: leave db= out.")
        self.places = [Endpoint(address.host, address.port) for address in addresses]
        self.shown = ",".join(map(str, self.places))
        if "" in hosts.split(",") and "," in hosts:
            self._refuse(self.shown, "It has a comma too many: take it out.")

    def url_of(self, place: Endpoint) -> str:
        """Return the URL of one node."""
        return f"{self._scheme}://{self._login}{place}{self._query}"

    def _refuse(self, shown: str, why: str) -> NoReturn:
        raise ConfigurationError(f"The URL of the Redis Cluster at {shown} can't be used. {why}")
