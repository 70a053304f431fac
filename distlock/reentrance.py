"""Re-entrance: a signal handler or a finaliser that calls us while its own thread is inside our code.

Python runs signal handlers between any two lines of the main thread, and ``__del__`` and weakref callbacks in
whatever thread collects garbage. They can't wait for what the code beneath them has to finish first. So the
engine looks whether its mutex is the caller's own, and no thread goes into a backend twice.

`threading.Event` is written in Python: a handler that raises inside of it leaves its lock locked, and every
later `wait` and `set` blocks for ever. `Flag` takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from distlock.errors import BackendUnavailable, Reentered

T = TypeVar("T")


class Mutex(Protocol):
    """A `threading.RLock`: it knows its owner, and says so as `threading.Condition` asks for it."""

    def __enter__(self) -> bool: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def _is_owned(self) -> bool: ...


def mutex() -> Mutex:
    """Return a mutex that its own thread may look at."""
    return cast("Mutex", threading.RLock())


class _ThisThread(threading.local):
    """The state of the running thread. A ``with`` on a plain lock leaves no gap to an interrupt."""

    def __init__(self) -> None:
        self.calling = threading.Lock()
        self.parked = threading.Lock()


this_thread = _ThisThread()


def call(function: Callable[..., T], *arguments: object) -> T:
    """Call *function*, of a backend, which is not to be entered a second time by this thread.

    The threads of a backend run in it from begin to end: garbage is collected in them as well. Raises
    `Reentered`.
    """
    with entry():
        return function(*arguments)


def backend_thread(name: str, function: Callable[..., object], *arguments: object) -> threading.Thread:
    """Return a daemon thread, not started, that is inside a backend while it calls *function*."""
    return threading.Thread(target=call, args=(function, *arguments), name=name, daemon=True)


def no_thread(what: str, error: RuntimeError) -> BackendUnavailable:
    """Return the error where *what* is impossible, a sentence, because no thread can be started: *error*."""
    return BackendUnavailable(
        f"{what}, because this process can start no more threads ({str(error).rstrip('.')}). Raise the limit "
        "(ulimit -u, TasksMax= of systemd, pids of a container), or run fewer threads."
    )


def entry() -> threading.Lock:
    """Mark the thread as inside a backend, for ``with``. Raises `Reentered` if it is already."""
    calling = this_thread.calling
    if calling.locked():
        raise refusal()
    return calling


def park(wait: Callable[[float], None], timeout: float) -> None:
    """Call *wait* with *timeout*. Raises `Reentered` where a call to a lock service beneath would stop."""
    if this_thread.calling.locked():
        raise refusal()
    parked = this_thread.parked
    if parked.locked():
        wait(timeout)
        return
    with parked:
        wait(timeout)


def is_calling() -> bool:
    """Return whether this thread is inside a backend."""
    return this_thread.calling.locked()


def is_parked() -> bool:
    """Return whether this thread waits for a lock, beneath the running code."""
    return this_thread.parked.locked()


def refusal() -> Reentered:
    return Reentered(
        "Nothing can be asked of the lock service here: a signal handler or a finaliser (__del__, a weakref "
        "callback) asks while its own thread is in the middle of taking or giving back a lock. Set a flag or "
        "put the work in a queue.SimpleQueue there, and do it where the program goes on, or in a thread."
    )


class Flag:
    """A `threading.Event` without `clear`. Only `set` changes `is_set`."""

    def __init__(self) -> None:
        self.is_set = False
        #: Locked until the flag is set.
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        self.is_set = True
        try:
            self._unset.release()
        except RuntimeError:
            pass  # It is set already.

    def wait(self, timeout: float) -> bool:
        """Wait *timeout* seconds at most. Return whether the flag is set."""
        if not self.is_set and self._unset.acquire(timeout=timeout):
            # Unlock it for the next waiter.
            self.set()
        return self.is_set
