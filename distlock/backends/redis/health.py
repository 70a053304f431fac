"""Health checks of a Redis server: what may lose locks, or keep them from being taken."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from distlock.backends.inspectable import Finding, connections
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.scripts import command

#: Sends one command and returns its reply, or None if the server refused it.
Send = Callable[..., object]

#: A larger difference between the server's clock and this host's is a warning. In seconds.
_APART = 2.0
#: The format before `FORMAT`. A process that used it within the last `_LATELY` seconds is an error.
_FORMER, _LATELY = "dl:1", 60.0
#: A larger share of used memory is a warning.
_NEARLY_ALL = 0.9


def examine(send: Send, most_connections: int, in_cluster: bool, listens: bool) -> Iterator[Finding]:
    """Yield the findings about one server.

    Args:
        send: Sends one command.
        most_connections: How many connections for calls each process may open.
        in_cluster: Whether the URL names a cluster.
        listens: Whether each process has one more connection, for its subscription.
    """
    info = info_in(send("INFO"))
    if not info:
        yield Finding(
            "warning",
            "server",
            "The server does not let this user look at it with INFO.",
            "Examine it as another user: ACL SETUSER <user> +info +time +config|get.",
        )
        return
    yield Finding("ok", "server", _version_text(info))
    if info.get("cluster_enabled") == "1" and not in_cluster:
        yield Finding(
            "error",
            "cluster",
            "It is a node of a cluster, and refuses the locks whose slots other nodes serve.",
            "Write redis+cluster:// in the place of redis://, and no database.",
        )
    yield from _check_replication(info)
    yield from _check_format(send)
    yield _check_eviction(info, send)
    yield from _check_memory(info)
    yield _check_persistence(info, send)
    yield from _check_clock(send)
    here, most = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    shown = f"{most_connections} and one" if listens else ""
    yield connections(here, most, most_connections + listens, "maxclients", listens, shown)


def over_several(found: Mapping[str, Sequence[Finding]]) -> Iterator[Finding]:
    """Yield the findings of several servers: once if all servers have one, else with the servers' names."""
    places: dict[Finding, list[str]] = {}
    for place, findings in found.items():
        for finding in findings:
            places.setdefault(finding, []).append(place)
    for finding, at in places.items():
        yield finding if len(at) == len(found) else replace(finding, said=f"{', '.join(at)}: {finding.said}")


def _version_text(info: dict[str, str]) -> str:
    # Valkey reports the compatible version of Redis, too.
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}."
    return f"Redis {info.get('redis_version', '?')}."


def info_in(reply: object) -> dict[str, str]:
    """Return the fields of *reply*, the reply to ``INFO`` or ``CLUSTER INFO``; {} if it was refused."""
    if not isinstance(reply, bytes):
        return {}
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def config_of(send: Send, name: str) -> str | None:
    """Return the setting *name*, or None if the server does not tell it, as hosted servers don't."""
    reply = send("CONFIG", "GET", name)
    match reply:
        case [_, bytes() as value]:
            return value.decode("utf-8", "replace")
    return None


def _check_replication(info: dict[str, str]) -> Iterator[Finding]:
    """Yield a finding if the server is a replica or has replicas."""
    if info.get("role") == "slave":
        yield Finding(
            "error",
            "replication",
            "It is a replica: no lock can be taken there.",
            "Write the address of its primary in LOCATION or --url.",
        )
    elif int(info.get("connected_slaves", 0)):
        yield Finding(
            "warning",
            "replication",
            f"Its replicas: {info['connected_slaves']}. A failover loses the locks that they have not got "
            "yet: two processes may then believe that they hold one.",
            "Fence what must not be done twice (fence=True), and set min-replicas-to-write 1.",
        )


def _check_format(send: Send) -> Iterator[Finding]:
    """Yield an error if an older version, with another format of keys, was in use within the last minute."""
    match send("HSCAN", f"{_FORMER}:processes", 0, "COUNT", 200):
        case [_, list() as entries]:
            until = [float(one) for one in entries[1::2] if isinstance(one, bytes)]
            if max(until, default=0.0) > time.time() - _LATELY:
                yield Finding(
                    "error",
                    "format",
                    f"An older version of distlock, with keys '{_FORMER}:', took locks here within the last "
                    "minute. Neither version keeps the other out.",
                    "End all processes of the older version. Until then fence what must not be done twice.",
                )


