"""The addresses of Redis servers: the parts of their URLs, and the URL for a client of redis-py."""

from __future__ import annotations

import copy
import difflib
import enum
import re
import socket
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from distlock.backends.tls import TLS, Tls
from distlock.errors import ConfigurationError

#: Parameters of redis-py's URLs that are refused here, and the option of the backend to use instead.
_OURS = {
    "socket_timeout": "io_timeout",
    "socket_connect_timeout": "io_timeout",
    "max_connections": "max_connections",
    "client_name": "client_name",
}

#: The parameters for the kernel's probes of a connection. The defaults are those of redis-py 8, and the
#: largest values those of Linux.
_KEEPALIVES = {
    "keepalives_idle": (30, 32767),
    "keepalives_interval": (5, 32767),
    "keepalives_count": (3, 127),
}
#: A number of a URL. Unlike the server, int() accepts signs, blanks and digits of other scripts.
_DIGITS = re.compile(r"[0-9]{1,9}")
#: The same parameters as the names of options of a socket.
_TCP = {
    "keepalives_idle": "TCP_KEEPIDLE",
    "keepalives_interval": "TCP_KEEPINTVL",
    "keepalives_count": "TCP_KEEPCNT",
}


def hide(text: str, secrets: Iterable[str | None]) -> str:
    """Return *text* with each of *secrets* replaced."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    return text


class Endpoint(NamedTuple):
    """The host and port at which a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisAddress:
    """One server and database, read from a URL. Its repr and errors show no secret.

    Errors and logs call the server *shown*, by default its host and port.
    """

    #: The parameters that the URL's query may have.
    _plain: tuple[str, ...] = ("db", "username", "password")

    def __init__(self, url: str, shown: str = "") -> None:
        try:
            parts = urlsplit(url)
            self.host = unquote(parts.hostname or "localhost")
            self.port = 6379 if parts.port is None else parts.port
            pairs = parts.query.split("&") if parts.query else []
            query = parse_qsl(
                "&".join(filter(None, pairs)), keep_blank_values=True, strict_parsing=any(pairs)
            )
            # A name that no resolver accepts should fail now, and not at the first lock.
            self.host.encode("idna")
        except (ValueError, UnicodeError):
            self._unreadable()
        if parts.scheme not in ("redis", "rediss", "unix") or "\0" in unquote(url) or parts.fragment:
            self._unreadable()
        #: The path of the socket, or None.
        self.path = unquote(parts.path) or "/" if parts.scheme == "unix" else None
        place = Endpoint(self.host, self.port)
        self.shown = shown or (str(place) if self.path is None else f"unix://{self.path}")
        # After an unquoted special character, a part of the password would look like a port or a path.
        if self.port == 0 or "@" in f"{parts.path}{parts.query}" or (self.path and parts.hostname):
            self._unreadable()
        if not all(pairs):
            self._refuse("Its query has an & too many: take it out.")
        given = self._parameters(query, parts.scheme)
        username = given.get("username") or unquote(parts.username or "")
        password = given.get("password") or unquote(parts.password or "")
        #: The arguments of AUTH; empty if there is no login.
        self.login: tuple[str, ...] = (username, password) if username else (password,) if password else ()
        self.db = self._database(parts, given.get("db"))
        #: The options of a TCP socket by which the kernel notices a server that is gone, and their values.
        self.keepalives = self._read_keepalives(given)
        #: The TLS settings, or None.
        self.tls = self._tls(given) if parts.scheme == "rediss" else None
        self._secrets = [password, self.tls.password if self.tls is not None else None]

    def __repr__(self) -> str:
        return f"<Address {self.shown}>"

    def redact(self, text: str) -> str:
        """Remove the secrets from *text*: a server quotes commands that it does not understand, even AUTH."""
        return hide(text, self._secrets)

    def _parameters(self, query: list[tuple[str, str]], scheme: str) -> dict[str, str]:
        given: dict[str, str] = {}
        for name, value in query:
            if name in _OURS:
                self._refuse(f"Take {name} out of it: it is the option {_OURS[name]}.")
            if name not in (*self._plain, *TLS, *_KEEPALIVES):
                known = ", ".join((*self._plain, *TLS, *_KEEPALIVES))
                self._refuse(f"It has an unknown parameter: {name!r}. Known are {known}.")
            if name in TLS and scheme != "rediss":
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
        if not _DIGITS.fullmatch(number):
            right = f"{self.shown}/0" if self.path is None else f"{self.shown}?db=0"
            self._refuse(f"It names a database that is not a number: write {right}.")
        return int(number)

    def _read_keepalives(self, given: dict[str, str]) -> dict[int, int]:
        found: dict[int, int] = {}
        for name, (default, most) in _KEEPALIVES.items():
            text = given.get(name, str(default))
            if name in given and self.path is not None:
                self._refuse(f"{name} is for TCP: take it out.")
            if not _DIGITS.fullmatch(text) or not 0 < int(text) <= most:
                self._refuse(f"Its {name} is {text!r}, and has to be a number from 1 to {most}.")
            # Not every system has these options.
            if (option := getattr(socket, _TCP[name], None)) is not None:
                found[option] = int(text)
        return found

    def _tls(self, given: dict[str, str]) -> Tls:
        try:
            return Tls({name: value for name, value in given.items() if name in TLS})
        except ValueError as error:
            self._refuse(str(error))

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigurationError(
            f"The URL of the Redis server at {self.shown} can't be used. {why}"
        ) from None

    def _unreadable(self) -> NoReturn:
        # The cause would quote the URL with the password.
        raise ConfigurationError(
            "The URL of the Redis server cannot be read. Write redis://[user:password@]host[:port][/db], "
            "rediss://… for TLS or unix:///path/to/redis.sock[?db=0]; in "
            "user, password and query write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %."
        ) from None


