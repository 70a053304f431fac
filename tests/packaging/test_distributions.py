"""Three distributions are built from one tree, say the same of themselves, and hold what is needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import distlock
from tests.packaging.script import ROOT, SCRIPT

#: distribution -> its pyproject.toml, and what its own extras are extras of
ALIASES = {name: ROOT / "packaging" / name for name in ("django-distlock", "flask-distlock")}


#: What is in the first of them.
PACKAGES = ["distlock", "django_distlock", "flask_distlock", "pytest_distlock.py"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory in which ``scripts/package`` has left the distributions."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def project(folder: Path) -> dict:
    found: dict = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def test_each_is_built_and_has_passed_the_checks(built: Path) -> None:
    stems = {f"{name.replace('-', '_')}-{distlock.__version__}" for name in (project(ROOT)["name"], *ALIASES)}
    assert {file.name for file in built.iterdir()} == {
        stem + end for stem in stems for end in (".tar.gz", "-py3-none-any.whl")
    }


@pytest.mark.parametrize("name", ALIASES)
def test_the_other_names_only_depend_on_the_first(name: str) -> None:
    core, alias = project(ROOT), project(ALIASES[name])
    assert (core["name"], alias["name"], alias["version"]) == ("distlock-web", name, distlock.__version__)
    framework = name.partition("-")[0]
    assert alias["dependencies"] == [f"distlock-web[{framework}]=={distlock.__version__}"]
    assert alias["requires-python"] == core["requires-python"]
    assert alias["optional-dependencies"] == {
        extra: [f"distlock-web[{extra}]=={distlock.__version__}"] for extra in core["optional-dependencies"]
    }


def test_what_a_check_finds_is_told_and_nothing_is_left_to_upload(tmp_path: Path) -> None:
    """The control: a package index would not show this README."""
    clone, into = tmp_path / "clone", tmp_path / "dist"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for file in tracked.splitlines():
        if (ROOT / file).is_file():
            (clone / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, clone / file)
    (clone / "README.md").write_text("")
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=clone, check=True)

    script = clone / SCRIPT.relative_to(ROOT)
    done = subprocess.run([sys.executable, script, into], capture_output=True, text=True)

    assert done.returncode == 1
    assert "Checking distlock-web failed." in done.stderr
    assert "long_description" in done.stderr
    assert not into.exists()


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


def test_pytest_finds_the_plugin(built: Path) -> None:
    (wheel,) = built.glob("distlock_web-*.whl")
    with zipfile.ZipFile(wheel) as files:
        (points,) = [name for name in files.namelist() if name.endswith("/entry_points.txt")]
        assert "[pytest11]\npytest_distlock = pytest_distlock\n" in files.read(points).decode()


def test_nothing_else_is(installed: set[str]) -> None:
    tops = {file.split("/")[0] for file in installed}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
