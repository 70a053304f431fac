"""A run says how long it takes, and keeps what it has measured, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.bench import QUICK, WHOLE, Bench
from bench.crew import BenchError
from bench.figures import Table, Target
from bench.report import JSON, PAGE, KeptRun, clear_run, read_run, write_run
from bench.rows import QUICK_ROWS, ROWS
from bench.run import BenchRun, RunProgress

#: The name that the processes of a run find in their environment.
TAG = "DISTLOCK_BENCH_TEST"
PATIENCE = 120.0
#: The first row is over in a moment, the second never.
LONG = ["engine", "open", "--rounds", "400", "--seconds", "0.05", "--pairs", "1", "--beside", "redis-py"]


def of_run(tag: str) -> Iterator[str]:
    """The commands of all processes that a run has left."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{TAG}={tag}".encode() in (process / "environ").read_bytes():
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    yield (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_its_figures_and_no_process(
    how: signal.Signals, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    tag = f"{os.getpid()}-{how.name}"
    command = [sys.executable, "-m", "bench", *LONG, "--quick", "--to", str(tmp_path)]
    with (tmp_path / "said").open("wb") as said:
        run = subprocess.Popen(
            command, env=os.environ | {TAG: tag}, stdout=said, stderr=said, start_new_session=True
        )
    request.addfinalizer(run.kill)
    deadline = time.monotonic() + PATIENCE
    # The first row is kept by then.
    while "[2/2]" not in (tmp_path / "said").read_text():
        assert run.poll() is None, (tmp_path / "said").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run.send_signal(how)
    assert run.wait(PATIENCE) == 128 + how
    while left := list(of_run(tag)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    found = json.loads((tmp_path / JSON).read_text())
    assert not found["whole"]
    assert [table["row"] for table in found["tables"]] == ["engine"]
    assert "NOT WHOLE" in (tmp_path / PAGE).read_text()
    assert "Stopped in row 2 of 2. What was measured: " in (tmp_path / "said").read_text()
    with pytest.raises(BenchError, match="was stopped"):
        read_run(tmp_path)


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    rounds = {"distlock": [{"rate": 30.0}], "peer": [{"rate": 10.0}]}
    target = Target("rate", 4.0, peer="peer", least=True, why="slow")
    other = Target("rate", 20.0, peer="not measured", least=True)
    table = Table("row", "A title", rounds, ["rate"], [target, other], ["a note"], ["void"], ["lost"])
    write_run(tmp_path, [table], {"machine": "this"}, whole=True)
    assert read_run(tmp_path) == KeptRun({"machine": "this"}, [table])
    clear_run(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BenchError, match="Run: scripts/bench"):
        read_run(tmp_path)


def test_what_another_version_has_kept_is_told_and_not_read(tmp_path: Path) -> None:
    table = Table("row", "A title", {"distlock": [{"rate": 30.0}]}, ["rate"], [], [], [], [])
    write_run(tmp_path, [table], {"machine": "this"}, whole=True)
    told = json.loads((tmp_path / JSON).read_text())
    del told["tables"][0]["not judged"]
    (tmp_path / JSON).write_text(json.dumps(told))
    with pytest.raises(BenchError, match="of another version of the bench"):
        read_run(tmp_path)


def test_a_run_with_a_row_that_could_not_be_measured_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_down(bench: Bench) -> Iterator[Table]:
        raise BenchError("it broke")

    monkeypatch.setitem(ROWS, "engine", replace(ROWS["engine"], measure=breaks_down))
    run = BenchRun(bench_of(1, 0.1), ["engine"], {}, tmp_path, lambda table: None)
    run.carry_out()
    assert run.broken
    with pytest.raises(BenchError, match="could not measure something"):
        read_run(tmp_path)


def bench_of(rounds: int, seconds: float, quick: bool = False) -> Bench:
    return cast(Bench, SimpleNamespace(rounds=rounds, seconds=seconds, quick=quick))


def test_all_of_it_takes_less_than_25_minutes_and_a_quick_run_less_than_three() -> None:
    assert sum(row.whole for row in ROWS.values()) < 25 * 60
    assert sum(ROWS[row].quick for row in QUICK_ROWS) < 3 * 60


def test_a_run_says_how_long_it_takes_and_learns_how_slow_the_machine_is() -> None:
    rows = ["between", "contended"]
    first, second = (ROWS[row].whole for row in rows)
    assert (
        RunProgress(rows, bench_of(WHOLE.rounds, WHOLE.seconds))
        .before()
        .startswith(f"2 rows, about {(first + second) / 60:.0f} min")
    )
    progress = RunProgress(rows, bench_of(2 * WHOLE.rounds, 2 * WHOLE.seconds))
    progress.took(0, 8 * first)
    # Four times as much was asked for, and the machine is twice as slow.
    assert progress.at(1) == (
        f"[2/2] contended: about {8 * second / 60:.0f} min. Left in all: about {8 * second / 60:.0f} min."
    )
    quick = RunProgress(["engine"], bench_of(QUICK.rounds, QUICK.seconds, quick=True))
    assert quick.before().startswith(f"1 rows, about {ROWS['engine'].quick:.0f} s")
