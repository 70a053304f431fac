"""The results as JSON, for a program to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from loadtest import rush_words, words
from loadtest.matrix import Matrix
from loadtest.matrix_terminal import in_all
from loadtest.run import Run
from loadtest.verdict import Figures


def as_json(runs: Sequence[Run]) -> dict[str, object]:
    return {"summary": words.in_all(runs), "scenarios": [one(run) for run in runs]}


def matrix_as_json(matrix: Matrix) -> dict[str, object]:
    return {"summary": in_all(matrix), "cells": [one(run) for _, _, run in matrix]}


def rush_as_json(runs: Sequence[Run]) -> dict[str, object]:
    paces = {run.scenario.slug: asdict(rush_words.pace(run)) for run in rush_words.compared(runs)}
    return {
        "summary": rush_words.in_all(runs),
        "scenarios": [one(run) | {"pace": paces.get(run.scenario.slug)} for run in runs],
    }


def one(run: Run) -> dict[str, object]:
    return {
        "scenario": run.scenario.slug,
        "title": run.scenario.title,
        "guard": run.scenario.guard,
        "visit": run.visit.slug,
        "backend": run.backend,
        "database": run.database,
        "must_be": run.scenario.must_be,
        "outcome": run.verdict.outcome,
        "conclusion": run.conclusion,
        "evidence": run.verdict.evidence,
        "doubts": run.verdict.doubts,
        "figures": asdict(run.figures) | totals(run.figures),
        "seconds": round(run.duration, 3),
        "answer_ms": spread(words.latencies(run)),
        "lock_wait_ms": spread(words.waits(run)),
    }


def totals(figures: Figures) -> dict[str, int]:
    return {"initial": figures.initial, "final": figures.final, "sold": figures.sold}


def spread(values: Sequence[float]) -> dict[str, float]:
    return {f"p{percent}": round(words.percentile(values, percent), 1) for percent in (50, 95, 99)}
