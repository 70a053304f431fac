"""The page of races: the code that goes wrong goes wrong, and the code that does not does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.databases import Databases
from tests.docs.races_site import PAGE, examples
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_code_of_each_example_goes_wrong_and_the_second_does_not(
    databases: Databases, redis_server: RedisServer, tmp_path: Path
) -> None:
    words = [databases("postgresql", "races"), redis_server.url, str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.races_site", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    agreed = dict(json.loads(line) for line in done.stdout.splitlines())
    assert agreed == {heading: [False, True] for heading in examples(PAGE.read_text("utf-8"))}
    assert len(agreed) == 8
