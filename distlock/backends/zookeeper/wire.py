"""kazoo, bent a little: what we need of it and it does not offer.

It has no container nodes, keeps the negotiated session timeout to itself, lets a host that answers nothing
take a whole session's time, or for ever under load, warns of each attempt to reconnect, and stops for good
where it does not understand an answer or can't start a thread.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import SASL, Auth, Connect, Create2, SetData
from kazoo.protocol.states import KeeperState
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from distlock.backends.flag import Flag
from distlock.backends.zookeeper.address import Address
from distlock.backends.zookeeper.answer import Answer, Told
from distlock.backends.zookeeper.connection import Connection
from distlock.backends.zookeeper.handler import Handler

logger = logging.getLogger(__name__)

#: Seconds between attempts to connect at most. kazoo would let it grow to a minute.
_BACKOFF = 0.5
_EPHEMERAL_SEQUENTIAL = 3
_CONTAINER = 4


class CreateContainer(Create2):  # type: ignore[misc]  # kazoo has no types
    """Creates a node that the server removes some time after its last child is gone."""

    type = 19


def _without_secrets(args: tuple[object, ...]) -> list[object]:
    return [type(arg).__name__ if isinstance(arg, Auth | Connect | SASL) else arg for arg in args]


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
    """One session. `submit` sends what kazoo would send, without the steps of its own methods."""

    def __init__(self, address: Address, session_timeout: float, io_timeout: float) -> None:
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
        #: Up while there is a connection.
        self._up = Flag()
        self.acl = CREATOR_ALL_ACL if address.auth or address.sasl else OPEN_ACL_UNSAFE
        retry = self._conn_retry.copy()
        self._connection = Connection(
            io_timeout, self, retry, logger=self.memo, sasl_options=address.sasl and {**address.sasl}
        )

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
        # Not kazoo's `_live`: a `threading.Event` does not survive a signal handler that raises in there.
        return self._up.wait(timeout)

    def submit(self, requests: Sequence[Any], told: Told | None = None) -> list[Answer]:
        """Send *requests* in one piece, after those that were submitted before.

        *told* is that of the last `Answer`: they come in order.
        """
        answers = [Answer() for _ in requests[1:]]
        answers.append(Answer(told))
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
            if self._up.is_set():
                self._up = Flag()
        super()._session_callback(state)
        if self._live.is_set():
            self._up.set()

    def contender(self, parent: str, prefix: str) -> Create2:
        """An ephemeral node with a number; the answer is its path and its state."""
        return Create2(f"{parent}/{prefix}", self.lifetime, self.acl, _EPHEMERAL_SEQUENTIAL)

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
            self._connection.close()
            raise

    def cut(self) -> None:
        """Break the connection, for a `stop` that waits for an answer in vain."""
        self._connection.cut()

    def forget(self) -> None:
        """In a forked child: close our copies of what the parent goes on using; the server hears nothing."""
        connection = self._connection
        for one in (connection._socket, connection._read_sock, connection._write_sock):
            if one is not None:
                one.close()
