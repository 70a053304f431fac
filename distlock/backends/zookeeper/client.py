"""kazoo's client, with what distlock needs beyond it.

kazoo has no container nodes, and hides the granted session timeout. It waits for a silent host as long as a
session lasts or, if requests keep coming, for ever. It logs a warning for each attempt to reconnect. It stops
for good if it does not understand an answer or can't start a thread.
"""

from __future__ import annotations

import logging
import select
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import SASL, Auth, Connect, Create2, SetData
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from distlock import clock
from distlock.backends.tls import Tls
from distlock.backends.zookeeper.address import ZooKeeperAddress
from distlock.backends.zookeeper.connection import TlsSocket, ZooKeeperConnection
from distlock.backends.zookeeper.failures import UNREADABLE
from distlock.backends.zookeeper.sans_io import Notify, ZooKeeperReply
from distlock.signal_safety import Flag, call

logger = logging.getLogger(__name__)

#: The longest pause between attempts to connect, seconds. kazoo's pauses grow to a minute.
_BACKOFF = 0.5
_EPHEMERAL_SEQUENTIAL = 3
_CONTAINER = 4


class CreateContainer(Create2):  # type: ignore[misc]  # kazoo has no types
    """A request for a container, which the server removes some time after its last child is gone."""

    type = 19


def _without_secrets(args: tuple[object, ...]) -> list[object]:
    return [type(arg).__name__ if isinstance(arg, Auth | Connect | SASL) else arg for arg in args]


class _Memo:
    """The logger that kazoo gets. It remembers the latest warning, which an error of ours may quote.

    kazoo logs four times for each request, so messages that nobody reads are dropped quickly.
    """

    def __init__(self) -> None:
        self.last = ""

    def log(self, level: int, message: str, *args: object, **more: Any) -> None:
        # Below DEBUG kazoo logs the session's password.
        if level >= logging.DEBUG and logger.isEnabledFor(level):
            logger.log(level, message, *_without_secrets(args), **more)

    def debug(self, message: str, *args: object) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(message, *_without_secrets(args))

    def warning(self, message: str, *args: object) -> None:
        # kazoo logs this message right after the warning that says why it reconnects.
        if message != "Transition to CONNECTING":
            self.last = message % args if args else message
        self.debug(message, *args)

    info = debug
    warn = warning

    def exception(self, message: str, *args: object) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, UNREADABLE):
            # Something on the way has changed an answer. The connection says so to those that wait for it.
            self.warning("an answer that can't be read: %a", error)
            return
        logger.error(message, *args, exc_info=sys.exc_info())


