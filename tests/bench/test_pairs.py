"""The bench of pairs runs, for each service that it knows."""

from __future__ import annotations

import re
import subprocess
import sys

LITTLE = ["--rounds", "2", "--pairs", "3", "--threads", "2", "--seconds", "0.05"]


def test_it_prints_each_number_beside_the_peers() -> None:
    command = [sys.executable, "-m", "bench.pairs", *LITTLE]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["file", "file", "redis", "redis"]
    for line in lines:
        assert len(line) <= 80
        mine, theirs, ratio = re.findall(r"([\d.]+) (?:us|/s|x)", line)[-3:]
        assert min(float(mine), float(theirs), float(ratio)) > 0


def test_an_unknown_service_is_told() -> None:
    command = [sys.executable, "-m", "bench.pairs", "radius"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "radius is none of file, redis" in ran.stderr
