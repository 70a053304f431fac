"""A connection to whichever server is the primary when it connects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distlock import clock
from distlock.backends.redis.blocking import Credentials
from distlock.backends.redis.connection import Connection, ReplyError
from distlock.backends.redis.failures import Remedied
from distlock.backends.redis.scripts import command
from distlock.backends.sentinel.sentinels import Primary, Sentinels, may_pass

#: Between two attempts, seconds.
_PAUSE = 0.05
#: One attempt takes half of what is left, so that there is time for another, and so many seconds at least.
_LEAST = 0.25
#: The answers of a server that is no primary any more, or that its replicas have left.
_NO_LONGER = ("READONLY", "NOREPLICAS", "MASTERDOWN")

_ANNOUNCED = (
    "If it is gone, another one takes its place when the sentinels have noticed. If it runs, it can't be "
    "reached from here by that address: have it announce another one (replica-announce-ip, "
    "replica-announce-port)."
)
_AGAIN = "The next call asks its sentinels again."


class PrimaryConnection(Connection):
    """Asks the sentinels when it connects, and again until its deadline while there is no primary."""

    #: Where it leads.
    primary: Primary | None = None

    def __init__(self, sentinels: Sentinels, credentials: Credentials | None, client_name: str) -> None:
        self._sentinels = sentinels
        nowhere = Primary(sentinels.address)
        super().__init__(nowhere.address, nowhere.resolver, credentials, client_name)

    def connect(self, deadline: float) -> None:
        failure: OSError | None = None
        while True:
            try:
                self._attempt(deadline)
                return
            except OSError as error:
                # That the time is over says less than what happened before.
                if failure is None or not isinstance(error, TimeoutError):
                    failure = error
                if not may_pass(error):
                    raise
            if clock.now() + _PAUSE >= deadline or self._sentinels.closing.wait(_PAUSE):
                raise failure

    def ask(self, commands: Sequence[bytes], deadline: float) -> list[Any]:
        replies = super().ask(commands, deadline)
        for reply in replies:
            if isinstance(reply, ReplyError) and any(word in str(reply) for word in _NO_LONGER):
                # As if it were broken: who asks connects anew, to the primary.
                raise Remedied(f"{self._address.shown} is no primary any more: {reply}", _AGAIN)
        return replies

    def _attempt(self, deadline: float) -> None:
        primary = self._sentinels.find(self, deadline)
        self.disconnect()
        # From nothing: of an earlier attempt half a reply may be left.
        super().__init__(primary.address, primary.resolver, self._credentials, self._client_name)
        now = clock.now()
        ends = min(deadline, now + max(_LEAST, (deadline - now) / 2))
        try:
            super().connect(ends)
            (role,) = super().ask([command("ROLE")], ends)
        except OSError as error:
            if not may_pass(error):
                raise
            text = f"{primary.address.shown}, which its sentinels call the primary: {error}"
            raise Remedied(text, _ANNOUNCED) from error
        if isinstance(role, ReplyError):
            raise role
        if role[0] != b"master" or self._sentinels.primary is not primary:
            raise Remedied(f"{primary.address.shown} is not the primary (any more)", _AGAIN)
