"""Where the server is: the URL taken apart, and how it may be shown."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

import redis.connection

from distlock.errors import ConfigurationError

#: What the backend decides itself. In the URL they would be silently overruled.
_OURS = {
    "socket_timeout": "io_timeout",
    "socket_connect_timeout": "io_timeout",
    "max_connections": "max_connections",
    "client_name": "client_name",
}


class Connection(Protocol):
    """What we use of redis-py's connections, which have no types of their own."""

    def connect(self) -> None: ...

    def disconnect(self) -> None: ...

    def send_packed_command(self, command: list[bytes], check_health: bool = True) -> None: ...

    def send_command(self, *args: object) -> None: ...

    def can_read(self, timeout: float = 0) -> bool: ...

    def read_response(self) -> Any: ...


#: Untyped, too.
_parse_url: Any = redis.connection.parse_url


class Address:
    """One server and database. Makes connections that are not yet connected; never shows a secret."""

    def __init__(self, url: str, io_timeout: float, client_name: str) -> None:
        try:
            path = urlsplit(url).path.strip("/")
            settings: dict[str, Any] = _parse_url(url)
        except ValueError:
            # The cause would quote the URL, and with it the password.
            raise ConfigurationError(
                "The URL of the Redis server cannot be read. Write redis://[user:password@]host[:port][/db], "
                "rediss://… for TLS or unix:///path/to/redis.sock[?db=0]; quote special characters as %XX."
            ) from None
        self._factory: Any = settings.pop("connection_class", redis.connection.Connection)
        if "path" in settings:
            self.shown = f"unix://{settings['path']}"
        else:
            self.shown = f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"
            # redis-py would take a path that is no number for database 0.
            if path and not path.isdecimal():
                raise ConfigurationError(
                    f"The URL of the Redis server at {self.shown} names a database that is not a number: "
                    f"write {self.shown}/0."
                )
        for name in sorted(_OURS.keys() & settings.keys()):
            raise ConfigurationError(
                f"Take {name} out of the URL of the Redis server at {self.shown}: "
                f"it is the option {_OURS[name]}."
            )
        self._secrets = [str(settings[name]) for name in ("password", "ssl_password") if settings.get(name)]
        self._settings = settings | {
            # RESP2 is what every supported server speaks, and it is cheaper to read.
            "protocol": 2,
            "socket_timeout": io_timeout,
            "socket_connect_timeout": io_timeout,
            "client_name": client_name or None,
        }
        try:
            self.connection()
        except TypeError as error:
            option = str(error).rpartition(" ")[2]
            raise ConfigurationError(
                f"The URL of the Redis server at {self.shown} has an unknown parameter: {option}."
            ) from None

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    def connection(self) -> Connection:
        """A connection that connects at first use."""
        made: Connection = self._factory(**self._settings)
        return made

    def redact(self, text: str) -> str:
        """Take the secrets out of *text*: a server quotes what it does not understand, AUTH for one."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text
