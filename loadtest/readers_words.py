"""The story of readers in figures and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from demo_shop.gateway import LIMIT
from loadtest.readers import CONTROLS, SHARED, TORN, Reading
from loadtest.scenario import Outcome
from loadtest.terminal import MARKS, aligned, fold
from loadtest.verdict import Conclusion

#: The matrix: by framework and lock service.
Cells = dict[tuple[str, str], Sequence[Reading]]
HEADINGS = ("scenario", "answered", "wrong", "at once", "must be", "is", "")


def row(reading: Reading) -> tuple[str, ...]:
    """One of the table, under `HEADINGS`."""
    seen, scenario = reading.seen, reading.scenario
    figures = (str(seen.answered), str(seen.wrong), str(seen.together))
    return scenario.slug, *figures, scenario.must_be, reading.outcome, MARKS[reading.conclusion]


def what_happened(reading: Reading) -> str:
    seen = reading.seen
    if reading.scenario.slug in (TORN, SHARED):
        begin = (
            f"{seen.answered} reports were read while {seen.sold} units were sold, "
            f"up to {seen.together} at once."
        )
        if seen.wrong:
            return f"{begin} {seen.wrong} of them added up to a shop that never was."
        return f"{begin} Stock and orders added up to {seen.initial} in each."
    begin = f"{seen.answered} payments were sent to a gateway that takes {LIMIT} at a time."
    if seen.wrong:
        return f"{begin} Up to {seen.together} were there at once, and it refused {seen.wrong}."
    return f"{begin} Never more than {seen.together} were there at once, and it refused none."


def in_all(readings: Sequence[Reading]) -> str:
    conclusions = [reading.conclusion for reading in readings]
    if Conclusion.WRONG in conclusions:
        return "WRONG: a report was torn, or a payment refused, in spite of the guard."
    if Conclusion.INCONCLUSIVE in conclusions:
        return "INCONCLUSIVE: at least one scenario did not go as expected, so nothing is proven."
    return (
        "Every scenario went as expected: what went wrong without a guard went right with it, with many "
        "inside at once."
    )


def why_not(reading: Reading) -> tuple[str, ...]:
    """The reasons where a scenario did not show what it must."""
    if reading.conclusion is Conclusion.SHOWN:
        return ()
    if reading.scenario.must_be is Outcome.BROKEN and reading.outcome is not Outcome.BROKEN:
        return (*reading.doubts, "Nothing went wrong without the guard, so with it nothing is proven.")
    return reading.doubts or (what_happened(reading),)


def summary(readings: Sequence[Reading]) -> str:
    told = [fold(f"{reading.scenario.title}: {what_happened(reading)}") for reading in readings]
    table = aligned([HEADINGS, *map(row, readings)], "<>>><<<")
    odd = [f"  {reading.scenario.title}: {reason}" for reading in readings for reason in why_not(reading)]
    return "\n".join([*told, "", table, "", fold(in_all(readings)), *(fold(line, indent=4) for line in odd)])


def in_every_cell(cells: Cells) -> str:
    """Of the matrix."""
    return in_all([reading for done in cells.values() for reading in done])


def matrix_summary(cells: Cells) -> str:
    """A row for each framework, and what went wrong without its guard and with it."""
    backends = list(dict.fromkeys(backend for _, backend in cells))
    frameworks = dict.fromkeys(framework for framework, _ in cells)
    rows = [(one, *(_cell(cells[one, backend]) for backend in backends)) for one in frameworks]
    odd = [
        f"  {framework}, {backend}, {reading.scenario.title}: {reason}"
        for (framework, backend), done in cells.items()
        for reading in done
        for reason in why_not(reading)
    ]
    said = "Torn reports without the guard and with it; refused payments without it and with it:"
    told = [
        said,
        "",
        aligned([("framework", *backends), *rows], "<" * (1 + len(backends))),
        "",
        fold(in_every_cell(cells)),
    ]
    return "\n".join([*told, *(fold(line, indent=4) for line in odd)])


def _cell(readings: Sequence[Reading]) -> str:
    wrong = {reading.scenario.slug: str(reading.seen.wrong) for reading in readings}
    pairs = [f"{wrong.get(control, '-')}, {wrong.get(slug, '-')}" for slug, control in CONTROLS.items()]
    shown = all(reading.conclusion is Conclusion.SHOWN for reading in readings)
    return "; ".join(pairs) + ("" if shown else " ?")


def as_json(readings: Sequence[Reading], backend: str, database: str) -> dict[str, object]:
    return {
        "summary": in_all(readings),
        "scenarios": [one(reading, backend, database) for reading in readings],
    }


def one(reading: Reading, backend: str, database: str) -> dict[str, object]:
    return {
        "scenario": reading.scenario.slug,
        "title": reading.scenario.title,
        "backend": backend,
        "database": database,
        "must_be": reading.scenario.must_be,
        "outcome": reading.outcome,
        "conclusion": reading.conclusion,
        "doubts": reading.doubts,
        "figures": asdict(reading.seen),
    }
