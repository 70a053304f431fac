"""The sentinels: their address, and which server they call the primary.

Each new connection to the primary asks them first, and their messages announce a new primary. See
https://redis.io/docs/latest/develop/reference/sentinel-clients/ for what a client has to do.
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
import re
import ssl
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn, Protocol

from distlock import clock
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.blocking import BlockingCall, Resolver
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.failures import NO_TLS, Remedied
from distlock.backends.redis.scripts import command
from distlock.backends.redis.subscription import FAILURES, Subscription
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.reentrance import Flag

#: A URL. Python's `urlsplit` reads the port of one host only.
_URL = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"/(?P<name>[A-Za-z0-9._-]+)(?P<db>/[^?#]*)?(?P<query>\?[^#]*)?",
    re.IGNORECASE,
)
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_PORT = 26379

logger = logging.getLogger(__name__)

#: The sentinel that leads a failover announces the new primary on the first channel, seconds before the
#: failover ends. The others announce it on the second.
_CHANNELS = ("+promoted-slave", "+switch-master")
#: Seconds for which a new connection waits for the subscription.
_FIRST_SUBSCRIPTION = 0.25
#: Sentinels exchange their knowledge every two seconds. If most of them don't know of a failover for this
#: many seconds, the sentinel that announced it is gone.
_GOSSIP = 10.0
_NOT_HEARD = "No failovers are heard from %s, so each is noticed where a connection breaks: %s"

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


class SentinelAddress(RedisAddress):
    """The addresses of the sentinels of one primary. Connects to nothing, and never shows a secret."""

    _plain = (*RedisAddress._plain, "sentinel_username", "sentinel_password")

    def __init__(self, url: str) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            self._unreadable()
        places = [self._place(text) for text in parts["hosts"].split(",")]
        #: The name by which the sentinels know the primary.
        self.name = parts["name"]
        scheme = parts["scheme"].lower()
        shown = ",".join(_shown(*place) for place in places)
        login = f"{parts['login']}@" if parts["login"] else ""
        # All but the host is that of the primary, too: see `at`.
        super().__init__(
            f"{scheme}://{login}localhost{parts['db'] or ''}{parts['query'] or ''}",
            f"{scheme}+sentinel://{shown}/{self.name}",
        )
        self._secrets += self._sentinel_login[-1:]
        #: The addresses of the sentinels, in the order of the URL.
        self.sentinels = [self.at(*place) for place in places]
        for sentinel in self.sentinels:
            sentinel.login, sentinel.db = self._sentinel_login, 0

    def at(self, host: str, port: int) -> RedisAddress:
        """Return the address of a server at *host* and *port*, with all else that the URL says."""
        found = copy.copy(self)
        found.host, found.port, found.shown = host, port, _shown(host, port)
        return found

    def _given(self, query: list[tuple[str, str]], scheme: str) -> dict[str, str]:
        given = super()._given(query, scheme)
        login = given.get("sentinel_username"), given.get("sentinel_password")
        if login[0] and not login[1]:
            self._refuse("It has a sentinel_username and no sentinel_password.")
        self._sentinel_login = tuple(part for part in login if part)
        return given

    def _place(self, text: str) -> tuple[str, int]:
        match = _HOST.fullmatch(text)
        if match is None or not 0 < int(match["port"] or _PORT) < 65536:
            self._unreadable()
        return match["name"].strip("[]"), int(match["port"] or _PORT)

    def _unreadable(self) -> NoReturn:
        # The message does not quote the URL, which may have a password.
        raise ConfigurationError(
            "The URL of the Redis sentinels cannot be read. Write redis+sentinel://[user:password@]"
            "host[:port][,host[:port]…]/name[/db], or rediss+sentinel://… for TLS. The hosts are those of "
            "the sentinels, and name is what 'sentinel monitor' calls the primary, as mymaster. In user, "
            "password and query write %40 for @, %2F for /, %3F for ?, %23 for # and %25 for %."
        ) from None


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class NoPrimary(Remedied):
    """No sentinel names the primary. *passes*: whether that may change in a moment."""

    def __init__(self, text: str, passes: bool) -> None:
        super().__init__(text, next((cure for sign, cure in _REMEDIES if sign in text), _UNREACHED))
        self.passes = passes


def may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed after *error*."""
    if isinstance(error, NoPrimary):
        return error.passes
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.filename is None


