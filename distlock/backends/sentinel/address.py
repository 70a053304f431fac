"""Where the sentinels are, and what the primary that they name is told: the URL taken apart."""

from __future__ import annotations

import copy
import re
from typing import NoReturn

from distlock.backends.redis.address import Address
from distlock.errors import ConfigurationError

#: Python's own `urlsplit` reads the port of one host only.
_URL = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"/(?P<name>[A-Za-z0-9._-]+)(?P<db>/[^?#]*)?(?P<query>\?[^#]*)?",
    re.IGNORECASE,
)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PORT = 26379


class SentinelAddress(Address):
    """The sentinels of one primary. Connects to nothing; never shows a secret."""

    _plain = (*Address._plain, "sentinel_username", "sentinel_password")

    def __init__(self, url: str) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            self._unreadable()
        places = [self._place(text) for text in parts["hosts"].split(",")]
        #: The sentinels' name of the primary.
        self.name = parts["name"]
        scheme = parts["scheme"].lower()
        shown = ",".join(_shown(*place) for place in places)
        login = f"{parts['login']}@" if parts["login"] else ""
        # The address of the primary without its host.
        super().__init__(
            f"{scheme}://{login}localhost{parts['db'] or ''}{parts['query'] or ''}",
            f"{scheme}+sentinel://{shown}/{self.name}",
        )
        self._secrets += self._sentinel_login[-1:]
        #: Each of them, in the order of the URL.
        self.sentinels = [self.at(*place) for place in places]
        for sentinel in self.sentinels:
            sentinel.login, sentinel.db = self._sentinel_login, 0

    def at(self, host: str, port: int) -> Address:
        """A server at *host*, with all else that the URL says."""
        found = copy.copy(self)
        found.host, found.port, found.shown = host, port, _shown(host, port)
        return found

    def _given(self, query: list[tuple[str, str]], scheme: str) -> dict[str, str]:
        given = super()._given(query, scheme)
        login = given.get("sentinel_username"), given.get("sentinel_password")
        if login[0] and not login[1]:
            self._refuse("It has a sentinel_username and no sentinel_password.")
        self._sentinel_login = tuple(part for part in login if part)
        return given

    def _place(self, text: str) -> tuple[str, int]:
        match = _HOST.fullmatch(text)
        if match is None or not 0 < int(match["port"] or _PORT) < 65536:
            self._unreadable()
        return match["name"].strip("[]"), int(match["port"] or _PORT)

    def _unreadable(self) -> NoReturn:
        # Not quoted: it may have a password.
        raise ConfigurationError(
            "The URL of the Redis sentinels cannot be read. Write redis+sentinel://[user:password@]"
            "host[:port][,host[:port]…]/name[/db], or rediss+sentinel://… for TLS. The hosts are those of "
            "the sentinels, and name is what 'sentinel monitor' calls the primary, as mymaster. In user, "
            "password and query write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %."
        ) from None


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
