"""Signals about locks. A receiver that raises is logged and hurts nobody.

The first four are about guards: decorators and rules. All of their receivers get

* ``sender``: the function, or the class of the view, as the modules of the site name it;
* ``where``: its module and name, as text;
* ``alias``: which lock service; ``names``: what is locked;
* ``request``: what the view, or the function, was called with; None if with none.

Receivers are plain functions and run where the guard runs, the first of them while the lock is held: they
should return soon.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.dispatch import Signal


class LockSignal(Signal):
    """A signal that takes no async receivers: a guard in the event loop could not wait for them."""

    def connect(self, receiver: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if iscoroutinefunction(receiver):
            raise TypeError(
                f"{getattr(receiver, '__qualname__', receiver)} is async, and the signals of locks call "
                "plain functions: write 'def', and start a task in it where you have to."
            )
        super().connect(receiver, *args, **kwargs)


#: Also ``grant``, and ``waited``, seconds.
lock_acquired = LockSignal()

#: It has to wait. Also ``holder``, a `distlock.operate.Party`: what is known of the holder without asking;
#: None: nothing. Where the lock is a row it is not sent.
lock_contended = LockSignal()

#: The lock was not acquired. Also ``error``, a `LockError` that says why, and ``waited``, seconds.
lock_refused = LockSignal()

#: After COMMIT or ROLLBACK. Also ``grant``, and ``held``, seconds.
lock_released = LockSignal()

#: A lock was lost while it was held: by a guard or by anybody else. ``sender`` is the class of the client;
#: ``alias``, ``names``, ``grant``, and ``why``, as text. Sent as soon as it is known, from another thread.
lock_lost = LockSignal()

#: The release of a held lock was requested, of a guard or any other holder: see `Locks.request_release`.
#: ``sender`` is the class of the client; ``alias``, ``names``, ``grant``. Sent from a thread of its own.
lock_release_requested = LockSignal()

#: A fence had fallen behind the database's, for the lock service has lost data, and was lifted above it.
#: ``sender`` is the class of the client; ``alias``, ``names``, ``grant``, and ``was``, its fence before. Sent
#: inside the fenced transaction.
fence_lifted = LockSignal()
