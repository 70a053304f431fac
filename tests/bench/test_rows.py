"""The bench by its shape, not by its speed: each row gives its tables, and no broken lock gets through."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from bench import rows
from bench.__main__ import main
from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.crew import BenchError
from bench.measures import Figures
from bench.oracle import Oracle, Witness
from bench.report import as_json, markdown
from bench.services import Services
from bench.table import Table, Target

#: Peers that the tests have anyway.
LITTLE = ["--quick", "--rounds", "1", "--seconds", "0.05", "--pairs", "3", "--beside", "redis-py"]


def test_a_run_says_what_was_measured_beside_what(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main([*LITTLE, "--json", "--to", str(tmp_path), "open", "engine"])
    told = json.loads(capsys.readouterr().out)
    assert told["about"]["versions"]
    table, engine = told["tables"]
    assert set(engine["rounds"]["distlock, alone"][0]) == {"pair", "pass"}
    assert not table["violations"]
    assert {name: len(rounds) for name, rounds in table["rounds"].items()} == {"distlock": 1, "redis-py": 1}
    (figures,) = table["rounds"]["distlock"]
    assert figures["rate"] > 0
    assert figures["commands"] > figures["requests"] > 0
    assert 0.5 < figures["jain"] <= 1
    assert [target["measure"] for target in table["targets"]] == ["served"]
    assert told == json.loads((tmp_path / "bench.json").read_text("utf-8"))
    page = (tmp_path / "bench.md").read_text("utf-8")
    assert "\n## Redis, 2 processes" in page
    assert "(01-open.svg)" in page
    texts = [text.text for text in ElementTree.parse(tmp_path / "01-open.svg").iter() if text.text]
    assert {"distlock", "redis-py"} < set(texts)
    met = [target["met"] for each in told["tables"] for target in each["targets"]]
    assert len(met) == 3
    assert code == (0 if all(met) else 1)


def test_a_lock_that_does_not_exclude_makes_the_row_void() -> None:
    with Services() as services:
        bench = Bench(services, rounds=1, seconds=0.2)
        with bench.crews(["distlock", "no lock"], 2, "redis") as crews:
            entries = [Entry(crew, Plan(threads=2, seconds=0.2, body=0.001)) for crew in crews]
            table = bench.contest("planted", "A planted lock", entries, "redis")
    assert table.violations
    assert all(violation.startswith("no lock: ") for violation in table.violations)
    assert table.failed
    assert "- VOID: no lock: " in markdown(table)


def test_a_peer_that_breaks_down_is_told_and_costs_nobody_else_the_row() -> None:
    def breaks_down() -> Figures:
        raise BenchError("peer: Traceback\n  ...\nTimeoutError: too late")

    with Services() as services:
        bench, lost = Bench(services, rounds=2), list[str]()
        rounds = bench.in_turns({"distlock": lambda: {"rate": 1.0}, "peer": breaks_down}, lost=lost)
        assert rounds == {"distlock": [{"rate": 1.0}] * 2}
        assert lost == ["peer: TimeoutError: too late"]
        with pytest.raises(BenchError):
            bench.in_turns({"distlock": breaks_down}, lost=[])
    assert "- NOT MEASURED: peer: TimeoutError" in markdown(
        Table("row", "A title", rounds, ["rate"], lost=lost)
    )


@contextmanager
def granted(number: int) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(fence=SimpleNamespace(number=number))


def test_a_fence_that_does_not_grow_is_a_violation(tmp_path: Path) -> None:
    witness = Witness(Oracle.make(tmp_path).cells, 1)
    for number in (1, 2, 5):
        witness.pass_through(granted(number), 0.0)
    assert witness.violations == 0
    witness.pass_through(granted(5), 0.0)
    assert witness.violations == 1
    assert witness.entered == 4


def test_a_target_is_judged_by_the_median_of_the_ratios_of_its_rounds() -> None:
    rounds = {
        "distlock": [{"rate": 30.0}, {"rate": 10.0}, {"rate": 10.0}],
        "peer": [{"rate": 10.0}, {"rate": 1.0}, {"rate": 100.0}],
    }
    targets = [
        Target("rate", 2.0, peer="peer", least=True),
        Target("rate", 4.0, peer="peer", least=True),
        Target("rate", 4.0, peer="peer"),
        Target("rate", 1.0, peer="left out"),
    ]
    table = Table("row", "A title", rounds, ["rate"], targets)
    assert [(result.median, result.met) for result in table.results()] == [
        (3.0, True),
        (3.0, False),
        (3.0, True),
    ]
    assert table.failed
    assert "3.00 x peer (0.10 to 10.00), target >= 4: MISSED" in markdown(table)
    assert "| distlock | 10 | 10, 30 |" in markdown(table)
    assert json.loads(as_json([table], {}))["tables"][0]["targets"][1]["met"] is False


def test_an_unknown_row_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["betwixt"])
    assert ended.value.code == 2
    assert "betwixt is none of uncontended, " in capsys.readouterr().err


def test_each_file_of_the_rows_is_one() -> None:
    files = {path.stem for path in Path(rows.__file__).parent.glob("*.py")} - {"__init__"}
    assert {measure.__module__.rpartition(".")[2] for measure in rows.ROWS.values()} == files
