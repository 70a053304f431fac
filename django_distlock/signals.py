"""Signals about locks. If a receiver raises, the exception is logged and has no other effect.

The first four signals below are about guards: decorators and rules. Their receivers get

* ``sender``: the function, or the class of the view, as it can be imported;
* ``where``: its module and name, as text;
* ``alias``: the lock service; ``names``: the names to lock;
* ``request``: the request that the view or the function was called with, or None.

Receivers are plain functions. Those of the first four signals run in the guard's thread, and should return
soon: the receivers of ``lock_acquired`` run while the lock is held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.dispatch import Signal


class LockSignal(Signal):
    """A signal that refuses async receivers, because a guard in the event loop could not wait for them."""

    def connect(self, receiver: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if iscoroutinefunction(receiver):
            raise TypeError(
                f"{getattr(receiver, '__qualname__', receiver)} is async, and the signals of locks call "
                "plain functions: write 'def', and start a task in it where you have to."
            )
        super().connect(receiver, *args, **kwargs)


#: The lock was acquired. Also sends ``grant``, and ``waited``, seconds.
lock_acquired = LockSignal()

#: The lock is taken, and the guard waits for it. Also sends ``holder``, a `distlock.operate.Party`, or None
#: if this process does not know the holder. If the lock is a row, a wait in the database sends nothing.
lock_contended = LockSignal()

#: The lock was not acquired. Also sends ``error``, a `LockError` that says why, and ``waited``, seconds.
lock_refused = LockSignal()

#: The lock was released, after COMMIT or ROLLBACK. Also sends ``grant``, and ``held``, seconds.
lock_released = LockSignal()

#: A held lock was lost, a guard's or any other. ``sender`` is the class of the client. Also sends ``alias``,
#: ``names``, ``grant``, and ``why``, as text. Sent as soon as the loss is known, mostly from another thread.
lock_lost = LockSignal()

#: The release of a held lock was requested, a guard's or any other: see `Locks.request_release`. ``sender``
#: is the class of the client. Also sends ``alias``, ``names``, ``grant``. Sent from a thread of its own.
lock_release_requested = LockSignal()

#: The fence of a grant was raised, because the database had seen a larger one: the lock service has lost its
#: data, or its clock was set back. ``sender`` is the class of the client. Also sends ``alias``, ``names``,
#: ``grant``, and ``was``, the fence before. Sent inside the fenced transaction.
fence_lifted = LockSignal()
