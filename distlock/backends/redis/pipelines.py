"""Which event loop has which pipeline, and what becomes of those whose loop does not go on."""

from __future__ import annotations

import asyncio
import threading
import weakref

from distlock import clock
from distlock.backends.redis.pipeline import Pipeline
from distlock.backends.redis.pool import Pool


class Pipelines:
    """Those of all event loops of the process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        pool.sweep = weakref.WeakMethod(self._sweep)
        self._mutex = threading.Lock()
        self._of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pipeline] = weakref.WeakKeyDictionary()

    def here(self) -> Pipeline:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        pipeline = self._of.get(loop)
        if pipeline is None:
            self._sweep()
            with self._mutex:
                pipeline = self._of.setdefault(loop, Pipeline(self._pool))
        return pipeline

    def _sweep(self) -> None:
        """Give up the connections of loops that don't look at them."""
        now = clock.now()
        for pipeline in self._all():
            if pipeline.is_stuck(now):
                pipeline.drop()

    def retire(self) -> None:
        """The client is closed. What is awaited is answered."""
        for pipeline in self._all():
            pipeline.retired = True

    def forget(self) -> None:
        """In a forked child."""
        for pipeline in list(self._of.values()):
            pipeline.forget()

    def _all(self) -> list[Pipeline]:
        with self._mutex:
            return list(self._of.values())
