"""The script of Start here prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.web.quickstart import code_blocks

PAGE = (Path(__file__).resolve().parents[2] / "docs/start/script.md").read_text("utf-8")


def test_the_script_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    seen: dict[str, object] = {}
    first, second = code_blocks(PAGE, "python")
    exec(compile(first, "docs/start/script.md", "exec"), seen)
    assert capsys.readouterr().out == code_blocks(PAGE, "text")[0]
    exec(compile(second, "docs/start/script.md", "exec"), seen)
    assert capsys.readouterr().out == "restocked\n"
