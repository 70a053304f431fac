"""The command, run as a person runs it, with fewer buyers. Locust stays in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from loadtest.stack import ROOT

SMALL = ["--users", "20", "--purchases", "5", "--stock", "30"]


def loadtest(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadtest", *SMALL, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
