"""The scenes that are searched, by mode: small ones in each run of the tests, and large ones by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.histories.process import Family, Scene
from tests.histories.rules import FAULTS
from tests.histories.services import FAMILIES


class Mode(NamedTuple):
    """What callers do. Each scene names the callers of each process: see `tests.histories.process.WRITES`."""

    small: tuple[tuple[str, ...], ...]
    large: tuple[tuple[str, ...], ...]
    #: Whether the lock service needs readers and permits.
    shared: bool = False
    on_push: bool = False


MODES = {
    "lock": Mode((("W", "W"), ("WW",)), (("WW", "W"), ("W", "W", "W"), ("WW", "WW"))),
    "time-outs": Mode((("w", "W"), ("Ww",)), (("Ww", "W"),)),
    "read and write": Mode((("R", "W"), ("RW",)), (("RW", "W"), ("R", "R", "W"), ("RW", "R")), shared=True),
    "downgrade": Mode((("D", "R"), ("D", "W")), (("DR", "W"), ("D", "R", "W")), shared=True),
    "permits": Mode((("1", "2"), ("12",)), (("12", "1"), ("1", "1", "2")), shared=True),
    "on push": Mode((("W", "W"),), (("WW", "W"), ("W", "W", "W")), on_push=True),
}


def of(family: Family, mode: str, large: bool = False) -> Iterator[Scene]:
    """Return the scenes of *mode* that a lock service of *family* can play."""
    one = MODES[mode]
    if (one.shared and not family.shared) or (one.on_push and not family.hands_off):
        return
    if not large:
        # Threads in the first scene, and tasks in the second.
        for number, callers in enumerate(one.small):
            yield Scene(callers, tasks=number > 0, on_push=one.on_push)
        return
    for callers in one.large:
        yield Scene(callers, on_push=one.on_push)
        if not one.on_push:
            yield Scene(callers, tasks=True)


def kinds(family: Family) -> tuple[str, ...]:
    """Return the faults that a lock service of *family* can have."""
    lacking = set()
    if not family.late:
        lacking |= {"late request", "late interrupt"}
    if not family.posts:
        lacking.add("lost release")
    if not family.sessions:
        lacking.add("session")
    if not family.fair:
        lacking |= {"lost push", "broken connection"}
    return tuple(kind for kind in FAULTS if kind not in lacking)


def all_modes() -> list[tuple[str, str]]:
    """Return each family with each mode that it can play."""
    return [(name, mode) for name, family in FAMILIES.items() for mode in MODES if [*of(family, mode)]]
