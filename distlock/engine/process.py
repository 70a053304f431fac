"""What happens to clients when their process forks or ends."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import types
import weakref
from typing import Any, Protocol

from distlock import clock

#: The most seconds by which clients may delay the end of a process if a lock service does not answer.
LONGEST = 3.0
#: The priority of our finalizer in children of multiprocessing. The finalizers of queues run before it, and
#: flush the queues.
LAST = -100


class Forgetful(Protocol):
    def after_fork(self) -> None:
        """Begin anew in the child, and touch nothing that the parent still uses."""


class Forking(Protocol):
    def before_fork(self) -> None:
        """Prepare for a fork in the parent. It returns soon, and never raises."""


class Ending(Protocol):
    def end_with_process(self) -> None:
        """Mark all grants as lost, and have the locks released that no running thread holds. Does no I/O."""

    def has_ended(self) -> bool:
        """Return whether all locks are released that `end_with_process` has to release."""


_children_forget: weakref.WeakSet[Forgetful] = weakref.WeakSet()
_parents_prepare: weakref.WeakSet[Forking] = weakref.WeakSet()
_ending: weakref.WeakSet[Ending] = weakref.WeakSet()
_finalizer: Any = None


def forget_in_children(one: Forgetful) -> None:
    """Call `Forgetful.after_fork` of *one* in every forked child, for as long as *one* is in use."""
    _children_forget.add(one)


def prepare_for_forks(one: Forking) -> None:
    """Call `Forking.before_fork` of *one* before every fork, for as long as *one* is in use."""
    _parents_prepare.add(one)


def _before_fork() -> None:
    for one in list(_parents_prepare):
        one.before_fork()


def _after_fork() -> None:
    for one in list(_children_forget):
        one.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


def end_at_exit(one: Ending) -> None:
    """Call `Ending.end_with_process` of *one* at the end of the process, if *one* is in use then."""
    _ending.add(one)
    # Hooks run in the reverse order of registration. So our hook runs before those of the client libraries,
    # which have registered theirs by now.
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    _register_in_child()


def may_run(thread: int) -> bool:
    """Return whether *thread*, an identifier, may still run while this thread ends the interpreter.

    Python has joined all threads but daemons by now. True for greenlets, for which it is unknown.
    """
    if thread == threading.get_ident():
        return False
    return thread in sys._current_frames() or not isinstance(threading.get_ident, types.BuiltinFunctionType)


def _register_in_child() -> None:
    """In a child of multiprocessing, register a finalizer: forked children run no exit hooks."""
    global _finalizer
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None:
        return
    if _finalizer is None or not _finalizer.still_active():
        # A child of multiprocessing has loaded this module before anything else.
        _finalizer = sys.modules["multiprocessing.util"].Finalize(None, _at_end_of_child, exitpriority=LAST)


def _at_end_of_child() -> None:
    # In other processes Python itself ends these threads before its exit hooks run.
    if (executors := sys.modules.get("concurrent.futures.thread")) is not None:
        executors._python_exit()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    _at_exit()


def _at_exit() -> None:
    until = clock.now() + LONGEST
    ending = list(_ending)
    for one in ending:
        one.end_with_process()
    pause = threading.Event()
    while clock.now() < until and not all(one.has_ended() for one in ending):
        pause.wait(0.002)
