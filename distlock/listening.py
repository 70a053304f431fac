"""A listener follows the acquisitions of one client. Metrics and traces are built on it.

A client without a listener pays nothing for this.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from distlock.clock import now
from distlock.engine.commands import Commands, Parker
from distlock.engine.hold import NameGrant
from distlock.engine.notifications import OnLifted, OnLost
from distlock.errors import ConfigurationError
from distlock.grants.grant import Fence, Grant, GrantWrapper, OnReleaseRequested
from distlock.locks.multi_lock import holder_of, told_of_the_wait
from distlock.locks.namespace import Acquirer
from distlock.operate.looking import Party
from distlock.terms import Terms

if TYPE_CHECKING:
    from distlock.locks.namespace import Namespace

logger = logging.getLogger("distlock")

#: Seconds between two log lines about the same failing method of a listener.
PAUSE = 10.0

#: The code that asks for the lock: see `distlock.terms.shown_where`.
Where = str | CodeType | None


class Attempt:
    """Follows one acquisition: `acquired` or `refused` is called, and after `acquired` the others.

    The methods do nothing; a subclass overrides those that it needs.
    """

    def contended(self, holder: Party | None) -> None:
        """The caller has to wait. *holder*: the holder as far as this process knows; None: it knows none.

        Called at most once, before `acquired` or `refused`; never for a lock that is a row.
        """

    def acquired(self, grant: Grant, waited: float) -> None:
        """The lock was granted after *waited* seconds."""

    def refused(self, error: BaseException | None, waited: float) -> None:
        """The lock was not granted, after *waited* seconds. *error* says why; None: it stayed taken."""

    def committed(self, held: float) -> None:
        """The transaction under the lock was committed, *held* seconds after the lock was granted."""

    def released(self, held: float) -> None:
        """The lock was released after *held* seconds; also if it had been lost before."""


class Listener:
    """Receives what happens to the locks of one client. Its methods should return at once.

    They are mostly called in the thread that acquires or releases. What they raise is logged, once in ten
    seconds for each method, and changes nothing for the lock. They do nothing; a subclass overrides those
    that it needs.
    """

    def asked(self, names: tuple[str, ...], where: Where) -> Attempt | None:
        """Return an object that receives the outcome of this acquisition, or None.

        Called when *where* starts to acquire *names*, and may have to wait.
        """
        return None

    def lost(self, grant: Grant, why: str, where: Where) -> None:
        """The lock of one name was lost before its release."""

    def release_requested(self, grant: Grant, where: Where) -> None:
        """Handle a requested release of one name: see `distlock.Locks.request_release`."""

    def lifted(self, grant: Grant, was: Fence, where: Where) -> None:
        """The fence of *grant* was lifted from *was*: see ``on_lifted`` of `distlock.connect`."""

    def reconnected(self) -> None:
        """A connection to the lock service has replaced one that broke. Called in any thread."""


#: The methods of a `Listener`.
_METHODS = ("asked", "lost", "release_requested", "lifted", "reconnected")


def check_listener(listener: object) -> None:
    """Raise `ConfigurationError` unless *listener* has the methods of a `Listener`."""
    missing = [f"{name}()" for name in _METHODS if not callable(getattr(listener, name, None))]
    if missing:
        raise ConfigurationError(
            f"A {type(listener).__name__} is no listener: it has no {', '.join(missing)}. Pass what "
            'distlock.metrics.listener("prometheus") returns, or an object of a subclass of '
            "distlock.listening.Listener."
        )


class Listened:
    """An acquirer that does what *inner* does, and tells *listener*."""

    def __init__(self, inner: Acquirer, listener: Listener) -> None:
        self._inner = inner
        self._listener = listener

    @property
    def namespace(self) -> Namespace:
        return self._inner.namespace

    def acquire(
        self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms
    ) -> Commands[Grant | None]:
        asked = now()
        attempt = _told(self._listener, "asked", names, terms.where)
        if attempt is None:
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        try:
            steps = self._inner.acquire(names, parker, seconds, terms)
            tell = partial(self._tell_contended, attempt, names)
            # A caller that asks once does not wait for the lock.
            grant = yield from (told_of_the_wait(steps, tell) if seconds > 0 else steps)
        except BaseException as error:
            _told(attempt, "refused", error, now() - asked)
            raise
        granted = now()
        if grant is None:
            _told(attempt, "refused", None, granted - asked)
            return None
        _told(attempt, "acquired", grant, granted - asked)
        return _ListenedGrant(grant, attempt, granted)

    def _tell_contended(self, attempt: Attempt, names: tuple[str, ...]) -> None:
        _told(attempt, "contended", holder_of(self.namespace, names))


class _ListenedGrant(GrantWrapper):
    __slots__ = ("_attempt", "_granted")

    def __init__(self, grant: Grant, attempt: Attempt, granted: float) -> None:
        super().__init__(grant)
        self._granted = granted
        #: None: the listener has been told of its end.
        self._attempt: Attempt | None = attempt

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        if len(parts) == 1:
            return dict.fromkeys(parts, self)
        return {name: _Part(part, self) for name, part in parts.items()}

    def _release(self, until: float = math.inf) -> Commands[None]:
        yield from self._grant._release(until)
        self._look()

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
        self._look()

    def _note_commit(self) -> None:
        if self._attempt is not None:
            _told(self._attempt, "committed", now() - self._granted)

    def __del__(self) -> None:
        # If the caller was interrupted before it got this object, the engine has released the grant.
        try:
            self._look()
        except AttributeError:
            pass  # The interrupt came while this object was made.

    def _look(self) -> None:
        """Tell the listener, if the grant is released by now."""
        attempt = self._attempt
        if attempt is not None and self._grant.released:
            self._attempt = None
            _told(attempt, "released", now() - self._granted)


class _Part(GrantWrapper):
    """The grant of one of several names, which re-entrant locks release one by one."""

    __slots__ = ("_whole",)

    def __init__(self, grant: Grant, whole: _ListenedGrant) -> None:
        super().__init__(grant)
        self._whole = whole

    def _release(self, until: float = math.inf) -> Commands[None]:
        yield from self._grant._release(until)
        self._whole._look()

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
        self._whole._look()


def on_lost_of(listener: Listener, on_lost: OnLost | None) -> OnLost:
    """Return a function that reports a loss to *listener*, and then to *on_lost*."""

    def lost(grant: Grant, why: str) -> None:
        _told(listener, "lost", grant, why, _where(grant))
        if on_lost is not None:
            on_lost(grant, why)

    return lost


def on_release_requested_of(
    listener: Listener, on_release_requested: OnReleaseRequested | None
) -> OnReleaseRequested:
    """Return a function that reports a requested release to *listener*, then to *on_release_requested*."""

    def release_requested(grant: Grant) -> None:
        _told(listener, "release_requested", grant, _where(grant))
        if on_release_requested is not None:
            on_release_requested(grant)

    return release_requested


def on_lifted_of(listener: Listener, on_lifted: OnLifted | None) -> OnLifted:
    """Return a function that reports a raised fence to *listener*, and then to *on_lifted*."""

    def lifted(grant: Grant, was: Fence) -> None:
        _told(listener, "lifted", grant, was, _where(grant))
        if on_lifted is not None:
            on_lifted(grant, was)

    return lifted


def on_reconnected_of(listener: Listener | None) -> Callable[[], None]:
    """Return a function that reports a replaced connection to *listener*."""
    if listener is None:
        return lambda: None

    def reconnected() -> None:
        _told(listener, "reconnected")

    return reconnected


def _where(grant: Grant) -> Where:
    return grant.where if isinstance(grant, NameGrant) else None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.telling = threading.Lock()


_thread = _Thread()
#: The failed method of a listener, and when its next failure is logged.
_complained: dict[str, float] = {}


def _told(listening: Listener | Attempt, what: str, *about: Any) -> Any:
    """Return the result of the method *what* of *listening*; None if it failed or was not called."""
    telling = _thread.telling
    if telling.locked():
        # A signal handler or a finaliser has interrupted this thread in a listener, which may own a mutex.
        return None
    with telling:
        try:
            return getattr(listening, what)(*about)
        except Exception:
            if now() >= _complained.get(what, 0.0):
                # Not each time: on a full disk, for example, every call fails.
                _complained[what] = now() + PAUSE
                logger.exception("A listener failed in %s(); the lock is as it would be without it.", what)
            return None