class ZooKeeperClient(KazooClient):  # type: ignore[misc]
    """kazoo's client of one session. `submit` sends requests without the detours of kazoo's own methods."""

    def __init__(self, address: ZooKeeperAddress, session_timeout: float, io_timeout: float) -> None:
        self.memo = _Memo()
        super().__init__(
            hosts=address.hosts,
            timeout=session_timeout,
            handler=Handler(io_timeout, address.tls),
            auth_data=address.auth,
            connection_retry={"max_tries": -1, "delay": 0.02, "backoff": 2, "max_delay": _BACKOFF},
            command_retry={"max_tries": 0},
            logger=self.memo,
        )
        #: Set while there is a connection.
        self._up = Flag()
        self.acl = CREATOR_ALL_ACL if address.auth or address.sasl else OPEN_ACL_UNSAFE
        retry = self._conn_retry.copy()
        self._connection = ZooKeeperConnection(
            io_timeout, self, retry, logger=self.memo, sasl_options=address.sasl and {**address.sasl}
        )

    @property
    def session_timeout(self) -> float:
        """The session timeout that the server granted, seconds; 0 before the first connection."""
        granted: float = self._connection.session_timeout
        return granted

    @property
    def lifetime(self) -> bytes:
        """The data of a contender's node: how many seconds the node may outlive its process, as text."""
        return b"%g" % self.session_timeout

    @property
    def session_id(self) -> int | None:
        """The session's id, kept while the connection is away; None after the session's end."""
        found: int | None = self._session_id
        return found

    def wait(self, timeout: float) -> bool:
        """Wait at most *timeout* seconds for a connection. Return whether there is one."""
        # kazoo's `_live` is a `threading.Event`, which an exception of a signal handler can break.
        return self._up.wait(timeout)

    def submit(self, requests: Sequence[Any], notify: Notify | None = None) -> list[ZooKeeperReply]:
        """Send *requests* in one packet, after all that were submitted before. Return a reply for each.

        kazoo's thread calls *notify* with the last reply. All others have come before.
        """
        answers = [ZooKeeperReply() for _ in requests[1:]]
        answers.append(ZooKeeperReply(notify))
        calls = list(zip(requests, answers, strict=True))
        if not self._connection.send(calls):
            for request, answer in calls:
                super()._call(request, answer)
        return answers

    def _call(self, request: Any, async_object: Any) -> Any:
        return self._connection.send([(request, async_object)]) or super()._call(request, async_object)

    def _session_callback(self, state: str) -> None:
        if state not in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            self._connection.shut()
            if self._up.is_set:
                self._up = Flag()
        super()._session_callback(state)
        if self._live.is_set():
            self._up.set()

    def contender(self, parent: str, prefix: str) -> Create2:
        """Return the request for an ephemeral, numbered node. Its answer is path and stat."""
        return Create2(f"{parent}/{prefix}", self.lifetime, self.acl, _EPHEMERAL_SEQUENTIAL)

    def container(self, path: str) -> CreateContainer:
        return CreateContainer(path, b"", self.acl, _CONTAINER)

    def barrier(self, path: str) -> SetData:
        """Return a request after which no read is stale.

        It is a write, which needs a majority even if it is refused. A sync needs none: a leader that has lost
        its followers answers a sync until it notices the loss.
        """
        return SetData(path, b"", -1)

    def begin(self) -> None:
        """Start to connect.

        Raises:
            RuntimeError: No thread can be started.
            OSError: There are no descriptors left.
        """
        try:
            self.start_async()
        except (RuntimeError, OSError):
            self._stopped.set()
            self._connection.close()
            raise

    def cut(self) -> None:
        """Break the connection, so that `stop` need not wait for an answer."""
        self._connection.cut()

    def forget(self) -> None:
        """Close our copies of the parent's sockets, in a forked child. The server notices nothing."""
        connection = self._connection
        for one in (connection._socket, connection._read_sock, connection._write_sock):
            if one is not None:
                one.close()


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Sockets, threads and callbacks for kazoo. Our callbacks never block, so kazoo's thread calls them."""

    def __init__(self, io_timeout: float, tls: Tls | None) -> None:
        super().__init__()
        self._tls = tls
        #: Seconds for one attempt to connect, and for the server's answer to it. A caller waits twice as
        #: long, for the io_timeout, so that there is time for a second attempt.
        self.patience = io_timeout / 2

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        # `call` keeps finalisers in this thread from using locks: they would wait for an answer that only
        # this thread reads.
        thread: threading.Thread = super().spawn(call, func, *args, **kwargs)
        return thread

    def dispatch_callback(self, callback: Any) -> None:
        try:
            callback.func(*callback.args)
        except Exception:
            logger.exception("An event of ZooKeeper met an unexpected error")

    def create_connection(self, *args: Any, timeout: float | None = None, **more: Any) -> Any:
        ends = clock.now() + min(timeout or self.patience, self.patience)
        made = super().create_connection(*args, timeout=ends - clock.now(), **more)
        return made if self._tls is None else self._speak_tls(self._tls, made, more["hostname"], ends)

    def _speak_tls(self, tls: Tls, made: socket.socket, host: str, ends: float) -> TlsSocket:
        try:
            # kazoo's own TLS takes no password for a key and no directory of authorities, and its errors
            # don't name a missing file.
            made.settimeout(max(0.001, ends - clock.now()))
            return TlsSocket(tls.context.wrap_socket(made, server_hostname=host))
        except BaseException as error:
            made.close()
            if isinstance(error, OSError) and error.filename is not None:
                raise OSError(error.errno, f"{error.strerror}: '{error.filename}'") from None
            raise

    def select(
        self, reads: Sequence[Any], writes: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        # kazoo's own select opens and closes a descriptor each time.
        poll, by_number = select.poll(), dict[int, Any]()
        for one in (*reads, *writes):
            by_number[number := one.fileno()] = one
            poll.register(number, select.POLLIN if one in reads else select.POLLOUT)
        ready = [by_number[number] for number, _ in poll.poll(None if timeout is None else timeout * 1000)]
        return [one for one in ready if one in reads], [one for one in ready if one in writes], []
