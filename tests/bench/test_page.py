"""The figures of the page are those of runs: they are written by a command, and none by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import page, rows
from bench.__main__ import main
from bench.crew import BenchError
from bench.figures import MEASURES, Table, Target
from bench.page import BESIDE, BLOCK, PAGES, ROOT, WANTED, filled
from bench.report import WHY, KeptRun, write_run

ROUNDS = {
    "distlock": [{"rate": 30.0, "p99": 0.001}, {"rate": 50.0, "p99": 0.003}],
    "peer": [{"rate": 10.0, "p99": 0.1}, {"rate": 10.0, "p99": 0.1}],
}
TARGETS = [Target("rate", 4.0, peer="peer", least=True, why="slow"), Target("rate", 10.0, least=True)]


def run(rounds: object = ROUNDS, **more: object) -> KeptRun:
    table = Table("row", "A title", rounds, ["rate"], TARGETS, **more)  # type: ignore[arg-type]
    return KeptRun({"machine": "this", "load before": "0.1"}, [table])


def block(what: str, figures: str = "old\n") -> str:
    return f"before\n\n<!-- bench {what} -->\n{figures}<!-- bench end -->\n\nafter\n"


def test_a_table_of_the_page_has_the_rounds_of_all_runs() -> None:
    spaced = KeptRun({}, [Table("row", "", {"a peer": [{"rate": 2.0}]}, [])])
    assert "| acquisitions/s, times a peer's |" in filled(block("row 0: rate/a_peer"), [spaced])
    made = filled(block("row 0: rate/peer p99"), [run()])
    table = (
        "| | acquisitions/s, times peer's | p99 wait, ms |\n|---|--:|--:|\n"
        "| distlock | 4 (3 to 5) | 2.0 |\n| peer | 1 | 100.0 |\n"
    )
    assert made == block("row 0: rate/peer p99", f"\n{table}\n")
    assert filled(made, [run()]) == made
    slower = {name: [{**rounds[0], "rate": 10.0}] for name, rounds in ROUNDS.items()}
    assert "| distlock | 3 (1 to 5) | 1.0 |" in filled(made, [run(), run(slower)])


def test_contestants_are_compared_in_one_table_of_many_rows() -> None:
    what = "beside distlock, peer: row 0 rate/peer; row 0 p99"
    assert filled(block(what), [run()]) == block(
        what,
        "\n| | distlock | peer |\n|---|--:|--:|\n"
        "| A title: **acquisitions/s, times peer's** | 4 | 1 |\n"
        "| A title: **p99 wait, ms** | 2.0 | 100.0 |\n\n",
    )
    with pytest.raises(BenchError, match="other not measured in row"):
        filled(block("beside distlock, other: row 0 rate"), [run()])


def test_a_target_is_met_where_each_run_has_met_it() -> None:
    slower = {**ROUNDS, "distlock": [{"rate": 30.0}]}
    slower["peer"] = slower["peer"][:1]
    made = filled(block("targets"), [run(), run(slower)])
    assert "Targets that were met: 2 of 2, then 1 of 2." in made
    assert (
        "| **`row`: A title** | | | |\n| distlock, acquisitions/s >= 4 x peer | 4.000 "
        "| 3.000 | **[missed in 1 of 2](#slow)** |"
    ) in made
    assert "acquisitions/s >= 10 " not in made


def test_what_was_measured_on_is_told_once_if_it_is_the_same() -> None:
    other = KeptRun({"machine": "this", "load before": "0.2"}, run().tables)
    assert "* machine: this\n* load before: 0.1; 0.2\n" in filled(block("about"), [run(), other])


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("row 1: rate", "was not measured"),
        ("other 0: rate", "was not measured"),
        ("row 0: speed", "speed is none of rate, "),
        ("row", "python -m pydoc bench.page"),
    ],
)
def test_figures_that_no_run_has_are_told(what: str, told: str) -> None:
    with pytest.raises(BenchError, match=told):
        filled(block(what), [run()])


@pytest.fixture
def page_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    written = tmp_path / "page.md"
    monkeypatch.setattr(page, "PAGES", (written,))
    monkeypatch.setattr(page, "ROWS", {"row": None})
    written.write_text(block("row 0: rate"), "utf-8")
    return written


def test_a_void_row_stands_on_no_page_whether_the_page_shows_its_table_or_not(page_of_a_row: Path) -> None:
    void = Table("other", "", ROUNDS, ["rate"], TARGETS, violations=["it broke"])
    for broken in (run(violations=["it broke"]), KeptRun(run().about, [*run().tables, void])):
        with pytest.raises(BenchError, match="void, and stands on no page"):
            page.write([run(), broken])
    assert page_of_a_row.read_text("utf-8") == block("row 0: rate")


def test_a_page_without_one_of_the_rows_is_not_written(
    page_of_a_row: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "ROWS", {"row": None, "slow": None})
    with pytest.raises(BenchError, match="have all rows, and slow were not measured"):
        page.write([run()])


def test_targets_of_peers_that_were_not_measured_are_told_on_the_page() -> None:
    rounds = {"distlock": ROUNDS["distlock"]}
    made = filled(block("targets"), [run(rounds)])
    assert "Targets that were met: 1 of 1.\n\nNot judged: 1, of what was not measured: peer.\n" in made


def test_a_folder_without_a_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write-docs", str(tmp_path)]) == 3
    assert "Run: scripts/bench --to" in capsys.readouterr().err


def test_the_command_writes_the_page(tmp_path: Path, page_of_a_row: Path) -> None:
    write_run(tmp_path, run().tables, run().about, whole=True)
    assert main(["--write-docs", str(tmp_path)]) == 0
    assert "| distlock | 40 (30 to 50) |" in page_of_a_row.read_text("utf-8")


def test_what_the_page_wants_is_there_to_be_measured() -> None:
    texts = [path.read_text("utf-8") for path in PAGES]
    blocks = [each["what"] for text in texts for each in BLOCK.finditer(text)]
    assert all(map(BLOCK.search, texts))
    assert {"about", "targets"} < set(blocks)
    for what in set(blocks) - {"about", "targets"}:
        if compared := BESIDE.fullmatch(what):
            for row, number, measure in map(str.split, compared["measures"].split("; ")):
                assert row in rows.ROWS
                assert number.isdigit()
                assert measure.partition("/")[0] in MEASURES
            continue
        wanted = WANTED.fullmatch(what)
        assert wanted, what
        assert wanted["row"] in rows.ROWS
        assert {each.partition("/")[0] for each in wanted["measures"].split()} <= set(MEASURES)


def test_every_page_with_figures_is_written() -> None:
    folder = PAGES[0].parent
    assert {path for path in folder.glob("*.md") if BLOCK.search(path.read_text("utf-8"))} == set(PAGES)


def test_the_page_says_why_each_target_is_missed_that_leads_there() -> None:
    lines = [line for line in (ROOT / WHY).read_text("utf-8").splitlines() if line.startswith("##")]
    headings = {re.sub(r"[^a-z0-9 -]", "", line.lower()).strip().replace(" ", "-") for line in lines}
    source = "".join(path.read_text("utf-8") for path in Path(rows.__file__).parent.glob("*.py"))
    assert len(led_to := set(re.findall(r'(?:why=|WHY = )"([^"]+)"', source))) > 5
    assert led_to <= headings
