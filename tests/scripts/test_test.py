"""``scripts/test``: what it gives to pytest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/test"


def test_all_goes_with_what_is_named(tmp_path: Path) -> None:
    shutil.copy(SCRIPT, tmp_path / "test")
    (tmp_path / "setup.sh").write_text("python=echo\nsetup() { :; }\n")
    asked = [tmp_path / "test", "--all", "tests/topologies/sentinel", "-x"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "-m pytest tests/topologies/sentinel -x\n"
