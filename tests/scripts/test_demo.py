"""``scripts/demo`` in a clone in which nothing is installed yet: what it says, and what it leaves alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.needs import main as needs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for file in tracked.stdout.splitlines():
        if not file.startswith("tests/") and (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
    return folder


def run(clone: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command], cwd=clone, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )


def bash(clone: Path, lines: str) -> list[str]:
    done = run(clone, "bash", "-c", f". scripts/setup.sh\n{lines}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_help_installs_nothing(clone: Path) -> None:
    done = run(clone, "scripts/demo", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: scripts/demo ")
    assert "installed first" not in done.stdout
    assert not (clone / ".venv").exists()


def test_what_can_not_be_run_is_told_before_anything_is_installed(clone: Path) -> None:
    done = run(clone, "scripts/demo", "up", "three-locks")
    assert (done.returncode, done.stdout) == (3, "")
    assert "there is no scenario 'three-locks'" in done.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("asked", "meant", "there"),
    [
        ("upp", "up", "up, one-unlocked"),
        ("up two-distribted", "two-distributed", "two-unlocked, one-unlocked"),
        ("mixed_process", "mixed-process", "up, one-unlocked"),
    ],
)
def test_a_slip_of_the_pen_is_guessed_and_not_hidden_below_the_usage(
    asked: str, meant: str, there: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert needs(asked.split()) == 3
    first, help_line = capsys.readouterr().err.splitlines()
    wrong = asked.split()[-1]
    assert first.startswith(
        f"scripts/demo: there is no scenario {wrong!r}. Did you mean {meant!r}? There are: {there}, "
    )
    assert "--help" in help_line


def test_the_help_says_that_mixed_scenarios_have_both_frameworks(capsys: pytest.CaptureFixture[str]) -> None:
    assert needs(["--help"]) == 4
    words = " ".join(capsys.readouterr().out.split())
    assert "The scenarios mixed-… run a Django and a Flask instance with any of them" in words


def test_a_machine_without_python_hears_two_announcements_of_their_own(clone: Path) -> None:
    alone = "missing_packages() { say python3; }; install_packages() { :; }"
    first = bash(clone, f"{alone}; install_python")[0]
    assert first == "Python is missing, and is installed to see what else is needed:"


@pytest.mark.parametrize(
    ("asked", "packages"),
    [
        ("", ""),
        ("up", "redis-server"),
        ("up --backend file", ""),
        ("--back redis", "redis-server"),
        ("--backend redlock --visit kill", "redis-server"),
        ("--visit=kill", "redis-server"),
        ("--backend zookeeper --database mariadb", "zookeeper mariadb"),
        ("--backend mysql", "mariadb"),
        ("--database postgresql://elsewhere/shop", ""),
        ("--story transactions", "redis-server postgresql"),
        ("--story rush", "redis-server postgresql"),
        ("--story rush --backend zookeeper", "zookeeper postgresql"),
        ("--story readers", "redis-server"),
        ("--story failover", "redis-server zookeeper postgresql mariadb"),
        ("--story failover --backend sentinel", "redis-server postgresql"),
        ("--matrix", "redis-server zookeeper postgresql mariadb"),
        ("--matrix --backend file --database sqlite", ""),
        ("--matrix --database postgresql", "redis-server zookeeper postgresql"),
    ],
)
def test_only_what_the_run_starts_is_needed(
    asked: str, packages: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert needs(asked.split()) == 0
    assert capsys.readouterr().out.split() == ["python3", "nginx", *packages.split()]


def test_what_is_needed_is_found_out_by_a_bare_python(clone: Path) -> None:
    done = run(clone, sys.executable, "-S", "-m", "loadtest.needs", "--matrix")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_debian_has_installed_is_not_announced(clone: Path) -> None:
    """Where one program of two is missing, or is somewhere else."""
    names = "python3 nginx redis-server postgresql pgbouncer zookeeper mariadb curator chromium prometheus"
    without = "has_command() { false; }; find_python() { false; }"
    lacking = " ".join(bash(clone, f"{without}; lacking {names}")).split()
    announced = bash(clone, f"{without}; missing_packages {names}")
    there = [
        name
        for name in lacking
        if "ok installed" in run(clone, "dpkg-query", "--show", "--showformat=${Status}", name).stdout
    ]
    assert "nginx" in there
    assert announced == [name for name in lacking if name not in there]


@pytest.mark.parametrize(
    ("stamp", "said"),
    [
        ("", ["This will be installed first:", "  - Python packages, into .venv in this directory (250 MB)"]),
        ("demo", []),
        # The tests need all of it, and more.
        ("test", []),
        ("package", ["This will be installed first:"]),
    ],
)
def test_what_is_ready_is_not_announced(clone: Path, stamp: str, said: list[str]) -> None:
    venv = clone / ".venv"
    shutil.rmtree(venv, ignore_errors=True)
    venv.mkdir()
    if stamp:
        bash(clone, f"cat pyproject.toml constraints.txt | sha256sum >.venv/ready-for-{stamp}")
    heard = bash(clone, 'install_python_packages() { :; }; setup demo "250 MB" "" --group shop')
    assert heard[: len(said)] == said
    assert bool(heard) == bool(said)
    shutil.rmtree(venv)