class Primary:
    """The server that is the primary until the next failover."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self.resolver = Resolver(address.host, address.port)


class PrimaryClient(Protocol):
    """A connection to a primary."""

    primary: Primary | None

    def shut_down(self) -> None: ...


class _Sentinel(NamedTuple):
    address: RedisAddress
    resolver: Resolver


class _SentinelReply(NamedTuple):
    """What a sentinel says of the primary.

    *epoch* grows with each failover: a sentinel with a smaller epoch does not know of the last failover.
    """

    host: str
    port: int
    epoch: int


class Sentinels:
    """The sentinels of one primary. *moved* is called, in any thread, when the primary changes."""

    def __init__(
        self, address: SentinelAddress, io_timeout: float, client_name: str, moved: Callable[[], None]
    ) -> None:
        self.address = address
        self._io_timeout = io_timeout
        self._client_name = client_name
        self._moved = moved
        self._mutex = threading.Lock()
        #: The order in which they are asked: first the sentinel that named the primary last.
        self._order = [_Sentinel(one, Resolver(one.host, one.port)) for one in address.sentinels]
        self._rotation = itertools.cycle(self._order)
        self._subscribed_to = self._order[0]
        self._epoch = 0
        #: Since when most sentinels don't know of the failover with that epoch.
        self._behind_since = math.inf
        self.primary: Primary | None = None
        #: Connections to a primary. Weak, because an interrupt may drop all other references.
        self._clients: weakref.WeakSet[PrimaryClient] = weakref.WeakSet()
        self._search = BlockingCall(self._find, "distlock-redis-sentinels")
        self._subscription = Subscription(
            address,
            self._connect_next,
            io_timeout,
            _CHANNELS,
            self._receive,
            self,
            _NOT_HEARD,
            "distlock-redis-sentinel",
            len(self._order),
        )
        self.closing = Flag()

    def find(self, client: PrimaryClient, deadline: float) -> Primary:
        """Return the primary for *client*, a connection, which is shut down when the primary changes.

        Raises `OSError`; `TimeoutError` after *deadline*.
        """
        with suppress(BackendUnavailable):
            # If no thread can be started, the next connection tries again.
            self._subscription.ensure_started(min(deadline, clock.now() + _FIRST_SUBSCRIPTION))
            # If it succeeds later, it may have missed messages, and calls `missed_notifications`.
            self._subscription.tried.set()
        found = self._search.result(deadline, "its sentinels did not answer in time")
        with self._mutex:
            client.primary = found
            self._clients.add(client)
        return found

    def close(self) -> None:
        """End the subscription's thread, and its connection to a sentinel."""
        self.closing.set()
        self._subscription.close(self._io_timeout)

    def dismiss(self) -> None:
        """Do the same as `close` for a finaliser, which may take no mutex, and does not wait."""
        self.closing.set()
        self._subscription.dismiss()

    # -- the subscription ------------------------------------------------------------------------

    def _connect_next(self) -> RedisConnection:
        """Return a connection to the next sentinel, because the previous one may be away."""
        self._subscribed_to = next(self._rotation)
        return self._connection(self._subscribed_to)

    def _receive(self, payload: bytes) -> None:
        if self.address.name.encode() in payload.split():
            # Ask this sentinel first, because the others may not know the new primary yet.
            self._prefer(self._subscribed_to)
            self.missed_notifications()

    def missed_notifications(self) -> None:
        """Ask for the primary, because a message has come or may have been missed."""
        with suppress(*FAILURES):
            self._find()

    def reconnected(self) -> None:
        pass

    # -- the question ----------------------------------------------------------------------------

    def _find(self) -> Primary:
        """Ask the sentinels one after the other, until one names the primary."""
        # The search takes at most half of a call's time: the rest is for the connection to the primary.
        ends = clock.now() + self._io_timeout / 2
        order = tuple(self._order)
        failures: list[str] = []
        outdated: list[_SentinelReply] = []
        passes = False
        for left, sentinel in zip(range(len(order), 0, -1), order, strict=True):
            now = clock.now()
            try:
                answer = self._ask(sentinel, now + (ends - now) / left)
            except FAILURES as error:
                failures.append(f"{sentinel.address.shown} says: {str(error).rstrip('.')}")
                passes = passes or may_pass(error)
            else:
                if (found := self._accept(answer)) is not None:
                    self._behind_since = math.inf
                    self._prefer(sentinel)
                    return found
                outdated.append(answer)
        if self._know_better(len(outdated), len(order)):
            with self._mutex:
                self._epoch = 0
            if (found := self._accept(max(outdated, key=lambda one: one.epoch))) is not None:
                return found
        if outdated:
            failures.append("the others have not heard of the last failover")
        raise NoPrimary(f"none of its sentinels names it: {'; '.join(failures)}", passes or bool(outdated))

    def _ask(self, sentinel: _Sentinel, deadline: float) -> _SentinelReply:
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
            status = {
                key.decode(): value.decode() for key, value in zip(about[::2], about[1::2], strict=True)
            }
            # During a failover the second reply is still about the former primary.
            same = (status["ip"], status["port"]) == (host, port)
            if same and not {"s_down", "o_down"}.isdisjoint(status["flags"].split(",")):
                raise OSError("it counts it as down")
            return _SentinelReply(host, int(port), int(status["config-epoch"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise OSError("it does not answer as a sentinel does") from None

    def _know_better(self, outdated: int, of: int) -> bool:
        """Return whether the *outdated* sentinels, which do not know of the last failover, are right.

        They are right if all of them begin anew, for example after an operator's SENTINEL RESET, or if most
        of them don't learn of the failover, because the sentinel that announced it is gone.
        """
        now = clock.now()
        self._behind_since = min(self._behind_since, now) if 2 * outdated > of else math.inf
        return outdated == of or now >= self._behind_since + _GOSSIP

    def _accept(self, answer: _SentinelReply) -> Primary | None:
        """Return the primary of *answer*, or None if that sentinel does not know of the last failover."""
        with self._mutex:
            if answer.epoch < self._epoch:
                return None
            self._epoch = answer.epoch
            before = self.primary
            if before is not None and (before.address.host, before.address.port) == answer[:2]:
                return before
            now = self.primary = Primary(self.address.at(answer.host, answer.port))
            elsewhere = [one for one in self._clients if one.primary is not now]
        if before is not None:
            logger.warning(
                "The primary of %s is %s now, and was %s. Locks that it had not heard of are lost.",
                self.address.shown,
                now.address.shown,
                before.address.shown,
            )
            # The former primary may serve these connections until its sentinels reach it.
            for one in elsewhere:
                one.shut_down()
            self._moved()
        return now

    def _prefer(self, sentinel: _Sentinel) -> None:
        with self._mutex:
            self._order = [sentinel, *(one for one in self._order if one is not sentinel)]

    def _connection(self, sentinel: _Sentinel) -> RedisConnection:
        return RedisConnection(sentinel.address, sentinel.resolver, None, self._client_name)
