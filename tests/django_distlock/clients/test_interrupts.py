"""A signal handler raises at any moment of a wait that gives pooled connections back: nothing stays held."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

import distlock
from distlock.web import guard
from django_distlock.clients.idle_connections import RecordingAcquirer
from tests.core import test_interrupts as core


def _with(locks: distlock.Locks) -> None:
    with distlock.Locks(RecordingAcquirer(locks.acquirer), locks.timeout).lock("a"):
        pass


class _Transactions:
    def refuse_open(self, names: Any, nested: bool) -> None: ...

    def begin(self, grant: Any, fenced_in: Any, left: Any) -> Any:
        return nullcontext(False)


def _guarded(locks: distlock.Locks) -> None:
    site = distlock.Locks(RecordingAcquirer(locks.acquirer), locks.timeout)
    guard.run(site, ["a"], lambda: None, _Transactions())


@pytest.mark.parametrize("scene", [_with, _guarded])
def test_a_caller_that_is_interrupted_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, scene: core.Scene
) -> None:
    monkeypatch.setitem(core.SCENES, "in Django", scene)
    core.play("in Django", f"memory://interrupted-in-django{scene.__name__}", every=1)
