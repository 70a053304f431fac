"""Locks in the Redis server that sentinels call the primary.

Each new connection to the primary asks the sentinels first, and their messages announce a new primary. See
https://redis.io/docs/latest/develop/reference/sentinel-clients/ for what a client has to do.
"""

from __future__ import annotations

import itertools
import logging
import math
import ssl
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.redis import RedisBackend, scripts
from distlock.backends.redis.address import RedisAddress, SentinelAddress
from distlock.backends.redis.calls import ScriptCaller
from distlock.backends.redis.connection import RedisConnection, ReplyError
from distlock.backends.redis.failures import NO_TLS, Remedied
from distlock.backends.redis.offloading import BlockingCall, Credentials, Resolver, credentials_for
from distlock.backends.redis.pending_releases import PendingReleases
from distlock.backends.redis.pool import Pool
from distlock.backends.redis.scripts import command
from distlock.backends.redis.subscription import FAILURES, Subscription
from distlock.errors import BackendUnavailable
from distlock.signal_safety import Flag, backend_thread

logger = logging.getLogger(__name__)

#: Seconds for which the new primary keeps holds that were released at the former one. The former primary may
#: have granted those locks again, and their holders have this time to learn of the new primary.
_LATE_GRANTS = 1.0

#: After a change of the primary, the releases of the last `_RECENT` seconds are repeated, at most `_MOST`.
_RECENT, _MOST = 5.0, 5000
#: How many releases one round trip repeats. Other clients have to wait while the server carries them out.
_BATCH = 500

#: The sentinel that leads a failover announces the new primary on the first channel, seconds before the
#: failover ends. Other sentinels announce it on the second channel.
_CHANNELS = ("+promoted-slave", "+switch-master")
#: Seconds for which a new connection waits for the subscription.
_FIRST_SUBSCRIPTION = 0.25
#: Sentinels exchange their knowledge every two seconds. If most of them don't know of a failover for this
#: many seconds, the sentinel that announced it is gone.
_GOSSIP = 10.0

#: Seconds between two attempts to connect.
_PAUSE = 0.05
#: The shortest time of an attempt, in seconds. If more than twice this time remains, an attempt takes half of
#: the remaining time, to leave time for another attempt.
_SHORTEST = 0.25
#: The errors of a former primary, or of a primary without enough replicas.
_NOT_PRIMARY = ("READONLY", "NOREPLICAS", "MASTERDOWN")

_ANNOUNCED = (
    "If it is gone, another one takes its place when the sentinels have noticed. If it runs, it can't be "
    "reached from here by that address: have it announce another one (replica-announce-ip, "
    "replica-announce-port)."
)
_AGAIN = "The next call asks its sentinels again."

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
    """No sentinel names the primary. *passes*: whether one may do so in a moment."""

    def __init__(self, text: str, passes: bool) -> None:
        super().__init__(text, next((cure for sign, cure in _REMEDIES if sign in text), _UNREACHED))
        self.passes = passes


def may_pass(error: Exception) -> bool:
    """Return whether another attempt may succeed after *error*."""
    if isinstance(error, NoPrimary):
        return error.passes
    return isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.filename is None


class FailoverSubscription(Subscription):
    """The subscription to news of failovers. Each attempt subscribes at another sentinel."""

    deaf = "No failovers are heard from %s, so each is noticed where a connection breaks: %s"
    name = "distlock-redis-sentinel"


