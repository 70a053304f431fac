"""Backends that are dropped without a close: by their last user, or by a fork, whose child has its own."""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from distlock.backends.file.presence import Presence
from distlock.reentrance import call


class _Forked(Protocol):
    def after_fork(self) -> None: ...


def close(presence: Presence) -> None:
    """In a thread of its own: the garbage collector comes anywhere, also where our locks are held."""
    with suppress(RuntimeError):
        threading.Thread(target=call, args=(presence.close,), name="distlock-file-close", daemon=True).start()


#: A child that uses its parent's backend without a word must not pass for its parent.
_backends: weakref.WeakSet[_Forked] = weakref.WeakSet()


def forget_in_children(backend: _Forked) -> None:
    """Have the `after_fork` of *backend* called in children."""
    _backends.add(backend)


def _forget_after_fork() -> None:
    for backend in list(_backends):
        backend.after_fork()


os.register_at_fork(after_in_child=_forget_after_fork)
