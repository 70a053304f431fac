"""The bench by its shape, not by its speed: each row gives its tables, and no broken lock gets through."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from bench import rows
from bench.__main__ import main
from bench.bench import Bench, Contestant
from bench.contest import ContestPlan, Oracle, Witness
from bench.crew import BenchError
from bench.figures import Figures, Table, Target
from bench.report import WHY, as_json, markdown, summary
from bench.rows import uncontended
from bench.services import Services

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
    assert page.index("targets are met.") < page.index("\n## Redis, 2 processes")
    assert "(01-open.svg)" in page
    texts = [text.text for text in ElementTree.parse(tmp_path / "01-open.svg").iter() if text.text]
    assert {"distlock", "redis-py"} < set(texts)
    met = [target["met"] for each in told["tables"] for target in each["targets"]]
    assert len(met) == 3
    assert code == (0 if all(met) else 1)


def test_a_lock_that_does_not_exclude_makes_the_row_void() -> None:
    with Services() as services:
        bench = Bench(services, rounds=1, seconds=0.2)
        with bench.crews(["distlock", "a bare queue", "no lock"], 2, "redis") as crews:
            entries = [Contestant(crew, ContestPlan(threads=2, seconds=0.2, body=0.001)) for crew in crews]
            table = bench.contest("planted", "A planted lock", entries, "redis")
    assert table.violations
    assert all(violation.startswith("no lock: ") for violation in table.violations)
    assert table.failed
    assert "- VOID: no lock: " in markdown(table)


def test_a_lock_of_ours_that_gives_no_fence_makes_the_row_void() -> None:
    with Services() as services:
        bench = Bench(services, rounds=1, seconds=0.05)
        with bench.crews(["redis-py"], 1, "redis") as (crew,):
            crew.kind = "distlock"
            table = bench.contest(
                "planted", "A planted lock", [Contestant(crew, ContestPlan(seconds=0.05))], "redis"
            )
    assert "distlock: it gave no fence, so none was seen to grow." in table.violations


class Open:
    """A lock for tasks that keeps nobody out."""

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


def test_a_lock_for_tasks_that_does_not_exclude_makes_the_row_void(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uncontended, "distlock", SimpleNamespace(connect=lambda *_, **__: Open()))
    with Services() as services:
        alone, crowd = uncontended.measure_asyncio(Bench(services, rounds=1, pairs=1, beside=()))
    assert not alone.violations
    assert "two tasks were inside at once" in crowd.violations[0]


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
    assert "- target distlock, acquisitions/s >= 4 x peer: 3.000 (0.100 to 10.000), MISSED" in markdown(table)
    assert "| distlock | 10 | 10, 30 |" in markdown(table)
    assert json.loads(as_json([table], {}))["tables"][0]["targets"][1]["met"] is False


def test_a_bound_that_each_round_has_to_keep_is_judged_by_the_worst_one() -> None:
    rounds = {"distlock": [{"longest": 0.1}, {"longest": 0.1}, {"longest": 0.3}]}
    targets = [
        Target("longest", 200.0),
        Target("longest", 200.0, each=True),
        Target("longest", 300.0, each=True),
    ]
    table = Table("row", "A title", rounds, ["longest"], targets)
    assert [result.met for result in table.results()] == [True, False, True]
    assert "longest wait, ms <= 200 in each round: 100.00 (100.00 to 300.00), MISSED" in markdown(table)


def test_what_misses_a_target_by_little_does_not_look_like_it() -> None:
    rounds = {"distlock": [{"commands": 10.04}]}
    (result,) = Table("one", "A title", rounds, ["commands"], [Target("commands", 10.0)]).results()
    assert not result.met
    assert "<= 10: 10.04 (10.04 to 10.04), MISSED" in str(result)


def test_each_target_is_told_in_the_end_and_where_to_read_why_it_is_missed() -> None:
    rounds = {"distlock": [{"rate": 30.0}]}
    good = Table("one", "A title", rounds, ["rate"], [Target("rate", 10.0, least=True)])
    heading = ["| row | target | median | from, to | |", "|---|---|--:|--:|---|"]
    met = "| one: A title | distlock, acquisitions/s >= 10 | 30.00 | 30.00 to 30.00 | met |"
    assert summary([good]).splitlines()[2:] == ["1 of 1 targets are met.", "", *heading, met]
    targets = [Target("rate", 40.0, least=True, why="slow"), Target("rate", 30.0, least=True)]
    bad = Table("two", "A title", rounds, ["rate"], targets, violations=["it broke"], lost=["peer: gone"])
    assert summary([good, bad]).splitlines()[2:] == [
        "1 of 3 targets are met.",
        "",
        *heading,
        met,
        "| two: A title | distlock, acquisitions/s >= 40 | 30.00 | 30.00 to 30.00 | VOID |",
        "| two: A title | distlock, acquisitions/s >= 30 | 30.00 | 30.00 to 30.00 | VOID |",
        "",
        "- two: VOID: it broke",
        "- two: NOT MEASURED: peer: gone",
    ]
    assert json.loads(as_json([good, bad], {}))["targets"] == {"met": 1, "of": 3}
    bad.violations.clear()
    missed = (
        f"| two: A title | distlock, acquisitions/s >= 40 | 30.00 | 30.00 to 30.00 | MISSED: {WHY}#slow |"
    )
    assert missed in summary([good, bad])


def test_what_could_not_be_judged_is_told() -> None:
    rounds = {"distlock": [{"rate": 30.0}]}
    targets = [Target("rate", 20.0, peer="RLock"), Target("rate", 40.0, peer="RLock"), Target("rate", 1.0)]
    told = summary([Table("one", "A title", rounds, ["rate"], targets)])
    assert "0 of 1 targets are met.\n\nNot judged: 2, of what was not measured: RLock.\n" in told


def test_an_unknown_row_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["betwixt"])
    assert ended.value.code == 2
    assert "betwixt is none of uncontended, " in capsys.readouterr().err


def test_each_function_that_measures_is_a_row() -> None:
    measured = {row.measure for row in rows.ROWS.values()}
    modules = [
        importlib.import_module(f"bench.rows.{path.stem}")
        for path in Path(rows.__file__).parent.glob("*.py")
        if path.stem != "__init__"
    ]
    found = {
        function
        for module in modules
        for name, function in vars(module).items()
        if name.startswith("measure_")
    }
    assert found == measured
