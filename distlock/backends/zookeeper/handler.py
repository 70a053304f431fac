"""What kazoo asks of its surroundings: connections, waiting for them, a thread."""

from __future__ import annotations

import logging
import select
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from distlock import clock
from distlock.backends.tls import Tls
from distlock.backends.zookeeper.tls_socket import TlsSocket
from distlock.reentrance import call

logger = logging.getLogger(__name__)


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's way to its surroundings. Its threads for events are not needed: ours block nowhere."""

    def __init__(self, io_timeout: float, tls: Tls | None) -> None:
        super().__init__()
        self._tls = tls
        #: What one attempt to connect may take, and what the answer to it may take, seconds.
        # Where one hangs there has to be time for another, before its caller gives up.
        self.patience = io_timeout / 2

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def spawn(self, func: Callable[..., None], *args: Any, **kwargs: Any) -> threading.Thread:
        # A finaliser that runs in it could wait for ever for what this thread would read.
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
            # kazoo's own knows no password of a key, no directory of authorities, and tells of no file.
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
        # kazoo's own opens and closes a descriptor each time.
        poll, by_number = select.poll(), dict[int, Any]()
        for one in (*reads, *writes):
            by_number[number := one.fileno()] = one
            poll.register(number, select.POLLIN if one in reads else select.POLLOUT)
        ready = [by_number[number] for number, _ in poll.poll(None if timeout is None else timeout * 1000)]
        return [one for one in ready if one in reads], [one for one in ready if one in writes], []