class NamedServer:
    """The address and resolver of a sentinel, or of the primary until the next failover."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self.resolver = Resolver(address.host, address.port)


class _SentinelReply(NamedTuple):
    """The answer of a sentinel that was asked for the primary.

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
        #: The sentinels in the order in which they are asked. The one that named the primary last is first.
        self._order = [NamedServer(one) for one in address.sentinels]
        self._rotation = itertools.cycle(self._order)
        self._subscribed_to = self._order[0]
        self._epoch = 0
        #: Since when most sentinels don't know of the failover with `_epoch`; ``inf``: most of them do.
        self._behind_since = math.inf
        self.primary: NamedServer | None = None
        #: All connections to a primary. Weak, so that connections that an interrupt has dropped don't stay.
        self._clients: weakref.WeakSet[PrimaryConnection] = weakref.WeakSet()
        self._search = BlockingCall(self._find, "distlock-redis-sentinels")
        self._subscription = FailoverSubscription(
            address, self._connect_next, io_timeout, _CHANNELS, self._receive, self, len(self._order)
        )
        self.closing = Flag()

    def find(self, client: PrimaryConnection, deadline: float) -> NamedServer:
        """Return the primary for the connection *client*, and shut *client* down when the primary changes.

        Raises `NoPrimary`, `TimeoutError` after *deadline*, or RuntimeError if no thread can be started.
        """
        with suppress(BackendUnavailable):
            # If no thread can be started, the next connection tries again.
            self._subscription.ensure_started(min(deadline, clock.now() + _FIRST_SUBSCRIPTION))
            # From now on no connection waits for the subscription. If it begins later, it may have missed
            # messages, and because `tried` is set it calls `missed_notifications` then.
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

    def _find(self) -> NamedServer:
        """Ask the sentinels one after the other, until one names the primary. Raises `NoPrimary`."""
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
        if self._outdated_are_right(len(outdated), len(order)):
            with self._mutex:
                self._epoch = 0
            if (found := self._accept(max(outdated, key=lambda one: one.epoch))) is not None:
                return found
        if outdated:
            failures.append("the others have not heard of the last failover")
        raise NoPrimary(f"none of its sentinels names it: {'; '.join(failures)}", passes or bool(outdated))

    def _ask(self, sentinel: NamedServer, deadline: float) -> _SentinelReply:
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
            # During a failover, the second reply may still be about the former primary.
            same = (status["ip"], status["port"]) == (host, port)
            if same and not {"s_down", "o_down"}.isdisjoint(status["flags"].split(",")):
                raise OSError("it counts it as down")
            return _SentinelReply(host, int(port), int(status["config-epoch"]))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise OSError("it does not answer as a sentinel does") from None

    def _outdated_are_right(self, outdated: int, of: int) -> bool:
        """Return whether the *outdated* sentinels, which do not know of the last failover, are right.

        They are right if all of them begin anew, for example after an operator's SENTINEL RESET, or if most
        of them don't learn of the failover, because the sentinel that announced it is gone.
        """
        now = clock.now()
        self._behind_since = min(self._behind_since, now) if 2 * outdated > of else math.inf
        return outdated == of or now >= self._behind_since + _GOSSIP

    def _accept(self, answer: _SentinelReply) -> NamedServer | None:
        """Return the primary of *answer*, or None if its sentinel does not know of the last failover.

        If the primary has changed, log that, shut the connections to the former one down, and call `_moved`.
        """
        with self._mutex:
            if answer.epoch < self._epoch:
                return None
            self._epoch = answer.epoch
            before = self.primary
            if before is not None and (before.address.host, before.address.port) == answer[:2]:
                return before
            now = self.primary = NamedServer(self.address.at(answer.host, answer.port))
            elsewhere = [one for one in self._clients if one.primary is not now]
        if before is not None:
            logger.warning(
                "The primary of %s is %s now, and was %s. Locks that it had not heard of are lost.",
                self.address.shown,
                now.address.shown,
                before.address.shown,
            )
            # The former primary may go on to serve these connections, until its sentinels reach it.
            for one in elsewhere:
                one.shut_down()
            self._moved()
        return now

    def _prefer(self, sentinel: NamedServer) -> None:
        with self._mutex:
            self._order = [sentinel, *(one for one in self._order if one is not sentinel)]

    def _connection(self, sentinel: NamedServer) -> RedisConnection:
        return RedisConnection(sentinel.address, sentinel.resolver, None, self._client_name)


class PrimaryConnection(RedisConnection):
    """A connection to the primary.

    To connect, it asks the sentinels again and again, until there is a primary, the deadline is over, or a
    failure occurs that will not pass.
    """

    primary: NamedServer | None = None

    def __init__(self, sentinels: Sentinels, credentials: Credentials | None, client_name: str) -> None:
        self._sentinels = sentinels
        nowhere = NamedServer(sentinels.address)
        super().__init__(nowhere.address, nowhere.resolver, credentials, client_name)

    def connect(self, deadline: float) -> None:
        failure: OSError | None = None
        while True:
            try:
                self._attempt(deadline)
                return
            except OSError as error:
                # A timeout says less than the failure before it.
                if failure is None or not isinstance(error, TimeoutError):
                    failure = error
                if not may_pass(error):
                    raise
            if clock.now() + _PAUSE >= deadline or self._sentinels.closing.wait(_PAUSE):
                raise failure

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        replies = super().ask(commands, deadline)
        for reply in replies:
            if isinstance(reply, ReplyError) and any(word in str(reply) for word in _NOT_PRIMARY):
                # The caller takes this error for a broken connection, and connects to the new primary.
                raise Remedied(f"{self._address.shown} is no primary any more: {reply}", _AGAIN)
        return replies

    def _attempt(self, deadline: float) -> None:
        primary = self._sentinels.find(self, deadline)
        self.disconnect()
        # Begin anew, because an earlier attempt may have left half a reply.
        super().__init__(primary.address, primary.resolver, self._credentials, self._client_name)
        now = clock.now()
        ends = min(deadline, now + max(_SHORTEST, (deadline - now) / 2))
        try:
            super().connect(ends)
            (role,) = super().ask([command("ROLE")], ends)
        except OSError as error:
            if not may_pass(error):
                raise
            text = f"{primary.address.shown}, which its sentinels call the primary: {error}"
            raise Remedied(text, _ANNOUNCED) from error
        if isinstance(role, ReplyError):
            raise role
        if role[0] != b"master" or self._sentinels.primary is not primary:
            raise Remedied(f"{primary.address.shown} is not the primary (any more)", _AGAIN)