#: A URL that names several hosts. Python's own `urlsplit` reads the port of one host only.
_SEVERAL = re.compile(r"\A(?:([^:/?#@]*)://)?([^/?#]*@)?([^/?#@]*)(.*)", re.DOTALL)
#: The part of a URL after the hosts of the sentinels, and one of the hosts.
_OF_SENTINELS = re.compile(r"/(?P<name>[A-Za-z0-9._-]+)(?P<more>(?:/[^?#]*)?(?:\?[^#]*)?)")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_SENTINEL_PORT = 26379
_WRITE_REDLOCK = (
    "Write redlock://[user:password@]host[:port],host[:port],host[:port][/db], or redlocks://… for TLS; in "
    "user, password and query write special characters as %XX."
)


def _several(url: str) -> tuple[str, str, list[str], str]:
    """Return the scheme of *url*, the login with its @, the hosts, and the rest; "" for what is missing."""
    [(scheme, login, hosts, more)] = _SEVERAL.findall(url)
    return scheme.lower(), login, hosts.split(","), more


class SentinelAddress(RedisAddress):
    """A primary that sentinels name: its database, login and TLS settings, and the sentinels' addresses."""

    _plain = (*RedisAddress._plain, "sentinel_username", "sentinel_password")

    def __init__(self, url: str) -> None:
        scheme, login, hosts, more = _several(url)
        parts = _OF_SENTINELS.fullmatch(more)
        if scheme not in ("redis+sentinel", "rediss+sentinel") or parts is None:
            self._unreadable()
        places = [self._endpoint(host) for host in hosts]
        #: The name by which the sentinels know the primary.
        self.name = parts["name"]
        shown = f"{scheme}://{','.join(map(str, places))}/{self.name}"
        # The primary's address differs only in the host and port: see `at`.
        super().__init__(f"{scheme.partition('+')[0]}://{login}localhost{parts['more']}", shown)
        self._secrets += self._sentinel_login[-1:]
        #: The addresses of the sentinels, in the order of the URL.
        self.sentinels = [self.at(*place) for place in places]
        for sentinel in self.sentinels:
            sentinel.login, sentinel.db = self._sentinel_login, 0

    def at(self, host: str, port: int) -> RedisAddress:
        """Return the address of a server at *host* and *port*, with the URL's database, login and TLS."""
        found = copy.copy(self)
        found.host, found.port, found.shown = host, port, str(Endpoint(host, port))
        return found

    def _parameters(self, query: list[tuple[str, str]], scheme: str) -> dict[str, str]:
        given = super()._parameters(query, scheme)
        login = given.get("sentinel_username"), given.get("sentinel_password")
        if login[0] and not login[1]:
            self._refuse("It has a sentinel_username and no sentinel_password.")
        self._sentinel_login = tuple(part for part in login if part)
        return given

    def _endpoint(self, text: str) -> Endpoint:
        match = _HOST.fullmatch(text)
        if match is None or not 0 < int(match["port"] or _SENTINEL_PORT) < 65536:
            self._unreadable()
        return Endpoint(match["name"].strip("[]"), int(match["port"] or _SENTINEL_PORT))

    def _unreadable(self) -> NoReturn:
        # The message does not quote the URL, which may have a password.
        raise ConfigurationError(
            "The URL of the Redis sentinels cannot be read. Write redis+sentinel://[user:password@]"
            "host[:port][,host[:port]…]/name[/db], or rediss+sentinel://… for TLS. The hosts are those of "
            "the sentinels, and name is what 'sentinel monitor' calls the primary, as mymaster. In user, "
            "password and query write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %."
        ) from None


