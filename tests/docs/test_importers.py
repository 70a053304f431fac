"""What the page on importers says is done by processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.web.quickstart import code_blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/importers.md").read_text("utf-8")
FILES = ["products.csv", "orders.csv", "prices.csv"]


def test_the_last_importer_lets_the_night_be_published(tmp_path: Path) -> None:
    (code,) = code_blocks(PAGE, "python")
    code = code.replace("redis://localhost:6379/0", f"file://{tmp_path}/locks").replace("3600)\n", "60)\n")
    (tmp_path / "imports.py").write_text(code)

    def start(call: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", f"import imports; imports.{call}"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )

    def output(process: subprocess.Popen[str]) -> str:
        with process:
            said = process.communicate(timeout=60)[0]
        assert process.returncode == 0
        return said

    output(start(f"begin('tonight', {FILES})"))
    publisher = start("publish('tonight')")
    # A queue delivers one of them twice.
    for file in [*FILES[:2], FILES[0]]:
        assert output(start(f"import_file('tonight', {file!r})")) == f"imported {file}\n"
    assert publisher.poll() is None
    output(start(f"import_file('tonight', {FILES[2]!r})"))
    assert output(publisher) == "published tonight\n"
    assert output(start("publish('tonight')")) == "published tonight\n"
