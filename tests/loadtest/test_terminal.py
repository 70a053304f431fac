"""What a person sees: the lock service and the database first, and nothing wider than a plain terminal."""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import replace

import pytest

from demo_shop.configuration import Configuration
from demo_shop.guards import GUARDS
from loadtest import stories
from loadtest.matrix import Matrix, MatrixProgress, plan
from loadtest.matrix import summary as matrix_summary
from loadtest.museum.__main__ import row as museum_row
from loadtest.museum.scenes import TRIALS
from loadtest.open_shop import invitation
from loadtest.options import parse
from loadtest.report import terminal
from loadtest.report.terminal import SaleProgress, summary
from loadtest.run import SaleRun
from loadtest.scenario import FRAMEWORKS, VISITS, BuyerCrowd, Scenario, story
from loadtest.servers.databases import DATABASES
from loadtest.servers.lock_services import BACKENDS, TOPOLOGIES
from loadtest.verdict import Conclusion, Shelf
from tests.loadtest.test_words import OVERSOLD, run

SCENARIOS = [
    *stories.transactions_scenarios(),
    *(one for framework in FRAMEWORKS for guard in GUARDS for one in story(framework, guard)),
]


class Terminal(io.StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True


def too_wide(written: str) -> list[str]:
    lines = re.split(r"\n|\r\x1b\[K", written)
    return [line for line in lines if len(line) > 80]


def worst(scenario: Scenario) -> SaleRun:
    """A run with the widest figures, of which much is to be said."""
    figures = replace(
        OVERSOLD,
        shelves={1: Shelf(10000, -12345, 22345)},
        answers={200: 22345, 500: 100, 0: 17},
        lost_orders=1234,
        sold_by={"django-1": 22345},
        instances=("django-1", "flask-2"),
    )
    one = replace(run(figures, [95]), scenario=scenario, duration=119.9)
    return replace(one, conclusion=Conclusion.INCONCLUSIVE)


def test_the_lock_service_and_the_database_come_first() -> None:
    out = Terminal()
    SaleProgress(out).open(BuyerCrowd(), VISITS["buy"], Configuration(), "redis", "postgresql")
    first = out.getvalue().split("\n")[0]
    assert "Lock service: redis. Database: postgresql." in first


def test_a_server_of_the_user_s_own_is_named_without_its_password() -> None:
    told = terminal.where("file", "mysql://shop:secret@db/shop")
    assert "Database: mariadb, a server of yours." in told
    assert "secret" not in told


@pytest.mark.parametrize("live", [True, False])
def test_the_progress_of_every_scenario_fits(live: bool) -> None:
    out = Terminal() if live else io.StringIO()
    progress = SaleProgress(out)
    for backend, database, visit in itertools.product((*BACKENDS, *TOPOLOGIES), DATABASES, VISITS.values()):
        progress.open(BuyerCrowd(), visit, Configuration(), backend, database)
    for scenario in SCENARIOS:
        one = worst(scenario)
        progress.begin(6, 6, scenario, Configuration(stock=10000))
        progress.selling(one.ledger)
        progress.end(one)
    assert too_wide(out.getvalue()) == []


def test_the_summary_of_every_scenario_fits() -> None:
    assert too_wide(summary([worst(scenario) for scenario in SCENARIOS])) == []


def test_the_matrix_fits_when_every_cell_is_odd() -> None:
    matrix: Matrix = plan([VISITS["buy"], VISITS["cart"]], DATABASES, FRAMEWORKS, list(BACKENDS))
    out = Terminal()
    progress = MatrixProgress(out)
    progress.open(matrix, BuyerCrowd())
    odd = replace(worst(SCENARIOS[0]), figures=replace(OVERSOLD, shelves={1: Shelf(100, 0, 500)}))
    for row in matrix.rows:
        matrix.controls[row] = odd
        progress.begin(row, None)
        progress.selling(odd.ledger)
        progress.end(odd)
        for backend in matrix.backends:
            matrix.cells[row, backend] = replace(odd, conclusion=Conclusion.WRONG)
    assert too_wide(out.getvalue()) == []
    assert too_wide(matrix_summary(matrix)) == []


def test_the_museum_fits() -> None:
    for trial in TRIALS:
        what = f"{trial.exhibit}: {trial.scene.__name__.replace('_', ' ')}"
        assert too_wide(museum_row(what, f"45 {trial.unit}", "0")) == []


@pytest.mark.parametrize("visit", VISITS.values(), ids=lambda visit: visit.slug)
def test_the_invitation_fits(visit) -> None:
    names, url = ("django-1", "flask-2"), "http://127.0.0.1:65535"
    for scenario in SCENARIOS:
        assert too_wide(invitation(scenario, visit, names, url, BuyerCrowd())) == []


def test_the_help_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        parse(["--help"])
    assert too_wide(capsys.readouterr().out) == []