class ClusterAddress:
    """Some nodes of a cluster: ``redis+cluster://[user:password@]host[:port][,host…][?…]``."""

    def __init__(self, url: str) -> None:
        # As urlsplit() does, remove tabs, an empty fragment, and newlines, with which a line of a file ends.
        bare = url.translate({9: None, 10: None, 13: None}).removesuffix("#")
        scheme, self._login, hosts, more = _several(bare)
        if scheme not in ("redis+cluster", "rediss+cluster"):
            self._refuse("?", "Write redis+cluster://host:port,host:port, or rediss+cluster:// for TLS.")
        # An unquoted special character in the password ends the host part early.
        if "@" in more or "#" in more:
            self._refuse(
                "?", "In user, password and query write %40 for @, %2F for /, %3F for ? and %23 for #."
            )
        self._scheme = scheme.partition("+")[0]
        path, mark, query = more.partition("?")
        self._query = mark + query
        if path.strip("/") not in ("", "0"):
            self._refuse(",".join(hosts), "A cluster has no database but 0: leave it out.")
        # Making an address reports what is wrong with the rest of the URL.
        addresses = [RedisAddress(f"{self._scheme}://{self._login}{host}{self._query}") for host in hosts]
        if addresses[0].db:
            self._refuse(",".join(hosts), "A cluster has no database but 0: leave db= out.")
        self.places = [Endpoint(address.host, address.port) for address in addresses]
        self.shown = ",".join(map(str, self.places))
        if "" in hosts and len(hosts) > 1:
            self._refuse(self.shown, "It has a comma too many: take it out.")

    def url_of(self, place: Endpoint) -> str:
        """Return the URL of one node."""
        return f"{self._scheme}://{self._login}{place}{self._query}"

    def _refuse(self, shown: str, why: str) -> NoReturn:
        raise ConfigurationError(f"The URL of the Redis Cluster at {shown} can't be used. {why}")


class RedlockAddress(NamedTuple):
    """The URL of one of several servers, and the server's name for people."""

    url: str
    shown: str


def redlock_addresses(url: str) -> list[RedlockAddress]:
    """Return the servers that *url* names, in its order.

    Raises `ConfigurationError` if *url* can't be used, or unless it names an odd number of different servers,
    3 or more. The message shows no password.
    """
    scheme, login, hosts, more = _several(url)
    if scheme not in ("redlock", "redlocks") or not all(hosts):
        raise ConfigurationError(f"The URL of the Redlock servers cannot be read. {_WRITE_REDLOCK}")
    redis = "rediss" if scheme == "redlocks" else "redis"
    urls = [f"{redis}://{login}{host}{more}" for host in hosts]
    found = [RedlockAddress(one, RedisAddress(one).shown.lower()) for one in urls]
    names = "The URL of the Redlock servers names"
    if (number := len(found)) < 3:
        raise ConfigurationError(
            f"{names} {number} server{'s' * (number != 1)}, and needs 3 or more: the majority of fewer is "
            f"all of them, and none may fail. Name more, or one with redis://. {_WRITE_REDLOCK}"
        )
    if number % 2 == 0:
        raise ConfigurationError(
            f"{names} {number}, an even number: no more of them may fail than of {number - 1}. Take one out, "
            "or name another one."
        )
    for shown, times in Counter(one.shown for one in found).items():
        if times > 1:
            raise ConfigurationError(
                f"{names} {shown} twice: when that is away, two are. Name servers that don't fail together, "
                "each once."
            )
    return found


