"""What is installed is what is needed, and nothing else."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.packaging.script import ROOT

PACKAGES = ["distlock", "django_distlock", "flask_distlock"]


@pytest.fixture
def installed(built: Path) -> set[str]:
    (wheel,) = built.glob("distlock_web-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_every_file_of_the_packages_is_in_the_wheel(installed: set[str]) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(tracked) - installed == set()
    assert any(file.endswith(".lua") for file in tracked)


def test_nothing_else_is(installed: set[str]) -> None:
    tops = {file.split("/")[0] for file in installed}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
