"""`race`: a test calls its own code many times at once, and sees what came of it."""

from __future__ import annotations

import threading
from typing import Unpack, get_args

from distlock.testing import in_django
from distlock.testing.in_processes import in_processes
from distlock.testing.in_threads import Action, in_threads
from distlock.testing.race_result import Race
from distlock.testing.sending import Request, sending
from distlock.web.stale_writes import Mode


def race(
    action: Action | str,
    *,
    times: int = 20,
    processes: int = 1,
    within: float = 30.0,
    stale_writes: Mode | None = None,
    **request: Unpack[Request],
) -> Race:
    """Call *action* in many threads at the same moment, and return what came of it.

    *action*: what is called, without arguments; mostly a request of a test client. What it returns may be a
    coroutine, which is run. Or the address of a server that runs, to which *request* is sent.
    *times*: how many threads call it, once each; 2 or more.
    *processes*: in how many processes the threads are. 1: in that of the test. More: in forked ones, which
    share nothing but database and lock service, as the servers of a site do.
    *within*: seconds in which all of them have to start, and then to end; more than 0.
    *stale_writes*: what becomes of rows that were loaded before the lock and are saved under it. "warn": the
    log has them; "raise": the race ends in `StaleWrite`; None: what ``DISTLOCK_STALE_WRITES`` says, and
    "warn" where it says nothing; "off": the race turns nothing on.
    *request*: for an address ``method`` ("POST" unless it says otherwise), ``headers``, and as the body
    ``data`` (a mapping is sent as a form) or ``json``. Redirections are answers like others.

    Before each line of the site's own code a thread lets the others go on, so that a race that can happen
    does. What the calls raise is part of the result. Django's connections are closed in each thread.

    Returns a `Race`. Raises TimeoutError if calls have not ended, and says where they stand; ValueError and
    TypeError for arguments that can't be; `ConfigurationError` inside an open transaction of Django, as
    ``TestCase`` has one, which other threads can't see, for a SQLite database in memory, and for a lock
    service that keeps no other process out where there are several.

    Example::

        sold = race(lambda: client.post("/products/1/reduce"), times=20)
        assert sold.statuses == {200: 5, 409: 15}
    """
    if times < 2:
        raise ValueError(f"times={times!r}: a race has 2 calls or more.")
    if not 1 <= processes <= times:
        raise ValueError(f"processes={processes!r} has to be from 1 to {times}, one call or more for each.")
    if stale_writes not in {None, *get_args(Mode)}:
        raise ValueError(f'stale_writes={stale_writes!r} has to be "warn", "raise", "off" or None.')
    if not within > 0:
        raise ValueError(f"within={within!r} has to be more than 0 seconds.")
    if unknown := request.keys() - Request.__annotations__:
        raise TypeError(f"race() has no argument {min(unknown)!r}.")
    if isinstance(action, str):
        action = sending(action, within, **request)
    elif request:
        raise TypeError(f"{min(request)}= belongs to an address: write it in the call that is raced instead.")
    else:
        in_django.refuse_open_transaction()
    if processes > 1:
        return Race(*in_processes(action, times, processes, within, stale_writes))
    return Race(*in_threads(action, times, within, threading.Barrier(times + 1).wait, stale_writes))
