"""What a server shows of its locks. It knows sessions, and processes as far as they say who they are."""

from __future__ import annotations

import math
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

from distlock.backends.advisory.dialect import Dialect, Rows, Say
from distlock.backends.advisory.sessions import Sessions
from distlock.backends.advisory.standing import Standing
from distlock.backends.inspectable import MOST_SHOWN, Row, Seen, Sight


class Inspection(ABC):
    """The part of `AdvisoryBackend` for those who look. It changes nothing, and no lock waits for it."""

    #: See `distlock.backends.inspectable.Inspectable`.
    process: str
    _dialect: Dialect
    _sessions: Sessions

    @abstractmethod
    def _until(self, deadline: float) -> float: ...

    @abstractmethod
    def _told(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def _say(self, text: str, until: float) -> list[Rows]:
        """At the desk, which others may have between two of these."""

    def inspect(self, key: str, deadline: float = math.inf) -> Sight:
        with self._told():
            found = list(self._dialect.standing(self._saying(deadline), key))
        holder = next((one for one in found if one.waited is None), None)
        queue = [self._seen(one) for one in found if one.waited is not None]
        line = Sight(queue=queue[:MOST_SHOWN], waiting=len(queue))
        if holder is None:
            return line
        ended_by = self._dialect.ending(holder.session)
        return replace(line, holder=self._seen(holder), number=None, remaining=None, ended_by=ended_by)

    def announced(self, before: str, deadline: float = math.inf) -> Iterator[Seen]:
        with self._told():
            for one in self._dialect.all_standing(self._saying(deadline), before):
                yield self._seen(one)

    def _saying(self, deadline: float) -> Say:
        # Each has its time: there may be many.
        return lambda text: self._say(text, self._until(deadline))

    def _seen(self, one: Standing) -> Seen:
        if one.waited is None:
            row = Row(one.key, held=True)
        else:
            row = Row(one.key, waiting=1, waiting_since=round(time.time() - one.waited, 1))
        if self._sessions.has(one.session):
            return Seen(self.process, socket.gethostname(), os.getpid(), row)
        return Seen(one.called, one.host, one.pid, row)