def _check_eviction(info: dict[str, str], send: Send) -> Finding:
    policy = info.get("maxmemory_policy") or config_of(send, "maxmemory-policy")
    if policy is None:
        return Finding(
            "warning", "eviction", "The server does not tell its maxmemory-policy.", _EVICTION_REMEDY
        )
    if policy != "noeviction":
        said = f"maxmemory-policy is {policy}: when its memory is full the server may throw locks away."
        return Finding("warning", "eviction", said, _EVICTION_REMEDY)
    return Finding("ok", "eviction", "maxmemory-policy is noeviction.")


_EVICTION_REMEDY = "Set maxmemory-policy noeviction, or give the locks a server of their own."


def _check_memory(info: dict[str, str]) -> Iterator[Finding]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if most and used > most * _NEARLY_ALL:
        yield Finding(
            "warning",
            "memory",
            f"{used / most:.0%} of maxmemory is used. When it is full no lock can be taken.",
            "Raise maxmemory, or give the locks a server of their own.",
        )


def _check_persistence(info: dict[str, str], send: Send) -> Finding:
    for what in ("rdb_last_bgsave_status", "aof_last_write_status"):
        if info.get(what, "ok") != "ok":
            return Finding(
                "error",
                "persistence",
                f"The server could not save its data ({what}), and may refuse to write.",
                "Look into its log, and whether its disk is full.",
            )
    if info.get("aof_enabled") == "1":
        fsync = config_of(send, "appendfsync")
        if fsync == "always":
            return Finding("ok", "persistence", "Each write is saved: a restart loses no lock.")
        which = f"appendfsync is {fsync}" if fsync else "appendonly is on"
        return Finding("ok", "persistence", f"{which}: a crash may lose the locks of its last second.")
    return Finding(
        "warning",
        "persistence",
        "appendonly is off: a server that is started again knows no locks, and grants those that are held.",
        "Set appendonly yes, and fence what must not be done twice (fence=True).",
    )


def _check_clock(send: Send) -> Iterator[Finding]:
    began = time.time()
    match send("TIME"):
        case [bytes() as seconds, bytes() as micros]:
            apart = int(seconds) + int(micros) / 1e6 - (began + time.time()) / 2
            if abs(apart) > _APART:
                yield Finding(
                    "warning",
                    "clock",
                    f"The server's clock is {abs(apart):.0f} seconds {'ahead' if apart > 0 else 'behind'}. "
                    "Locks don't mind, unless it is set back.",
                    "Let both hosts keep time by NTP.",
                )
            else:
                yield Finding("ok", "clock", "The server's clock and the one here agree.")


logger = logging.getLogger(__name__)

#: A script that returns 1 if we may read the policy, else 0. Servers before 7.0 can't tell: 0.
_MAY_LOOK = (
    "local may = redis.acl_check_cmd return may and may('CONFIG', 'GET', 'maxmemory-policy') and 1 or 0"
)


def warn_of_eviction(address: RedisAddress, connection: RedisConnection, deadline: float) -> bool:
    """Log a warning if the server may evict locks when its memory is full.

    Return True if the check is done, also if we may not read the policy. False: the server answered the
    script with an error, so that the next connection has to check again.
    """

    def send(*words: str | int) -> object:
        (reply,) = connection.ask([command(*words)], deadline)
        return reply

    # Check the permission first, because the server's ACL LOG would show a denied command.
    allowed = send("EVAL", _MAY_LOOK, 0)
    if allowed != 1:
        return not isinstance(allowed, ReplyError)
    # None: a hosted server does not tell its policy.
    if (policy := config_of(send, "maxmemory-policy")) not in (None, "noeviction"):
        logger.warning(
            "The Redis server at %s has maxmemory-policy %s: when its memory is full it may throw locks "
            "away. Set it to noeviction, or give the locks a server of their own.",
            address.shown,
            policy,
        )
    return True
