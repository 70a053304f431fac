"""Ask for a lock back: what an operator does before breaking one."""

from __future__ import annotations

import logging

from distlock.operate.looking import InspectedNamespace, LockState, printable

logger = logging.getLogger("distlock")


def ask_back(namespace: InspectedNamespace, state: LockState, by: str) -> bool:
    """Ask the holder of the lock that *state* shows to give it back: see `distlock.Locks.request_release`.

    *by*: the person, for the log. Returns whether anybody holds it. Raises `BackendUnavailable`;
    `ConfigurationError` where the lock service can't do it.
    """
    where = namespace.of_kind(state.kind)
    if where is None or not where.request_release(state.name):
        return False
    logger.warning(
        "The holder of the %s %r, %s, was asked by %s to give it back.",
        state.kind,
        state.name,
        state.holder or "which came just now",
        printable(by),
    )
    return True