#: redis-py's classes that connect to one server, and their URL schemes. Other classes are refused.
_CONNECTIONS = {"Connection": "redis", "SSLConnection": "rediss", "UnixDomainSocketConnection": "unix"}
_POOLS = ("ConnectionPool", "BlockingConnectionPool")
_MODULES = ("redis.connection", "redis.asyncio.connection")
#: redis-py's classes that ask sentinels, and their URL schemes.
_MANAGED = {"SentinelManagedConnection": "redis+sentinel", "SentinelManagedSSLConnection": "rediss+sentinel"}
_OF_SENTINEL = ("redis.sentinel", "redis.asyncio.sentinel")

_PLACE = ("host", "port", "db", "username", "password")
_SENTINELS = ("service", "sentinel_username", "sentinel_password")
#: Arguments of ``redis.Redis`` about the connection and the decoding of replies, which this backend ignores.
_MANNERS = {
    "client_name",
    "decode_responses",
    "driver_info",
    "encoding",
    "encoding_errors",
    "health_check_interval",
    "lib_name",
    "lib_version",
    "max_connections",
    "protocol",
    "retry",
    "retry_on_error",
    "retry_on_timeout",
    "single_connection_client",
    "socket_connect_timeout",
    "socket_keepalive",
    "socket_timeout",
}
_ONE = "Write the URL of one server, such as redis://localhost:6379/0."
_IN_A_DICT = (*_PLACE, "credential_provider", "socket_keepalive_options", "unix_socket_path", "ssl", *TLS)


