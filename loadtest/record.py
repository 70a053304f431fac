"""The results as JSON, for a program to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from loadtest import words
from loadtest.run import Run


def as_json(runs: Sequence[Run]) -> dict[str, object]:
    return {"summary": words.in_all(runs), "scenarios": [one(run) for run in runs]}


def one(run: Run) -> dict[str, object]:
    return {
        "scenario": run.scenario.slug,
        "title": run.scenario.title,
        "guard": run.scenario.guard,
        "backend": run.backend,
        "must_be": run.scenario.must_be,
        "outcome": run.verdict.outcome,
        "conclusion": run.conclusion,
        "evidence": run.verdict.evidence,
        "doubts": run.verdict.doubts,
        "figures": asdict(run.figures),
        "seconds": round(run.duration, 3),
        "answer_ms": spread(words.latencies(run)),
        "lock_wait_ms": spread(words.waits(run)),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": round(words.percentile(values, percent), 1) for percent in (50, 95, 99)}
