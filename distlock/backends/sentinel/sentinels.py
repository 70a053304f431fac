"""Where the primary is just now, as its sentinels say: asked at each connect, and heard when it moves.

https://redis.io/docs/latest/develop/reference/sentinel-clients/ is what a client has to do.
"""

from __future__ import annotations

import itertools
import logging
import math
import ssl
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from distlock import clock
from distlock.backends.flag import Flag
from distlock.backends.redis.address import Address
from distlock.backends.redis.blocking import BlockingCall, Resolver
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.failures import NO_TLS, Remedied
from distlock.backends.redis.scripts import command
from distlock.backends.redis.subscription import FAILURES, Subscription
from distlock.backends.sentinel.address import SentinelAddress
from distlock.errors import BackendUnavailable

logger = logging.getLogger(__name__)

#: On the first the sentinel that leads a failover says that there is a new primary, seconds before the end
#: of it. On the second the others do.
_CHANNELS = ("+promoted-slave", "+switch-master")
#: How long the first one that connects waits until they are heard, seconds.
_FIRST = 0.25
#: Sentinels tell each other what they know every two seconds. What most of them have not heard of for so many
#: seconds is known by nobody who lives.
_TOLD = 10.0
_DEAF = "No failovers are heard from %s, so each is noticed where a connection breaks: %s"

#: A part of the sentinels' text, and the remedy. The first match counts.
_REMEDIES = (
    ("No such master", "Write the name that 'sentinel monitor' gives it into the URL, behind the hosts."),
    (
        "unknown command",
        "The hosts in the URL have to be those of sentinels, whose port is mostly 26379.",
    ),
    ("Authentication required", "Add their password to the URL: ?sentinel_password=…"),
    ("WRONGPASS", "Check sentinel_password, and sentinel_username where they have users, in the URL."),
    ("without any password", "Take sentinel_password out of the URL, or set one on the sentinels."),
    ("NOPERM", "Let the sentinels' user run what the page 'The sentinel backend' of the docs lists."),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "Name who signed their certificate in the URL: ?ssl_ca_certs=/path/ca.pem.",
    ),
    ("handshake operation timed out", NO_TLS),
    (
        "counts it as down",
        "A failover takes down-after-milliseconds and some more. Where none comes, see SENTINEL CKQUORUM.",
    ),
)
_UNREACHED = "See whether the sentinels run and can be reached from here."


class NoPrimary(Remedied):
    """*passes*: whether they may know better in a moment."""

    def __init__(self, text: str, passes: bool) -> None:
        super().__init__(text, next((cure for sign, cure in _REMEDIES if sign in text), _UNREACHED))
        self.passes = passes


def may_pass(error: Exception) -> bool:
    """Whether another attempt is worth it."""
    if isinstance(error, NoPrimary):
        return error.passes
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.filename is None


