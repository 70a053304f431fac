"""How long a run takes, before it begins and while it goes on."""

from __future__ import annotations

from collections.abc import Sequence

from bench.bench import QUICK, WHOLE, Bench
from bench.rows import LASTS


class Progress:
    """*rows*: those of the run."""

    def __init__(self, rows: Sequence[str], bench: Bench) -> None:
        self._rows = rows
        usual = QUICK if bench.quick else WHOLE
        longer = bench.rounds * bench.seconds / (usual.rounds * usual.seconds)
        self._expected = [LASTS[row].quick if bench.quick else LASTS[row].whole for row in rows]
        self._expected = [seconds * longer for seconds in self._expected]
        self._spent: list[float] = []

    def before(self) -> str:
        return f"{len(self._rows)} rows, {shown(sum(self._expected))} on two cores with nothing else to do."

    def at(self, number: int) -> str:
        """Where the run is when row *number* begins."""
        row, left = self._rows[number], sum(self._expected[number:]) * self.slowness
        lasts = self._expected[number] * self.slowness
        return f"[{number + 1}/{len(self._rows)}] {row}: {shown(lasts)}. Left in all: {shown(left)}."

    def took(self, number: int, seconds: float) -> None:
        assert number == len(self._spent)
        self._spent.append(seconds)

    @property
    def slowness(self) -> float:
        """How much longer the rows have taken than they should have; 1 before the first has ended."""
        expected = sum(self._expected[: len(self._spent)])
        return sum(self._spent) / expected if expected else 1.0


def shown(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {seconds:.0f} s"
