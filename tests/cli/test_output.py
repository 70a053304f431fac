"""A person at a terminal gets a table of rich's where that is installed; all others get plain columns."""

from __future__ import annotations

import subprocess
import sys

import pytest

from distlock.cli.output import echo_table

TITLES, ROWS = ("NAME", "STATE"), [("[bold]product_1", "held")]
PLAIN = "NAME             STATE\n[bold]product_1  held\n"


@pytest.mark.parametrize(("terminal", "installed"), [(True, True), (True, False), (False, True)])
def test_a_terminal_gets_a_table_where_rich_is_installed(
    terminal: bool,
    installed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    if not installed:
        monkeypatch.setitem(sys.modules, "rich.box", None)
    echo_table(TITLES, ROWS)
    said = capsys.readouterr().out
    # What stands in brackets is no markup.
    assert "[bold]product_1" in said
    assert (said == PLAIN) == (not (terminal and installed))


def test_on_a_narrow_terminal_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    place = "reduce_stock (views.py:12)"
    echo_table(("NAME", "STATE", "CALLERS", "WHERE"), [("product_1", "held", "", place)])
    assert capsys.readouterr().out == f"product_1\n  state held, where {place}\n"


def test_letters_that_are_twice_as_wide_leave_the_columns_straight(
    capsys: pytest.CaptureFixture[str],
) -> None:
    echo_table(TITLES, [("\u65e5\u672c", "held"), ("e\u0301", "held")])
    assert capsys.readouterr().out.splitlines() == [
        "NAME  STATE",
        "\u65e5\u672c  held",
        "e\u0301     held",
    ]


@pytest.mark.parametrize("face", ["flask_distlock", "distlock.cli.main"])
def test_a_site_does_not_load_rich(face: str) -> None:
    code = f"import sys, {face}; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
