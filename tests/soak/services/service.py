"""A lock service that a soak may strike, and what its network may do."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from tests.soak.services.proxy import DIRECTIONS, Proxy

#: The lease of the locks, seconds.
TTL = 3.0
#: The time-out of a call to the lock service, seconds.
IO_TIMEOUT = 2.0


@dataclass(frozen=True, slots=True)
class Strike:
    """Something that can be done to a lock service.

    *lasts*: for how many seconds after it everybody may be kept from a lock that is free. A release that got
    no answer is repeated, and until then the lock stays taken. *lasts_if_late*: for how many more if it went
    on for so long that calls have timed out. A request that is carried out late may have the lock for a
    lease. *of_one*: whether it strikes only the process that *do* returns, if any. *forgets*: whether
    locks that are held may be lost. *skips*: whether a process that waits may be passed over, because it does
    not hear its turn.
    """

    what: str
    do: Callable[[random.Random], object]
    lasts: float = 0.0
    lasts_if_late: float = 0.0
    of_one: bool = False
    forgets: bool = False
    skips: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A running lock service: what workers connect to, and what can be done to it.

    *losing*: the strikes after which it has lost locks, although it could have kept them.
    """

    url: str
    strikes: tuple[Strike, ...] = ()
    losing: tuple[Strike, ...] = ()
    #: What can be done to it by what a proxy has heard.
    overheard: Callable[[Proxy], tuple[Strike, ...]] = lambda _: ()
    #: The URL of a server of it without a proxy; "": `url`.
    direct: str = ""
    #: For how many seconds a process that is killed, or stands still, may keep a lock: see `Promises`.
    killed: float = TTL
    stopped: float = TTL

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]


def behind(proxy: Proxy, service: Service) -> Service:
    """Return *service* as the workers see it through *proxy*."""
    return replace(
        service,
        url=proxy.url,
        strikes=service.strikes + network(proxy, service.scheme) + service.overheard(proxy),
        direct=service.direct or service.url,
    )


def network(proxy: Proxy, scheme: str) -> tuple[Strike, ...]:
    """Return what the network in between can do."""
    # A lock of a database ends with its session, and so with its connection.
    forgets = scheme in {"postgresql", "mysql"}
    found = [
        Strike(
            f"{direction} cut by {end}",
            lambda choices, direction=direction, end=end: proxy.cut_one(choices, direction, end == "RST"),
            of_one=True,
        )
        for direction in DIRECTIONS
        for end in ("FIN", "RST")
    ]
    found += [
        Strike(f"all cut by {end}", lambda _, end=end: proxy.cut_all(end == "RST"), skips=True)
        for end in ("FIN", "RST")
    ]
    found += [
        Strike(
            f"{direction} swallowed",
            lambda choices, direction=direction: proxy.swallow(choices, direction, choices.choice(PAUSES)),
            lasts_if_late=TTL,
            skips=True,
        )
        for direction in DIRECTIONS
    ]
    found += [
        Strike(
            "connections refused",
            lambda choices: proxy.refuse(choices.choice(PAUSES)),
            skips=True,
        ),
        Strike(
            "bytes delayed",
            lambda choices: proxy.delay(choices.choice(PAUSES)),
            lasts_if_late=IO_TIMEOUT + TTL,
            skips=True,
        ),
    ]
    return tuple(replace(one, forgets=forgets) for one in found)


#: For how many seconds the network or a server is away: less and more than a call may take, and a lease.
PAUSES = (0.3, 1.2 * IO_TIMEOUT, 1.3 * TTL)


#: The names of the faults of a network. None is carried out here, so no proxy is needed.
FAULTS_OF_NETWORKS = tuple(one.what for one in network(cast("Proxy", None), ""))


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)
