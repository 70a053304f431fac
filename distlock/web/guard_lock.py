"""The lock of one guard: where ``ON_BACKEND_DOWN`` says so, the fence's row while its service is away."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from distlock import blocks
from distlock.clock import now
from distlock.current_grants import CurrentGrant
from distlock.engine.steps import Gate, Steps, TaskGate, ThreadGate, arun, run
from distlock.errors import BackendUnavailable
from distlock.grant import Grant
from distlock.locks import Locks
from distlock.owner import in_event_loop
from distlock.web.nesting import patience

logger = logging.getLogger("distlock")


class GuardLock:
    """*names* of *client*, for one call; while its lock service does not answer, rows of *standby*.

    Its end tells of no loss: after COMMIT the view's answer stands. Nor is it refused inside of a ``with`` on
    a name of it: a site's test may hold the lock, and look how its guarded view answers in the same thread.
    *around*: what is held already. *timeout*: seconds for the lock and its fence together; None: the
    client's; -1: no limit. *ttl*: seconds; None: the client's.
    """

    __slots__ = ("_client", "_deadline", "_grant", "_names", "_standby", "_ttl", "_wait")

    def __init__(
        self,
        client: Locks,
        names: Sequence[str],
        around: Sequence[CurrentGrant],
        timeout: float | None,
        ttl: float | None,
        standby: Locks | None,
    ) -> None:
        if timeout is None:
            timeout = client.timeout
        if timeout == -1:
            timeout = math.inf
        self._client = client
        #: In the one order for everybody.
        self._names = tuple(sorted(names))
        self._wait = patience(client.namespace, names, around, timeout) if around else timeout
        self._deadline = now() + timeout
        self._ttl = client.namespace.ttl if ttl is None else ttl
        self._standby = standby

    def left(self) -> float:
        """What is left of the time-out, seconds."""
        return self._deadline - now()

    def __enter__(self) -> Grant:
        gate = ThreadGate()
        try:
            return self._granted(run(self._acquire(gate)), plain=True)
        except BaseException as error:
            self._forsake(gate, error)
            raise

    def __exit__(self, *exc_info: object) -> None:
        self._grant.release()

    async def __aenter__(self) -> Grant:
        gate = TaskGate()
        try:
            return self._granted(await arun(self._acquire(gate)), plain=False)
        except BaseException as error:
            self._forsake(gate, error)
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        await self._grant.arelease()

    def _acquire(self, gate: Gate) -> Steps[Grant | None]:
        if self._standby is None:
            return self._client.acquirer.acquire(self._names, gate, self._wait, self._ttl)
        return self._acquire_or_row(self._standby, gate)

    def _acquire_or_row(self, standby: Locks, gate: Gate) -> Steps[Grant | None]:
        try:
            return (yield from self._client.acquirer.acquire(self._names, gate, self._wait, self._ttl))
        except BackendUnavailable as error:
            self._client.namespace.forsake(self._names, gate, error)
            logger.error(
                "Without its lock service, the lock %s is the fence's row this time: %s",
                ", ".join(map(repr, self._names)),
                error,
            )
        left = max(0.0, self.left())
        return (yield from standby.acquirer.acquire(self._names, gate, left, standby.namespace.ttl))

    def _granted(self, grant: Grant | None, plain: bool) -> Grant:
        if grant is None:
            stopped_loop = plain and in_event_loop()
            raise blocks.timed_out(self._client.namespace, self._names, self._wait, stopped_loop)
        grant.timeout = self._wait
        self._grant = grant
        return grant

    def _forsake(self, gate: Gate, error: BaseException) -> None:
        """It was interrupted, or refused: leave nothing of it behind."""
        self._client.namespace.forsake(self._names, gate, error)
        if self._standby is not None:
            self._standby.namespace.forsake(self._names, gate, error)
