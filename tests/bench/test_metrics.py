"""The bench of metrics runs, and prints what they cost beside what an acquisition costs without."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["--processes"], ["prometheus, processes", "opentelemetry"]),
        (["--spans"], ["prometheus", "opentelemetry, spans"]),
    ],
)
def test_it_prints_each_kind_beside_none(words: list[str], kinds: list[str]) -> None:
    command = [sys.executable, "-m", "bench.metrics", "--rounds", "2", "--pairs", "3", *words]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    none, prometheus, opentelemetry = ran.stdout.splitlines()
    assert re.fullmatch(r"none +[\d.]+ us", none)
    assert re.fullmatch(rf"{kinds[0]} +[\d.]+ us +-?[\d.]+ us more \(target: 30\)", prometheus)
    assert re.fullmatch(rf"{kinds[1]} +[\d.]+ us +-?[\d.]+ us more", opentelemetry)
