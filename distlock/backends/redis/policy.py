"""Whether the server may throw locks away when its memory is full."""

from __future__ import annotations

import logging

from distlock.backends.redis.address import Address
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.scripts import command

logger = logging.getLogger(__name__)

#: Servers before 7.0 can't say, and are not asked for more.
_MAY_LOOK = (
    "local may = redis.acl_check_cmd return may and may('CONFIG', 'GET', 'maxmemory-policy') and 1 or 0"
)


def look_at_policy(address: Address, connection: Connection, deadline: float) -> bool:
    """Warn if it may. False: that is not known, and wants another look."""
    # Asked first whether we may ask: what is denied stands in the server's ACL LOG.
    (allowed,) = connection.ask([command("EVAL", _MAY_LOOK, 0)], deadline)
    if allowed != 1:
        return not isinstance(allowed, ReplyError)
    (reply,) = connection.ask([command("CONFIG", "GET", "maxmemory-policy")], deadline)
    if not isinstance(reply, list) or len(reply) != 2 or not isinstance(reply[1], bytes):
        return True  # Hosted servers don't let us look.
    if reply[1] != b"noeviction":
        logger.warning(
            "The Redis server at %s has maxmemory-policy %s: when its memory is full it may throw locks "
            "away. Set it to noeviction, or give the locks a server of their own.",
            address.shown,
            reply[1].decode("ascii", "replace"),
        )
    return True