class Primary:
    """The server that is the primary, from one failover to the next."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.resolver = Resolver(address.host, address.port)


class Bound(Protocol):
    """A connection to a primary."""

    primary: Primary | None

    def shut_down(self) -> None: ...


class _Sentinel(NamedTuple):
    address: Address
    resolver: Resolver


class _Answer(NamedTuple):
    """*epoch*: it grows with each failover, and a sentinel with an older one has not heard of the last."""

    host: str
    port: int
    epoch: int


class Sentinels:
    """The sentinels, as one process knows them.

    *moved* is called, in any thread, when the primary changes.
    """

    def __init__(
        self, address: SentinelAddress, io_timeout: float, client_name: str, moved: Callable[[], None]
    ) -> None:
        self.address = address
        self._io_timeout = io_timeout
        self._client_name = client_name
        self._moved = moved
        self._mutex = threading.Lock()
        #: The one that knew it last comes first.
        self._line = [_Sentinel(one, Resolver(one.host, one.port)) for one in address.sentinels]
        self._turns = itertools.cycle(self._line)
        self._heard_from = self._line[0]
        self._epoch = 0
        #: Since when most of them have not heard of that one.
        self._behind_since = math.inf
        self.primary: Primary | None = None
        #: Connections to a primary. Weak, because an interrupt may drop all other references.
        self._bound: weakref.WeakSet[Bound] = weakref.WeakSet()
        self._search = BlockingCall(self._find, "distlock-redis-sentinels")
        self._subscription = Subscription(
            address,
            self._next,
            io_timeout,
            _CHANNELS,
            self._heard,
            self,
            _DEAF,
            "distlock-redis-sentinel",
            len(self._line),
        )
        self.closing = Flag()

    def find(self, bound: Bound, deadline: float) -> Primary:
        """The primary, to which *bound* is led: it is shut down when there is another one.

        Raises OSError, TimeoutError after *deadline*.
        """
        with suppress(BackendUnavailable):
            # Without a thread it is tried again by the next one that connects.
            self._subscription.start(min(deadline, clock.now() + _FIRST))
            # If it comes later than that, there may be news that it has missed: see `doubt`.
            self._subscription.tried.set()
        found = self._search.result(deadline, "its sentinels did not answer in time")
        with self._mutex:
            bound.primary = found
            self._bound.add(bound)
        return found

    def close(self) -> None:
        """No thread and no connection to a sentinel is left."""
        self.closing.set()
        self._subscription.close(self._io_timeout)

    def dismiss(self) -> None:
        """As `close`, without a mutex and without waiting: for a finaliser."""
        self.closing.set()
        self._subscription.dismiss()

    # -- the subscription ------------------------------------------------------------------------

    def _next(self) -> Connection:
        """To each in turn: one that is not there must not keep us from hearing the others."""
        self._heard_from = next(self._turns)
        return self._connection(self._heard_from)

    def _heard(self, payload: bytes) -> None:
        if self.address.name.encode() in payload.split():
            # It is the first to be asked. The others may not know yet.
            self._prefer(self._heard_from)
            self.missed_notifications()

    def missed_notifications(self) -> None:
        """News may have been missed, or has come. What a question before it is answered may be older."""
        with suppress(*FAILURES):
            self._find()

    def reconnected(self) -> None:
        pass

    # -- the question ----------------------------------------------------------------------------

    def _find(self) -> Primary:
        """Ask one after the other, until one knows the primary."""
        # Half of a call: the other half is for the server, or to say what was wrong.
        ends = clock.now() + self._io_timeout / 2
        line = tuple(self._line)
        said: list[str] = []
        late: list[_Answer] = []
        passes = False
        for left, sentinel in zip(range(len(line), 0, -1), line, strict=True):
            now = clock.now()
            try:
                answer = self._ask(sentinel, now + (ends - now) / left)
            except FAILURES as error:
                said.append(f"{sentinel.address.shown} says: {str(error).rstrip('.')}")
                passes = passes or may_pass(error)
            else:
                if (found := self._take(answer)) is not None:
                    self._behind_since = math.inf
                    self._prefer(sentinel)
                    return found
                late.append(answer)
        if self._are_right(len(late), len(line)):
            with self._mutex:
                self._epoch = 0
            if (found := self._take(max(late, key=lambda one: one.epoch))) is not None:
                return found
        if late:
            said.append("the others have not heard of the last failover")
        raise NoPrimary(f"none of its sentinels names it: {'; '.join(said)}", passes or bool(late))

    def _ask(self, sentinel: _Sentinel, deadline: float) -> _Answer:
        connection = self._connection(sentinel)
        name = self.address.name
        try:
            connection.connect(deadline)
            place, about = connection.ask(
                [command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name), command("SENTINEL", "MASTER", name)],
                deadline,
            )
        finally:
            connection.disconnect()
        for reply in (place, about):
            if isinstance(reply, ReplyError):
                raise reply
        try:
            host, port = (part.decode() for part in place)
            told = {key.decode(): value.decode() for key, value in zip(about[::2], about[1::2], strict=True)}
            # In a failover the second one still speaks of the former primary.
            same = (told["ip"], told["port"]) == (host, port)
            if same and not {"s_down", "o_down"}.isdisjoint(told["flags"].split(",")):
                raise OSError("it counts it as down")
            return _Answer(host, int(port), int(told["config-epoch"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise OSError("it does not answer as a sentinel does") from None

    def _are_right(self, late: int, of: int) -> bool:
        """Whether so many know better that have not heard of the last failover.

        All have begun anew, as where an operator had them forget it. Or the one that told of it is gone for
        good, and most others never heard of it. They would know the next one, which may never come.
        """
        now = clock.now()
        self._behind_since = min(self._behind_since, now) if 2 * late > of else math.inf
        return late == of or now >= self._behind_since + _TOLD

    def _take(self, answer: _Answer) -> Primary | None:
        """Return the primary of *answer*, or None if that sentinel does not know of a later failover."""
        with self._mutex:
            if answer.epoch < self._epoch:
                return None
            self._epoch = answer.epoch
            before = self.primary
            if before is not None and (before.address.host, before.address.port) == answer[:2]:
                return before
            now = self.primary = Primary(self.address.at(answer.host, answer.port))
            elsewhere = [one for one in self._bound if one.primary is not now]
        if before is not None:
            logger.warning(
                "The primary of %s is %s now, and was %s. Locks that it had not heard of are lost.",
                self.address.shown,
                now.address.shown,
                before.address.shown,
            )
            # Until its sentinels get hold of it the former one may go on as if nothing had happened.
            for one in elsewhere:
                one.shut_down()
            self._moved()
        return now

    def _prefer(self, sentinel: _Sentinel) -> None:
        with self._mutex:
            self._line = [sentinel, *(one for one in self._line if one is not sentinel)]

    def _connection(self, sentinel: _Sentinel) -> Connection:
        return Connection(sentinel.address, sentinel.resolver, None, self._client_name)
