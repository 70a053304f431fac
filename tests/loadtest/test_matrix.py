"""The matrix: a diagonal of it, run as a person runs it, and what it says of cells that went wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.__main__ import exit_status, main
from loadtest.matrix import Matrix, conclusions, instances_for, plan, summary
from loadtest.run import SaleRun
from loadtest.scenario import VISITS
from loadtest.verdict import Conclusion
from tests.loadtest.command import loadtest
from tests.loadtest.test_words import EXACT, OVERSOLD, run

#: Units for several turns, so that both instances sell some also where one of them starts late; and so many
#: carts that all is sold in the end. Those who find nothing left are answered quickly.
SIZE = ["--stock", "16", "--purchases", "12"]


@pytest.mark.parametrize(
    ("backend", "database", "framework", "visits"),
    [
        ("file", "sqlite", "django", ["buy"]),
        ("redis", "postgresql", "mixed", ["buy", "cart"]),
        # Nearly half of all carts hold one product: those are purchases, too.
        ("zookeeper", "mariadb", "flask", ["cart"]),
        ("database", "mariadb", "mixed", ["cart"]),
    ],
)
def test_a_diagonal_of_the_matrix(
    backend: str, database: str, framework: str, visits: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "matrix.html"
    where = ["--backend", backend, "--database", database, "--framework", framework]
    where += ["--visit", *visits] if len(visits) == 1 else []
    done = loadtest("--matrix", *where, *SIZE, "--json", "--report", str(report))
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert [(cell["visit"], cell["guard"], cell["outcome"]) for cell in cells] == [
        judged
        for visit in visits
        for judged in ((visit, "process", "oversold"), (visit, "distributed", "exact"))
    ]
    assert {cell["database"] for cell in cells} == {database}
    assert [cell["backend"] for cell in cells] == ["", backend] * len(visits)
    assert f"Lock in {backend}" in report.read_text()


def filled(*wrong: tuple[str, Conclusion]) -> Matrix:
    """A matrix of one row, in which everything is as expected but these cells."""
    matrix = plan([VISITS["buy"]], ["sqlite"], ["mixed"], ["file", "redis"])
    (row,) = matrix.rows
    exceptions = dict(wrong)

    def cell(backend: str, usual: SaleRun) -> SaleRun:
        return replace(usual, conclusion=exceptions.get(backend, Conclusion.SHOWN))

    matrix.controls[row] = cell("", run(OVERSOLD, [95]))
    for backend in matrix.backends:
        matrix.cells[row, backend] = cell(backend, run(EXACT, []))
    return matrix


def test_a_matrix_is_green_only_if_every_cell_is() -> None:
    assert exit_status(conclusions(filled())) == 0
    assert "Every cell went as expected: 2 sales with the distributed lock were exact" in summary(filled())


@pytest.mark.parametrize("cell", ["", "file", "redis"])
def test_one_inconclusive_cell_makes_the_matrix_inconclusive(cell: str) -> None:
    matrix = filled((cell, Conclusion.INCONCLUSIVE))
    assert exit_status(conclusions(matrix)) == 2
    assert len(re.findall(r"  \? \d", summary(matrix))) == 1
    assert "INCONCLUSIVE: at least one cell" in summary(matrix)


def test_a_cell_that_was_not_run_makes_the_matrix_inconclusive() -> None:
    matrix = filled()
    del matrix.cells[matrix.rows[0], "redis"]
    assert exit_status(conclusions(matrix)) == 2
    assert "NOT RUN" in summary(matrix)


def test_a_wrong_cell_outweighs_inconclusive_ones() -> None:
    matrix = filled(("file", Conclusion.INCONCLUSIVE), ("redis", Conclusion.WRONG))
    assert exit_status(conclusions(matrix)) == 1
    assert "WRONG: a shop that was locked sold units twice." in summary(matrix)
    assert re.search(r"^sqlite +mixed +\d+ +\d+ +\? \d+ +! \d+$", summary(matrix), re.MULTILINE)


def test_a_matrix_has_the_fewest_instances_that_serve_it() -> None:
    assert instances_for({"django"}) == ("django", "django")
    assert instances_for({"mixed"}) == ("django", "flask")
    assert instances_for({"flask", "mixed"}) == ("django", "flask", "flask")
    assert instances_for({"django", "flask", "mixed"}) == ("django", "django", "flask", "flask")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--matrix", "two-process"], "--matrix runs scenarios of its own"),
        (
            ["--matrix", "--database", "postgresql://elsewhere/shop"],
            "--matrix starts its own databases",
        ),
        (["--matrix", "--visit", "kill"], "--matrix shows the visits buy and cart"),
        (["--matrix", "--guard", "conditional"], "--matrix shows the distributed lock"),
        (["--database", "oracle"], "there is no database 'oracle'; there are: sqlite, postgresql, mariadb"),
        (["--guard", "for-update"], "SQLite has no SELECT … FOR UPDATE"),
        (["--visit", "kill", "--guard", "conditional"], "has its stock in Redis"),
    ],
)
def test_what_can_not_be_is_told_with_the_remedy(
    asked: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(asked) == 3
    assert said in capsys.readouterr().err