class RecentReleases(PendingReleases):
    """The releases of one process, which can be repeated at a new primary.

    For a second or two after `SENTINEL FAILOVER` has promoted a replica, clients still use the former
    primary. Holds that they release there stay at the new primary until their ttl ends. A repeated release
    ends no other hold, because it needs the token.
    """

    def __init__(self, calls: ScriptCaller, pool: Pool) -> None:
        super().__init__(calls, pool)
        self._recent: deque[tuple[float, LockRequest]] = deque(maxlen=_MOST)

    def post(self, request: LockRequest, *more: Any, **named: Any) -> bool:
        sent = super().post(request, *more, **named)
        if sent:
            self._recent.append((clock.now(), request))
        return sent

    def forget(self, request: LockRequest) -> None:
        super().forget(request)
        self._recent.append((clock.now(), request))

    def repeat_recent(self, deadline: float) -> None:
        """Repeat the releases of the last seconds. Raises `BackendUnavailable`."""
        since = clock.now() - _RECENT
        recent = [request for at, request in tuple(self._recent) if at >= since]
        for script in dict.fromkeys(scripts.RELEASE[request.mode] for request in recent):
            requests = [request for request in recent if scripts.RELEASE[request.mode] is script]
            for start in range(0, len(requests), _BATCH):
                self._caller.release(requests[start : start + _BATCH], deadline)


class SentinelBackend(RedisBackend):
    """One process's locks in the primary that the sentinels at *url* name.

    *url*: ``redis+sentinel://[user:password@]host[:port][,host[:port]…]/name[/db]``, or
    ``rediss+sentinel://``. The options are those of `RedisBackend`; *io_timeout* bounds the search for the
    primary, too.
    """

    _read = SentinelAddress
    _address: SentinelAddress
    _make_releases = RecentReleases
    _releases: RecentReleases

    def close(self) -> None:
        sentinels = self._sentinels
        super().close()
        sentinels.close()

    def _connections(self) -> Callable[[], RedisConnection]:
        moved = partial(_follow_new_primary, weakref.ref(self))
        self._sentinels = Sentinels(self._address, self._io_timeout, self._client_name, moved)
        # Ends the thread of a backend that is dropped without close().
        weakref.finalize(self, self._sentinels.dismiss).atexit = False
        credentials = credentials_for(self._address, self._credential_provider)
        return partial(PrimaryConnection, self._sentinels, credentials, self._client_name)

    def _follow(self) -> None:
        """Handle a change of the primary."""
        # Holds that were not replicated are lost, and waiters have to queue at the new primary.
        if self._sink is not None:
            self._sink.missed_notifications()
        # A new thread repeats the releases, because this one may search for the primary, and connections wait
        # for that. If no thread can be started, the released holds end with their ttl.
        with suppress(RuntimeError):
            backend_thread("distlock-redis-releasing", self._release_again).start()

    def _release_again(self) -> None:
        # Wait, because the former primary may have granted the lock again. A repeated release at once could
        # let the new primary grant it to a second holder.
        if self._sentinels.closing.wait(_LATE_GRANTS):
            return
        # If the new primary can't be reached, the holds end with their ttl.
        with suppress(BackendUnavailable):
            self._releases.repeat_recent(self._by(math.inf))


def _follow_new_primary(backend: weakref.ref[SentinelBackend]) -> None:
    living = backend()
    if living is not None:
        living._follow()
