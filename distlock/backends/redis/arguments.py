"""Where a server is in the words of redis-py: a client of that library, or a dict of its arguments, as a URL.

A client is only read: its sockets stay its own. redis-py itself is not needed.
"""

from __future__ import annotations

import difflib
import enum
import ssl
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from distlock.backends.tls import TLS
from distlock.errors import ConfigurationError

#: The classes that connect to one server, and what a URL calls that. Others may do anything.
_CONNECTIONS = {"Connection": "redis", "SSLConnection": "rediss", "UnixDomainSocketConnection": "unix"}
_POOLS = ("ConnectionPool", "BlockingConnectionPool")
_MODULES = ("redis.connection", "redis.asyncio.connection")
#: The same of a client that asks sentinels.
_MANAGED = {"SentinelManagedConnection": "redis+sentinel", "SentinelManagedSSLConnection": "rediss+sentinel"}
_OF_SENTINEL = ("redis.sentinel", "redis.asyncio.sentinel")

_PLACE = ("host", "port", "db", "username", "password")
_SENTINELS = ("service", "sentinel_username", "sentinel_password")
#: Arguments of ``redis.Redis`` that say how it talks and what it makes of answers. We have ways of our own.
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
    "socket_keepalive_options",
    "socket_timeout",
}
_ONE = "Write the URL of one server, such as redis://localhost:6379/0."
_IN_A_DICT = (*_PLACE, "credential_provider", "unix_socket_path", "ssl", *TLS)


def written(given: object, db: int | None = None) -> tuple[str, dict[str, object]]:
    """The URL of the server that *given* leads to, and the options that no URL can say.

    *given*: a client of redis-py, or a dict of arguments as ``redis.Redis(**given)`` takes them.
    *db*: another database of that server. Raises `ConfigurationError` for what this backend can't do.
    """
    scheme, arguments = _of_dict(given) if isinstance(given, Mapping) else _of_client(given)
    if db is not None:
        arguments["db"] = db
    for name, value in arguments.items():
        if value and name not in TLS and (name.startswith("ssl_") or name == "redis_connect_func"):
            _refuse(f"It sets {name}, which this backend does not know. {_ONE}")
    if "ssl_cert_reqs" in arguments:
        # Elsewhere None is nothing said.
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
    """Those of the primary, and where its sentinels are."""
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
    said = {name: _text(name, arguments[name]) for name in names if arguments.get(name) not in (None, "")}
    query = {name: said[name] for name in (*_SENTINELS[1:], *TLS) if name in said}
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


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        _refuse(f"Its {name} is bytes: write text.")
    return str(value)


def _refuse(why: str) -> NoReturn:
    raise ConfigurationError(f"The connection arguments of the Redis server can't be taken over. {why}")