def redis_py_url(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
    """Return the URL of the server that *given* connects to, and the options that a URL can't have.

    A client is only read, and its connections are not used. redis-py itself is not needed.

    Args:
        given: A client of redis-py, or a dict of the arguments of ``redis.Redis``.
        db: Another database of that server; None: the one of *given*.

    Raises:
        ConfigurationError: This backend can't connect as *given* does.
    """
    scheme, arguments = _of_dict(given) if isinstance(given, Mapping) else _of_client(given)
    if db is not None:
        arguments["db"] = db
    for name, value in arguments.items():
        if value and name not in TLS and (name.startswith("ssl_") or name == "redis_connect_func"):
            _refuse(f"It sets {name}, which this backend does not know. {_ONE}")
    if "ssl_cert_reqs" in arguments:
        # redis-py's None means no verification; for us None is the default.
        arguments["ssl_cert_reqs"] = arguments["ssl_cert_reqs"] or ssl.CERT_NONE
    provider = arguments.get("credential_provider")
    return _url(scheme, arguments), {} if provider is None else {"credential_provider": provider}


def _of_client(client: object) -> tuple[str, dict[str, Any]]:
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    pool = getattr(client, "connection_pool", None)
    arguments = getattr(pool, "connection_kwargs", None)
    if not isinstance(arguments, Mapping):
        if "cluster" in kind.lower():
            _refuse(f"{kind} leads to a cluster. Write its URL, such as redis+cluster://localhost:7000.")
        if type(client).__module__ in _OF_SENTINEL:
            _refuse(f"{kind} leads to several primaries: give the client of one, as master_for('mymaster').")
        _refuse(f"{kind} is no client of redis-py for one server. {_ONE}")
    if type(pool).__module__ in _OF_SENTINEL:
        return _of_sentinels(pool, dict(arguments))
    for made, known in ((type(pool), _POOLS), (getattr(pool, "connection_class", type(None)), _CONNECTIONS)):
        if made.__module__ not in _MODULES or made.__qualname__ not in known:
            _refuse(
                f"It uses {made.__module__}.{made.__qualname__}, and where that leads is not known. {_ONE}"
            )
    return _CONNECTIONS[pool.connection_class.__qualname__], dict(arguments)  # type: ignore[union-attr]


def _of_sentinels(pool: Any, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return scheme and arguments of a client that asks sentinels."""
    kind = pool.connection_class
    if kind.__module__ not in _OF_SENTINEL or kind.__qualname__ not in _MANAGED:
        _refuse(f"It uses {kind.__module__}.{kind.__qualname__}, and where that leads is not known. {_ONE}")
    if not pool.is_master:
        _refuse("It asks Sentinel for a replica, where no lock can be taken: give one of master_for(…).")
    scheme = _MANAGED[kind.__qualname__]
    hosts, logins = [], set()
    for sentinel in pool.sentinel_manager.sentinels:
        said = sentinel.connection_pool.connection_kwargs
        tls = sentinel.connection_pool.connection_class.__qualname__ == "SSLConnection"
        if tls is not scheme.startswith("rediss"):
            _refuse("It speaks TLS with the server or with its sentinels, and not with both.")
        hosts.append(f"{_host(said['host'])}:{said['port']}")
        logins.add((said.get("username"), said.get("password")))
    if len(logins) != 1:
        _refuse("Its sentinels want different logins: give all the same.")
    user, password = logins.pop()
    arguments |= {"host": ",".join(hosts), "service": pool.service_name}
    return scheme, arguments | {"sentinel_username": user, "sentinel_password": password}


def _of_dict(given: Mapping[Any, Any]) -> tuple[str, dict[str, Any]]:
    arguments = {name: value for name, value in given.items() if name not in _MANNERS}
    for name in arguments.keys() - set(_IN_A_DICT):
        close = difflib.get_close_matches(str(name), _IN_A_DICT, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(_IN_A_DICT)}."
        _refuse(f"It has an unknown argument {name!r}. {hint}")
    if not arguments.get("ssl") and (loose := [name for name in TLS if arguments.get(name)]):
        _refuse(f"It sets {loose[0]}, and no TLS: add ssl=True.")
    tls, path = arguments.pop("ssl", False), arguments.pop("unix_socket_path", None)
    if path is not None:
        return "unix", {**arguments, "path": path}
    return "rediss" if tls else "redis", arguments


def _url(scheme: str, arguments: Mapping[str, Any]) -> str:
    names = (*_PLACE, "path", *_SENTINELS, *(TLS if scheme.startswith("rediss") else ()))
    said = {
        name: _query_text(name, arguments[name]) for name in names if arguments.get(name) not in (None, "")
    }
    query = {name: said[name] for name in (*_SENTINELS[1:], *TLS) if name in said}
    probes = arguments.get("socket_keepalive_options")
    # Without options given, redis-py 8 has an object of its own here.
    if isinstance(probes, Mapping) and scheme != "unix":
        options = {getattr(socket, option, None): name for name, option in _TCP.items()}
        # `io_timeout` bounds the calls, so TCP_USER_TIMEOUT and the like are not needed.
        query |= {options[one]: _query_text("", value) for one, value in probes.items() if one in options}
    user, password = (quote(said.get(name, ""), safe="") for name in ("username", "password"))
    login = f"{user}:{password}@" if user or password else ""
    if scheme == "unix":
        where, query["db"] = quote(said.get("path", "")), said.get("db", "0")
    elif "service" in said:
        where = f"{said['host']}/{said['service']}/{quote(said.get('db', '0'), safe='')}"
    else:
        host = _host(said.get("host", "localhost"))
        where = f"{host}:{said.get('port', '6379')}/{quote(said.get('db', '0'), safe='')}"
    return f"{scheme}://{login}{where}" + (f"?{urlencode(query, quote_via=quote, safe='/')}" if query else "")


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else quote(host, safe="")


def _query_text(name: str, value: object) -> str:
    """Return *value* of the argument *name* as it stands in a URL. Raises `ConfigurationError` for bytes."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        _refuse(f"Its {name} is bytes: write text.")
    return str(value)


def _refuse(why: str) -> NoReturn:
    raise ConfigurationError(f"The connection arguments of the Redis server can't be taken over. {why}")
