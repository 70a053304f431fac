"""Forked children: what the parent holds stays the parent's."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forgetful(Protocol):
    def after_fork(self) -> None:
        """In the child: begin anew, without touching what the parent still uses."""


_known: weakref.WeakSet[Forgetful] = weakref.WeakSet()


def forget_in_children(one: Forgetful) -> None:
    """Have `after_fork` of *one* called in every forked child, for as long as it is in use."""
    _known.add(one)


def _after_fork() -> None:
    for one in list(_known):
        one.after_fork()


os.register_at_fork(after_in_child=_after_fork)
