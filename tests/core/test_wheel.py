"""What is installed is what is needed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, because setuptools leaves its build directory in the tree.
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in tracked.splitlines():
        if (ROOT / file).is_file():
            (folder / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / "tree" / file).write_bytes((ROOT / file).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "./tree"]
    subprocess.run(command, cwd=folder, check=True)
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_every_file_of_the_packages_is_in_the_wheel(installed: set[str]) -> None:
    packages = ["distlock", "django_distlock", "flask_distlock"]
    tracked = subprocess.run(
        ["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) - installed == set()
    assert any(file.endswith(".lua") for file in tracked)


def test_nothing_else_is(installed: set[str]) -> None:
    tops = {file.split("/")[0] for file in installed}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "distlock",
        "django_distlock",
        "flask_distlock",
    }
