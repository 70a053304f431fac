"""`race`: call code of a site many times at once, by itself or by requests to a running server."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack, get_args
from urllib.parse import urlencode, urlsplit

from distlock.testing import race_frameworks
from distlock.testing.race_processes import in_processes
from distlock.testing.race_threads import Action, Race, in_threads
from distlock.web.stale_writes import Mode


class RaceRequest(TypedDict, total=False):
    """The arguments of a race that sends requests to an address."""

    #: ``"POST"`` by default.
    method: str
    #: The body; a mapping is sent as a form.
    data: Mapping[str, Any] | str | bytes
    #: The body, sent as JSON.
    json: Any
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    status_code: int
    text: str
    headers: Mapping[str, str]


def race(
    action: Action | str,
    *,
    times: int = 20,
    processes: int = 1,
    within: float = 30.0,
    stale_writes: Mode | None = None,
    **request: Unpack[RaceRequest],
) -> Race:
    """Call *action* in many threads at the same moment, and return how the calls ended.

    *action*: a function without arguments, usually a request of a test client. If it returns a coroutine,
    that is run. Or the address of a running server, to which *request* is sent.
    *times*: how many threads call it, once each; 2 or more.
    *processes*: how many processes the threads are spread over. 1: the test's own process. More: forked
    processes, which share only the database and the lock service, as the servers of a site do.
    *within*: seconds that all calls have to start, and then to end; more than 0.
    *stale_writes*: what to do if a row that was loaded before the lock is saved under it. "warn": log it;
    "raise": raise `StaleWrite` at the end; None: what ``DISTLOCK_STALE_WRITES`` says, by default "warn";
    "off": nothing beyond what the site does outside of a race.
    *request*: for an address, ``method`` (by default "POST"), ``headers``, and as the body ``data`` (a
    mapping is sent as a form) or ``json``. Redirects are not followed.

    Each thread lets the others run before each line of the site's own code, so that a race that can happen
    does. The result contains what the calls raise. Each thread closes its Django connections.

    Returns a `Race`. Raises TimeoutError, which says where the calls stand, if they have not ended in time;
    ValueError and TypeError for invalid arguments; `ConfigurationError` inside an open transaction of Django,
    which other threads can't see (``TestCase`` opens one), for a SQLite database in memory, and for a lock
    service that excludes only threads if there are several processes.

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
    if unknown := request.keys() - RaceRequest.__annotations__:
        raise TypeError(f"race() has no argument {min(unknown)!r}.")
    if isinstance(action, str):
        action = sending(action, within, **request)
    elif request:
        raise TypeError(f"{min(request)}= belongs to an address: write it in the call that is raced instead.")
    else:
        race_frameworks.refuse_open_transaction()
    if processes > 1:
        return Race(*in_processes(action, times, processes, within, stale_writes))
    return Race(*in_threads(action, times, within, threading.Barrier(times + 1).wait, stale_writes))


def sending(url: str, within: float, **request: Unpack[RaceRequest]) -> Callable[[], Reply]:
    """Return a function that sends *request* to *url*, and does not follow redirects.

    The function raises TimeoutError if the server sends nothing for *within* seconds. `sending` raises
    ValueError if *url* is no address of a server.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(
            f"{url!r} is no address of a server: write all of it, as in 'http://localhost:8000/products/1'. "
            "Where there is a live_server, the fixture race takes '/products/1' as well."
        )
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    host, port = parts.hostname, parts.port
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    method = request.get("method", "POST").upper()
    body, headers = _written(request)

    def send() -> Reply:
        connection = connect(host, port, timeout=within)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            return Reply(response.status, text, dict(response.getheaders()))
        finally:
            connection.close()

    return send


def _written(request: RaceRequest) -> tuple[str | bytes | None, dict[str, str]]:
    """Return the body of *request*, and its headers."""
    headers = dict(request.get("headers", {}))
    if "json" in request:
        return json.dumps(request["json"]), {"Content-Type": "application/json", **headers}
    data = request.get("data")
    if isinstance(data, Mapping):
        form = urlencode(data, doseq=True)
        return form, {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return data, headers
