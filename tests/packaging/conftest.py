from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.script import SCRIPT


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which ``scripts/package`` has left the distributions."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
