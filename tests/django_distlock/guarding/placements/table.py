"""The places where a guard may stand on a view, each with what has to happen there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlock.web.guard_options import ALL_BUT_GET, GuardOptions
from django_distlock import distributed_lock
from django_distlock.guarding.views import guard_view
from tests.django_distlock.watching import Events

#: What a guarded view goes through without and with ATOMIC_REQUESTS.
LOCKED = ["names", "lock", "view", "release"]
ATOMIC = ["names", "lock", "BEGIN", "view", "COMMIT", "release"]

#: Makes the view; `Events` is told what happens.
Make = Callable[[Events], Any]


@dataclass(frozen=True)
class Placement:
    make: Make
    #: The events without and with ATOMIC_REQUESTS, or what the refusal says.
    autocommit: list[str] | str
    atomic: list[str] | str

    @property
    def name(self) -> str:
        return self.make.__name__


PLACEMENTS: list[Placement] = []


def placement(
    autocommit: list[str] | str = LOCKED, atomic: list[str] | str = ATOMIC
) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        PLACEMENTS.append(Placement(make, autocommit, atomic))
        return make

    return add


def lock(events: Events, **options: Any) -> Any:
    """The decorator of every place: a callable and a template for names."""
    return distributed_lock(events.name, "shelf_<int:id>", **options)


def rule(events: Events, view: Any) -> Any:
    """What a rule does with *view*."""
    return guard_view(view, GuardOptions([events.name, "shelf_<int:id>"]), methods=ALL_BUT_GET)
