"""Re-entrance: a signal handler or a finaliser that calls us while its own thread is inside our code.

Python runs signal handlers between any two instructions of the main thread, and ``__del__`` and weakref
callbacks in whatever thread collects garbage. If they waited for the code that they interrupted, they would
wait for ever. So the engine checks whether the calling thread owns its mutex already, and no thread enters a
backend a second time.

`threading.Event` is written in Python: a handler that raises inside of it may leave its lock locked, so that
every later `wait` and `set` blocks for ever. `Flag` takes its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

from distlock.errors import BackendUnavailable, Reentered

T = TypeVar("T")


class Mutex(Protocol):
    """A `threading.RLock`, with the method that tells `threading.Condition` whether the caller owns it."""

    def __enter__(self) -> bool: ...
    def __exit__(self, *exc_info: object) -> None: ...
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...
    def _is_owned(self) -> bool: ...


def mutex() -> Mutex:
    """Return a reentrant mutex that can tell whether the running thread owns it."""
    return cast("Mutex", threading.RLock())


class _ThisThread(threading.local):
    """The state of the running thread: whether it is inside a backend, and whether it is parked.

    Each is a plain lock, because no interrupt can leave the lock of a ``with`` statement locked.
    """

    def __init__(self) -> None:
        self.calling = threading.Lock()
        self.parked = threading.Lock()


this_thread = _ThisThread()


def call(function: Callable[..., T], *arguments: object) -> T:
    """Call *function* of a backend, and return its result.

    Raises `Reentered` if this thread is inside a backend already. A backend's own threads are inside it for
    their whole life, because finalisers may run in them, too.
    """
    with entry():
        return function(*arguments)


def backend_thread(name: str, function: Callable[..., object], *arguments: object) -> threading.Thread:
    """Return a daemon thread, not started, that calls *function* and is inside a backend meanwhile."""
    return threading.Thread(target=call, args=(function, *arguments), name=name, daemon=True)


def no_thread(what: str, error: RuntimeError) -> BackendUnavailable:
    """Return the error for *error*, which says that no thread can be started.

    *what*: a clause that says what is impossible without the thread.
    """
    return BackendUnavailable(
        f"{what}, because this process can start no more threads ({str(error).rstrip('.')}). Raise the limit "
        "(ulimit -u, TasksMax= of systemd, pids of a container), or run fewer threads."
    )


def entry() -> threading.Lock:
    """Return a context manager that marks this thread as inside a backend.

    Raises `Reentered` if the thread is inside a backend already.
    """
    calling = this_thread.calling
    if calling.locked():
        raise refusal()
    return calling


def park(wait: Callable[[float], None], timeout: float) -> None:
    """Call *wait* with *timeout*, and mark this thread as parked meanwhile.

    Raises `Reentered` if this thread is inside a backend: its call there would stand still.
    """
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
    """Return whether the running code has interrupted this thread while it waited for a lock."""
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
