"""The end of the process: what it still holds is lost, and given back where no thread can work under it."""

from __future__ import annotations

import atexit
import sys
import threading
import types
import weakref
from typing import Any, Protocol

from distlock import clock

#: Seconds that the end of a process may be delayed by services that do not answer.
LONGEST = 3.0


class Ending(Protocol):
    def end_with_process(self) -> None:
        """Mark lost what is held, and begin to give back what no running thread holds. No I/O."""

    def has_ended(self) -> bool:
        """Whether all that is to be given back is."""


#: After the finalizers of others: those of queues, for example, send what is left in them.
LAST = -100

_known: weakref.WeakSet[Ending] = weakref.WeakSet()
_finalizer: Any = None


def end_with_process(one: Ending) -> None:
    """Have `Ending.end_with_process` of *one* called at the end of the process, if it is in use then."""
    _known.add(one)
    # What is registered last is called first: before what speaks to the services, which is in use by now.
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)
    _end_with_child()


def may_run(thread: int) -> bool:
    """Whether the thread with this identifier may still run, now that the interpreter ends in another one.

    Python has joined all but daemon threads before. Greenlets can't be told from those that have ended.
    """
    if thread == threading.get_ident():
        return False
    return thread in sys._current_frames() or not isinstance(threading.get_ident, types.BuiltinFunctionType)


def _end_with_child() -> None:
    """Children of multiprocessing that were forked run no exit hooks, but finalizers."""
    global _finalizer
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is None or process is None or process.parent_process() is None:
        return
    if _finalizer is None or not _finalizer.still_active():
        _finalizer = util.Finalize(None, _at_end_of_child, exitpriority=LAST)


def _at_end_of_child() -> None:
    # Elsewhere Python has ended them before; here it does so afterwards. An executor's wait to be told.
    if (executors := sys.modules.get("concurrent.futures.thread")) is not None:
        executors._python_exit()
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    _at_exit()


def _at_exit() -> None:
    until = clock.now() + LONGEST
    ending = list(_known)
    for one in ending:
        one.end_with_process()
    pause = threading.Event()
    while clock.now() < until and not all(one.has_ended() for one in ending):
        pause.wait(0.002)
