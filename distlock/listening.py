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
from typing import Any

from distlock.clock import now
from distlock.engine.hold import NameGrant
from distlock.engine.sans_io import Commands, Park, Parker
from distlock.errors import ConfigurationError
from distlock.grants.grant import Fence, Grant, GrantWrapper
from distlock.locks.namespace import Acquirer, AcquirerWrapper, Acquisition
from distlock.operate.looking import Party, known_holder
from distlock.signal_safety import park
from distlock.terms import Terms

logger = logging.getLogger("distlock")

#: Seconds between two log lines about the same failing method of a listener.
PAUSE = 10.0

#: The code that asks for the lock: see `distlock.terms.shown_where`.
Where = str | CodeType | None


class Attempt:
    """Follows one acquisition.

    `contended` is called if the caller has to wait, then either `acquired` or `refused`. After `acquired`,
    `committed` is called if a transaction under the lock is committed, and `released` at the end. Here the
    methods do nothing; a subclass overrides those that it needs.
    """

    def contended(self, holder: Party | None) -> None:
        """The caller has to wait. *holder*: the holder, if this process knows it; else None.

        Called at most once, before `acquired` or `refused`. For a lock that is a row, this is called only if
        the caller waits for another one in this process.
        """

    def acquired(self, grant: Grant, waited: float) -> None:
        """The lock was granted after *waited* seconds."""

    def refused(self, error: BaseException | None, waited: float) -> None:
        """The lock was not granted, after *waited* seconds. *error*: the reason; None: a time-out."""

    def committed(self, held: float) -> None:
        """The transaction under the lock was committed, *held* seconds after the lock was granted."""

    def released(self, held: float) -> None:
        """The lock was released after *held* seconds; also if it had been lost before."""


class Listener:
    """Receives what happens to the locks of one client. Its methods should return at once.

    They are mostly called in the thread that acquires or releases. An exception that they raise does not
    affect the lock. It is logged, for each method at most once in ten seconds. Here the methods do nothing; a
    subclass overrides those that it needs.
    """

    def asked(self, names: tuple[str, ...], where: Where) -> Attempt | None:
        """Return an object that receives the outcome of this acquisition, or None.

        Called when the code *where* starts to acquire *names*.
        """
        return None

    def lost(self, grant: Grant, why: str, where: Where) -> None:
        """The lock of one name was lost before its release. *why*: the reason, as text."""

    def release_requested(self, grant: Grant, where: Where) -> None:
        """Handle a requested release of one name: see `distlock.Locks.request_release`."""

    def lifted(self, grant: Grant, was: Fence, where: Where) -> None:
        """The fence of *grant* was raised. It was *was* before: see ``on_lifted`` of `distlock.connect`."""

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


#: Called when a caller begins to wait, with the holder, or with None if this process knows none.
OnContended = Callable[[Party | None], None]


class Contended(AcquirerWrapper):
    """An acquirer that does what *inner* does, and calls *tell* when a caller begins to wait."""

    def __init__(self, inner: Acquirer, tell: OnContended) -> None:
        super().__init__(inner)
        self._tell = tell

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        steps = self._inner.acquire(names, parker, seconds, terms)
        # A caller that asks once does not wait for the lock.
        return self._reporting_wait(steps, names) if seconds > 0 else steps

    def _reporting_wait(self, steps: Acquisition, names: tuple[str, ...]) -> Acquisition:
        try:
            step, reported = next(steps), False
            while True:
                if isinstance(step, Park) and not reported:
                    reported = True
                    # Mark the thread as parked: then *tell* is refused if it asks for the same lock, as a
                    # signal handler is.
                    park(lambda _: self._tell(self._holder(names)), 0.0)
                try:
                    answer = yield step
                except BaseException as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            grant: Grant | None = stop.value
            return grant
        finally:
            steps.close()

    def _holder(self, names: tuple[str, ...]) -> Party | None:
        """Return the holder of one of *names*, or None if this process knows none. Does no I/O."""
        known = (known_holder(self.namespace, name) for name in names)
        return next((holder for holder in known if holder is not None), None)


