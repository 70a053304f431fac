"""The lock of one guard: where ``ON_BACKEND_DOWN`` says so, the fence's row while its service is away."""

from __future__ import annotations

import logging
import math

from distlock import blocks
from distlock.clock import now
from distlock.engine.steps import Gate, Steps, TaskGate, ThreadGate, arun, run
from distlock.errors import BackendUnavailable
from distlock.grant import Grant
from distlock.locks import Locks
from distlock.owner import in_event_loop

logger = logging.getLogger("distlock")


class GuardLock:
    """*names* of *client*, for one call; while its lock service does not answer, rows of *standby*.

    Its end tells of no loss: after COMMIT the view's answer stands. Nor is it refused inside of a ``with`` on
    a name of it: a site's test may hold the lock, and look how its guarded view answers in the same thread.
    *names* are in the one order for everybody. *wait*: seconds to wait for the lock, of the *timeout* for
    lock and fence together; -1: no limit.
    """

    __slots__ = ("_client", "_deadline", "_grant", "_names", "_standby", "_ttl", "_wait")

    def __init__(
        self,
        client: Locks,
        names: tuple[str, ...],
        timeout: float,
        wait: float,
        ttl: float | None,
        standby: Locks | None,
    ) -> None:
        self._client = client
        self._names = names
        self._wait = math.inf if wait == -1 else wait
        self._deadline = math.inf if timeout == -1 else now() + timeout
        self._ttl = client.namespace.ttl if ttl is None else ttl
        self._standby = standby

    def left(self) -> float:
        """What is left of the time-out, seconds."""
        return self._deadline - now()

    def __enter__(self) -> Grant:
        gate = ThreadGate()
        try:
            return self._granted(run(self._acquire(gate)), in_event_loop())
        except BaseException as error:
            self._forsake(gate, error)
            raise

    def __exit__(self, *exc_info: object) -> None:
        self._grant.release()

    async def __aenter__(self) -> Grant:
        gate = TaskGate()
        try:
            return self._granted(await arun(self._acquire(gate)), stopped_loop=False)
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

    def _granted(self, grant: Grant | None, stopped_loop: bool) -> Grant:
        if grant is None:
            raise blocks.timed_out(self._client.namespace, self._names, self._wait, stopped_loop)
        grant.timeout = self._wait
        self._grant = grant
        return grant

    def _forsake(self, gate: Gate, error: BaseException) -> None:
        """It was interrupted, or refused: leave nothing of it behind."""
        self._client.namespace.forsake(self._names, gate, error)
        if self._standby is not None:
            self._standby.namespace.forsake(self._names, gate, error)
