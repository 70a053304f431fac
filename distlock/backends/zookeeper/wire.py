"""kazoo, bent a little: what we need of it and it does not offer.

It has no container nodes, keeps the negotiated session timeout to itself, lets a host that answers nothing
take a whole session's time, or for ever under load, warns of each attempt to reconnect, and stops for good
where it does not understand an answer or can't start a thread.
"""

from __future__ import annotations

import atexit
import logging
import sys
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, KazooException, SessionExpiredError
from kazoo.handlers.threading import _STOP, SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Auth, Connect, Create, Create2, SetData, Transaction
from kazoo.protocol.states import KeeperState
from kazoo.retry import ForceRetryError
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from distlock import clock
from distlock.backends.zookeeper.address import Address

logger = logging.getLogger(__name__)

#: Seconds between attempts to connect at most. kazoo would let it grow to a minute.
_BACKOFF = 0.5
_EPHEMERAL_SEQUENTIAL = 3
_CONTAINER = 4


class CreateContainer(Create2):  # type: ignore[misc]  # kazoo has no types
    """Creates a node that the server removes some time after its last child is gone."""

    type = 19


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    def __init__(self, io_timeout: float) -> None:
        super().__init__()
        #: What one attempt to connect may take, and what the answer to it may take, seconds.
        # Where one hangs there has to be time for another, before its caller gives up.
        self.patience = io_timeout / 2

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError:
            # One thread may have been started: left alone it would wait for ever, and the next start for it.
            for queue in (self.completion_queue, self.callback_queue)[: len(self._workers)]:
                queue.put(_STOP)
            self._workers.clear()
            raise

    def create_connection(self, *args: Any, timeout: float | None = None, **more: Any) -> Any:
        return super().create_connection(*args, timeout=min(timeout or self.patience, self.patience), **more)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    #: What the server granted, seconds.
    session_timeout = 0.0
    #: Since when it has not answered, if there is something to be answered.
    _silent_since = 0.0

    def __init__(self, io_timeout: float, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._io_timeout = io_timeout

    def _connect_loop(self, retry: Any) -> Any:
        try:
            return super()._connect_loop(retry)
        except (KazooException, ForceRetryError, InterruptedError):
            raise
        except Exception as error:
            # kazoo's thread would end, and callers would wait until the session is given up.
            self.client._session_callback(KeeperState.EXPIRED_SESSION)
            raise ForceRetryError(f"Beginning a new session: {error!r}") from error

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        # A server that is just starting may never answer, and the next attempt is answered at once.
        answer = super()._invoke(min(timeout, self.handler.patience), request, xid)
        if isinstance(request, Connect):
            self.session_timeout = answer[0].time_out / 1000
        return answer

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        pending = self.client._pending
        if not pending or header.xid != pending[0][2]:
            # Another process talks on our session. kazoo would tell the caller so, as a RuntimeError.
            raise SessionExpiredError("an answer to what was not asked")
        return super()._read_response(header, buffer, offset)

    def _read_socket(self, read_timeout: float) -> Any:
        answer = super()._read_socket(read_timeout)
        self._silent_since = clock.now()
        return answer

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        # kazoo looks whether the server hangs when there was nothing to send for a third of a session: a
        # client with a lot to ask would go on asking that one for ever, and never hear of the others.
        now = clock.now()
        if not self.client._pending:
            self._silent_since = now
        elif now > self._silent_since + self._io_timeout and not self._has_news():
            raise ConnectionDropped(f"it has said nothing for {now - self._silent_since:.1f} s")
        super()._send_request(read_timeout, connect_timeout)

    def _has_news(self) -> bool:
        """It has said something meanwhile, and we are late."""
        return bool(self.handler.select([self._socket], [], [], 0)[0])


def _without_secrets(args: tuple[object, ...]) -> list[object]:
    return [type(arg).__name__ if isinstance(arg, Auth | Connect) else arg for arg in args]


class _Memo:
    """kazoo's logger. Keeps what it says of its troubles: we tell it when it matters to somebody, and once.

    kazoo logs four times for each request, so what nobody reads has to be thrown away quickly.
    """

    def __init__(self) -> None:
        self.last = ""

    def log(self, level: int, message: str, *args: object, **more: Any) -> None:
        # Below that level it writes down the session's password.
        if level >= logging.DEBUG and logger.isEnabledFor(level):
            logger.log(level, message, *_without_secrets(args), **more)

    def debug(self, message: str, *args: object) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(message, *_without_secrets(args))

    def warning(self, message: str, *args: object) -> None:
        # It says that right after why.
        if message != "Transition to CONNECTING":
            self.last = message % args if args else message
        self.debug(message, *args)

    info = debug
    warn = warning

    def exception(self, message: str, *args: object) -> None:
        logger.error(message, *args, exc_info=sys.exc_info())


class Wire(KazooClient):  # type: ignore[misc]
    """One session. `submit` sends what kazoo would send, without the thread hops of its own methods."""

    def __init__(self, address: Address, session_timeout: float, io_timeout: float) -> None:
        self.memo = _Memo()
        super().__init__(
            hosts=address.hosts,
            timeout=session_timeout,
            handler=_Handler(io_timeout),
            auth_data=address.auth,
            connection_retry={"max_tries": -1, "delay": 0.02, "backoff": 2, "max_delay": _BACKOFF},
            command_retry={"max_tries": 0},
            logger=self.memo,
        )
        self.acl = CREATOR_ALL_ACL if address.auth else OPEN_ACL_UNSAFE
        self._connection = _Connection(io_timeout, self, self._conn_retry.copy(), logger=self.memo)

    @property
    def session_timeout(self) -> float:
        """What the server granted, seconds."""
        granted: float = self._connection.session_timeout
        return granted

    @property
    def lifetime(self) -> bytes:
        """What contenders write into their nodes: how many seconds they may outlive their process."""
        return b"%g" % self.session_timeout

    @property
    def session_id(self) -> int | None:
        """Also while the connection is away; None when the session has ended."""
        found: int | None = self._session_id
        return found

    def wait(self, timeout: float) -> bool:
        """Whether there is a connection, or will be one within *timeout* seconds."""
        return bool(self._live.wait(timeout))

    def submit(self, request: Any) -> Any:
        """Send *request*, after those that were submitted before. Returns kazoo's result to wait for."""
        result = self.handler.async_result()
        self._call(request, result)
        return result

    def contender(self, parent: str, prefix: str) -> Transaction:
        """An ephemeral node with a number; the answer is its path, and the state of *parent* with it."""
        node = Create(f"{parent}/{prefix}", self.lifetime, self.acl, _EPHEMERAL_SEQUENTIAL)
        # A transaction cannot read. But writing nothing into the parent answers with its state.
        return Transaction([node, SetData(parent, b"", -1)])

    def container(self, path: str) -> CreateContainer:
        return CreateContainer(path, b"", self.acl, _CONTAINER)

    def barrier(self, path: str) -> SetData:
        """Goes before what must not be answered from an old state.

        A write needs a majority, even where it is refused. Sync does not: a leader that has lost its
        followers answers it for as long as it has not noticed.
        """
        return SetData(path, b"", -1)

    def begin(self) -> None:
        """Start to connect.

        Raises `RuntimeError` if there can be no threads, and `OSError` if there can be no descriptors; then
        nothing is left of it.
        """
        try:
            self.start_async()
        except (RuntimeError, OSError):
            self._stopped.set()
            self.handler.stop()
            self._connection.close()
            raise

    def cut(self) -> None:
        """Break the connection, for a `stop` that waits for an answer in vain."""
        socket = self._connection._socket
        if socket is not None:
            try:
                socket.shutdown(2)
            except OSError:
                pass

    def forget(self) -> None:
        """In a forked child: close our copies of what the parent goes on using; the server hears nothing."""
        atexit.unregister(self.handler.stop)
        connection = self._connection
        for one in (connection._socket, connection._read_sock, connection._write_sock):
            if one is not None:
                one.close()