class Listened(AcquirerWrapper):
    """An acquirer that does what *inner* does, and reports to *listener*."""

    def __init__(self, inner: Acquirer, listener: Listener) -> None:
        super().__init__(inner)
        self._listener = listener

    def acquire(self, names: tuple[str, ...], parker: Parker, seconds: float, terms: Terms) -> Acquisition:
        asked = now()
        attempt = _notify(self._listener, "asked", names, terms.where)
        if attempt is None:
            return (yield from self._inner.acquire(names, parker, seconds, terms))
        inner = Contended(self._inner, partial(_notify, attempt, "contended"))
        try:
            grant = yield from inner.acquire(names, parker, seconds, terms)
        except BaseException as error:
            _notify(attempt, "refused", error, now() - asked)
            raise
        granted = now()
        if grant is None:
            _notify(attempt, "refused", None, granted - asked)
            return None
        _notify(attempt, "acquired", grant, granted - asked)
        return _ListenedGrant(grant, attempt, granted)


class _ListenedGrant(GrantWrapper):
    __slots__ = ("_attempt", "_granted")

    def __init__(self, grant: Grant, attempt: Attempt, granted: float) -> None:
        super().__init__(grant)
        self._granted = granted
        #: None: the listener was told of the release.
        self._attempt: Attempt | None = attempt

    @property
    def parts(self) -> Mapping[str, Grant]:
        parts = self._grant.parts
        if len(parts) == 1:
            return dict.fromkeys(parts, self)
        return {name: _Part(part, self) for name, part in parts.items()}

    def _release(self, until: float = math.inf) -> Commands[None]:
        yield from self._grant._release(until)
        self._report_release()

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
        self._report_release()

    def _note_commit(self) -> None:
        if self._attempt is not None:
            _notify(self._attempt, "committed", now() - self._granted)

    def __del__(self) -> None:
        # If the caller was interrupted before it got this object, the engine has released the grant, and the
        # listener was not told.
        try:
            self._report_release()
        except AttributeError:
            pass  # The interrupt came while this object was made.

    def _report_release(self) -> None:
        """Report the release to the listener, once, if the grant is released by now."""
        attempt = self._attempt
        if attempt is not None and self._grant.released:
            self._attempt = None
            _notify(attempt, "released", now() - self._granted)


class _Part(GrantWrapper):
    """The grant of one of several names, which re-entrant locks release one by one."""

    __slots__ = ("_whole",)

    def __init__(self, grant: Grant, whole: _ListenedGrant) -> None:
        super().__init__(grant)
        self._whole = whole

    def _release(self, until: float = math.inf) -> Commands[None]:
        yield from self._grant._release(until)
        self._whole._report_release()

    def _abandon(self, error: BaseException) -> None:
        self._grant._abandon(error)
        self._whole._report_release()


def reporting(listener: Listener, event: str, then: Callable[..., object] | None) -> Callable[..., None]:
    """Return a function that reports a grant's *event* to *listener*, and then calls *then*, if it is given.

    *event*: the name of a method of `Listener`, whose last argument is the code that asked for the lock.
    """

    def report(grant: Grant, *about: object) -> None:
        where = grant.where if isinstance(grant, NameGrant) else None
        _notify(listener, event, grant, *about, where)
        if then is not None:
            then(grant, *about)

    return report


def reporting_reconnects(listener: Listener | None) -> Callable[[], None]:
    """Return a function that reports a replaced connection to *listener*, or does nothing without one."""
    return lambda: None if listener is None else _notify(listener, "reconnected")


class _Thread(threading.local):
    def __init__(self) -> None:
        self.telling = threading.Lock()


_thread = _Thread()
#: For each method that has failed, the moment from which its next failure is logged.
_complained: dict[str, float] = {}


def _notify(listening: Listener | Attempt, what: str, *about: Any) -> Any:
    """Call the method *what* of *listening*. Return its result; None if it fails or is not called."""
    telling = _thread.telling
    if telling.locked():
        # A signal handler or a finaliser has interrupted this thread in a listener. The listener may own a
        # mutex, so another call might deadlock.
        return None
    with telling:
        try:
            return getattr(listening, what)(*about)
        except Exception:
            if now() >= _complained.get(what, 0.0):
                # Log only some failures: on a full disk, for example, every call fails.
                _complained[what] = now() + PAUSE
                logger.exception("A listener failed in %s(); the lock is as it would be without it.", what)
            return None
