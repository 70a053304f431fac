"""The faults of a soak: what strikes the workers, and what strikes each lock service."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import redis

from tests.soak.notes import Fault

Strike = Callable[[str, random.Random], None]


def with_redis(command: Callable[[redis.Redis], object]) -> Strike:
    def strike(url: str, choices: random.Random) -> None:
        with redis.Redis.from_url(url) as client, suppress(redis.RedisError):
            command(client)

    return strike


def kill_one_client(url: str, choices: random.Random) -> None:
    with redis.Redis.from_url(url) as client, suppress(redis.RedisError):
        others = [one["id"] for one in client.client_list() if one["cmd"] != "client|list"]
        if others:
            client.client_kill_filter(_id=choices.choice(others))


#: What can be done to each lock service, by the scheme of its URL.
STRIKES: dict[str, dict[str, Strike]] = {
    "redis": {
        "CLIENT KILL": kill_one_client,
        "CLIENT KILL TYPE pubsub": with_redis(
            lambda client: client.execute_command("CLIENT KILL TYPE pubsub")
        ),
        "SCRIPT FLUSH": with_redis(lambda client: client.script_flush()),
        "CLIENT PAUSE": with_redis(lambda client: client.client_pause(300)),
    },
}
#: What makes a lock service forget its locks, so that an overlap is admitted.
FORGETFUL: dict[str, dict[str, Strike]] = {
    "redis": {"FLUSHALL": with_redis(lambda client: client.flushall())},
}


#: For how many seconds a fault keeps everybody from a lock that is free. What is swallowed is noticed after
#: the time-out of a call, 2 s, and a release that was swallowed is repeated then.
LASTS = {"CLIENT PAUSE": 0.3, "bytes swallowed": 5.0}


def kill(process: int) -> Fault:
    began = time.monotonic()
    os.kill(process, signal.SIGKILL)
    return Fault("SIGKILL", began, time.monotonic(), process)


def stop(process: int, seconds: float) -> Fault:
    """Stop *process*, and let it go on after *seconds*."""
    began = time.monotonic()
    os.kill(process, signal.SIGSTOP)
    threading.Event().wait(seconds)
    os.kill(process, signal.SIGCONT)
    return Fault("SIGSTOP", began, time.monotonic(), process)


def strike_service(url: str, what: str, strike: Strike, choices: random.Random) -> Fault:
    began = time.monotonic()
    strike(url, choices)
    forgets = any(what in strikes for strikes in FORGETFUL.values())
    return Fault(what, began, time.monotonic() + LASTS.get(what, 0.0), forgets=forgets)
