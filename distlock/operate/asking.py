"""What an operator does to a lock: ask its holder to release it, or break it."""

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


def break_lock(namespace: InspectedNamespace, state: LockState, by: str) -> bool:
    """Break the hold that *state* shows, and nothing after it. The next in the queue gets the lock.

    *by*: the person, for the log. Returns False, and nothing is changed, if the hold has ended meanwhile, or
    there was none. The holder is told, at the latest at its next renewal: until then it believes that it has
    the lock. With a fence it can't commit any more; without one it can.
    Raises `BackendUnavailable`; `ConfigurationError` where the lock service can't do it.
    """
    where = namespace.of_kind(state.kind)
    if state.holder is None or where is None:
        return False
    # A hold without an id can't be broken. The error says why.
    number = 0 if state.fence is None else state.fence.number
    if not where.break_hold(state.name, number, state.transaction):
        return False
    lasted = state.holder.seconds()
    logger.warning(
        "The %s %r, held by %s%s, was broken by %s.",
        state.kind,
        state.name,
        state.holder,
        f" for {lasted:.0f} seconds" if lasted else "",
        printable(by),
    )
    return True
