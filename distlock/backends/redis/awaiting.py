"""What event loops ask of the server without a thread: the same bytes, while all goes as it usually does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distlock.backends.base import LockRequest
from distlock.backends.latches import LatchState
from distlock.backends.optional import REPEAT, Begun
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import Calls, is_answer
from distlock.backends.redis.connection import ReplyError
from distlock.backends.redis.latches import NOT_ASKED, Asked, state_in, to_make, written
from distlock.backends.redis.listener import Listener
from distlock.backends.redis.pipelines import Pipelines
from distlock.backends.redis.pool import Pool
from distlock.backends.redis.pushes import Pushes
from distlock.backends.redis.scripts import Script, bulk, polled
from distlock.backends.redis.told import BUSY, FOREIGN, Told
from distlock.backends.redis.unanswered import Unanswered


class Awaiting:
    """The calls of one process. Each returns None if it was not sent, for it would have to wait."""

    def __init__(
        self,
        calls: Calls,
        pool: Pool,
        unanswered: Unanswered,
        pushes: Pushes,
        listener: Listener | None,
        told: Told,
    ) -> None:
        self._calls = calls
        self._unanswered = unanswered
        self._pushes = pushes
        self._listener = listener
        self._told = told
        self.pipelines = Pipelines(pool)

    def request(self, request: LockRequest, deadline: float) -> Begun | None:
        listener = self._listener
        queue = request.wait and listener is not None and listener.tried.is_set()

        def told(reply: list[Any]) -> object:
            request.unanswered -= 1
            # To begin to listen takes a while, and so does the search for what is somebody else's.
            if reply[1] == FOREIGN or (reply[1] == BUSY and request.wait and not queue):
                return REPEAT
            return self._told.by(reply, request)

        def more() -> bytes:
            request.unanswered += 1
            return polled(*self._pushes.poll(request)) if queue else polled()

        return self._call(scripts.REQUEST[request.mode], request, told, deadline, queue, more)

    def cancel(self, request: LockRequest, deadline: float) -> Begun | None:
        def told(reply: list[Any]) -> object:
            self._pushes.forget(request)
            if not reply[1]:
                self._unanswered.forget(request)
            return bool(reply[1])

        return self._call(
            scripts.CANCEL, request, told, deadline, more=lambda: bulk(self._pushes.entry(request))
        )

    def acknowledge(self, handed: Sequence[tuple[LockRequest, int]], deadline: float) -> Begun | None:
        if len(handed) != 1:
            return None
        ((request, number),) = handed

        def told(reply: list[Any]) -> object:
            self._pushes.forget(request)
            return [bool(reply[1])]

        return self._call(scripts.ACKNOWLEDGE, request, told, deadline, more=lambda: bulk(number))

    def downgrade(self, request: LockRequest, deadline: float) -> Begun | None:
        return self._call(scripts.DOWNGRADE, request, lambda reply: bool(reply[1]), deadline)

    def make_latch(self, key: str, total: int, ttl: float, maker: str, deadline: float) -> Begun | None:
        return self._of_latch(to_make(key, total, ttl, maker), lambda state: state, deadline)

    def count_latch_down(self, key: str, by: int, part: str, life: str, deadline: float) -> Begun | None:
        return self._of_latch(("count", key, part, by, life), lambda state: state, deadline)

    def delete_latch(self, key: str, life: str, deadline: float) -> Begun | None:
        return self._of_latch(("delete", key, life), lambda state: state is not None, deadline)

    def look_at_latches(self, keys: Sequence[str], watch: bool, deadline: float) -> Begun | None:
        # One that is to be watched needs a listener, which may take a while.
        if watch or len(keys) != 1:
            return None
        return self._of_latch(("look", keys[0], ""), lambda state: [state], deadline)

    def post(
        self, request: LockRequest, told: Callable[[bool | None], None], deadline: float
    ) -> Begun | None:
        self._pushes.forget(request)
        pipeline = self.pipelines.here()
        if not self._unanswered.post(request, told, deadline, pipeline.post):
            return None
        return pipeline.sent(deadline)

    def _call(
        self,
        script: Script,
        request: LockRequest,
        told: Callable[[list[Any]], object],
        deadline: float,
        queue: bool = False,
        more: Callable[[], bytes] = bytes,
    ) -> Begun | None:
        """*more*: gives the arguments after those that all scripts take, when they are sure to be sent."""
        # Behind a release of the key that is on its way.
        posted = self._unanswered.of(request.key)
        pipeline = self.pipelines.here()
        connection = pipeline.connection(posted)
        if connection is None:
            return None
        token = request.token.encode()

        def understand(reply: Any) -> object:
            if isinstance(reply, ReplyError) or (posted is not None and posted.lost):
                return REPEAT
            if not is_answer(script, reply, token):
                raise OSError("it answered something that was not asked")
            return told(reply)

        return pipeline.ask(
            connection, self._calls.written(script, request, queue, more()), understand, deadline
        )

    def _of_latch(
        self, asked: Asked, told: Callable[[LatchState | None], object], deadline: float
    ) -> Begun | None:
        pipeline = self.pipelines.here()
        connection = pipeline.connection()
        if connection is None:
            return None

        def understand(reply: Any) -> object:
            if isinstance(reply, ReplyError):
                return REPEAT
            try:
                return told(state_in(reply))
            except NOT_ASKED:
                raise OSError("it answered something that was not asked") from None

        return pipeline.ask(connection, written(asked), understand, deadline)
