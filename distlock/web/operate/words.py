"""How the pages write what they show."""

from __future__ import annotations

import itertools

from distlock.operate import Party

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def shown_seconds(seconds: float) -> str:
    """A duration for people: two units at most."""
    whole = round(seconds)
    for (unit, size), (smaller, below) in itertools.pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def shown_since(party: Party | None) -> str:
    """For how long *party* has held or waited; "" if that is not known."""
    return "" if party is None or not party.since else shown_seconds(party.seconds())


def printable(text: str) -> str:
    """*text*, on one line: what a log is told of a person holds no line break."""
    return "".join(character if character.isprintable() else "?" for character in text)
