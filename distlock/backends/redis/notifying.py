"""Asking a holder to give a key back, and hearing that it is wanted: see ``wanted.lua``."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from distlock.backends.base import LockRequest, Sink
from distlock.backends.redis import scripts
from distlock.backends.redis.calls import Calls
from distlock.backends.redis.unanswered import Unanswered

#: What ``renew.lua`` answers for a hold that is wanted back.
_WANTED = 2


class Notifying(ABC):
    """The part of `RedisBackend` that is for `distlock.backends.notifying.Notifies`."""

    _calls: Calls
    _unanswered: Unanswered
    _sink: Sink | None

    @abstractmethod
    def _by(self, deadline: float) -> float:
        """The end of a call that begins now and may last until *deadline*."""

    def request_release(self, key: str, deadline: float = math.inf) -> bool:
        deadline = self._by(deadline)
        self._unanswered.finish(key, deadline)
        nobody = LockRequest(key, secrets.token_hex(16), 1.0, 1)
        (reply,) = self._calls.call(scripts.REQUEST_RELEASE, [nobody], deadline)
        return bool(reply[1])

    def tell_wanted(self, requests: Sequence[LockRequest], replies: Sequence[Sequence[Any]]) -> None:
        """*replies*: to the renewals of *requests*."""
        for request, reply in zip(requests, replies, strict=True):
            if reply[1] == _WANTED and self._sink is not None:
                self._sink.release_requested(request.key, request.token)
