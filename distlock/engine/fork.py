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


class Forked(Protocol):
    def before_fork(self) -> None:
        """In the parent, before each fork. It returns soon, and never raises."""


_parents: weakref.WeakSet[Forked] = weakref.WeakSet()


def hear_of_forks(one: Forked) -> None:
    """Have `before_fork` of *one* called before each fork, for as long as it is in use."""
    _parents.add(one)


def _before_fork() -> None:
    for one in list(_parents):
        one.before_fork()


def _after_fork() -> None:
    for one in list(_known):
        one.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
