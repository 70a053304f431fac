"""Latches as files: what is there, and what becomes of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

import distlock
from distlock.errors import BackendUnavailable
from distlock.testing.conformance.protocol_latches import LatchContender
from distlock.testing.protocol_fixtures import Contender

KEY = "shop/latch:import"


@pytest.fixture
def latches(contender: Callable[[], Contender]) -> LatchContender:
    return LatchContender(contender())


@pytest.fixture
def folder(directory: Path) -> Path:
    return directory / "v2" / "latches"


def test_a_latch_is_a_file_of_the_users_own(latches: LatchContender, folder: Path) -> None:
    latches.make(KEY, 2)
    latches.count(KEY)
    (file,) = folder.iterdir()
    assert file.name.startswith("shop%2Flatch%3Aimport~")
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_look_where_nothing_is_makes_nothing(latches: LatchContender, directory: Path) -> None:
    assert latches.look(KEY) is None
    assert latches.look(KEY, watch=True) is None
    assert latches.latches.count_latch_down(KEY, 1, "part") is None
    assert not directory.exists()


def test_those_that_are_over_are_swept_by_the_next_that_is_made(
    latches: LatchContender, folder: Path
) -> None:
    for number in range(5):
        latches.make(f"{KEY}_{number}", 1, ttl=0.2)
    latches.make(f"{KEY}_alive", 1)
    (folder / "shop~00ab.new").write_bytes(b"half of")
    for number in range(5):
        latches.wait_until_gone(f"{KEY}_{number}")
    latches.make(f"{KEY}_last", 1)
    assert sorted(file.name.split("~")[0][-5:] for file in folder.iterdir()) == ["_last", "alive"]


def test_the_parts_that_it_remembers_have_an_end(
    latches: LatchContender, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distlock.backends.latches.REMEMBERED", 3)
    latches.make(KEY, 100)
    for number in range(10):
        latches.count(KEY, part=f"part_{number}")
    text = next(folder.iterdir()).read_text()
    assert [number for number in range(10) if f"part_{number}" in text] == [7, 8, 9]
    assert latches.count(KEY, part="part_9") == 90


@pytest.mark.parametrize("text", ["", "nonsense", "[1, []]\n", '[1e99, []]\n["x", 1]', '[1e99, ["a"]]\n{}'])
def test_what_is_no_latch_is_named(latches: LatchContender, folder: Path, text: str) -> None:
    latches.make(KEY, 2)
    (file,) = folder.iterdir()
    file.write_text(text)
    with pytest.raises(BackendUnavailable, match=f"latches/{file.name}.*delete it"):
        latches.look(KEY)


def test_a_file_that_others_may_write_is_refused(latches: LatchContender, folder: Path) -> None:
    latches.make(KEY, 2)
    (file,) = folder.iterdir()
    file.chmod(0o666)
    with pytest.raises(distlock.LockError, match="may be written by everybody"):
        latches.look(KEY)


def test_a_process_that_is_killed_while_it_counts_leaves_a_whole_latch(
    latches: LatchContender, url: str, folder: Path
) -> None:
    latches.make(KEY, 1_000_000)
    code = (
        "import sys, distlock; latch = distlock.connect(sys.argv[1], prefix='shop').latch('import')\n"
        "while True: print(latch.count_down(), flush=True)"
    )
    for _ in range(5):
        with Popen([sys.executable, "-c", code, url], stdout=PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(20):
                left = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
        assert 0 <= left - latches.left(KEY) < 10_000
    assert latches.count(KEY) > 0


def test_a_latch_that_is_being_replaced_is_never_missed(
    latches: LatchContender, contender: Callable[[], Contender]
) -> None:
    latches.make(KEY, 100_000)
    other, over = LatchContender(contender()), threading.Event()

    def count() -> None:
        for _ in range(300):
            latches.count(KEY)
        over.set()

    thread = threading.Thread(target=count)
    thread.start()
    while not over.is_set():
        assert other.look(KEY) is not None
    thread.join()
