"""Three distributions are built from one tree, say the same of themselves, and hold what is needed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import distlock
from tests.packaging.script import ROOT, SCRIPT, load

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


def test_what_a_check_finds_is_told_and_nothing_is_left_to_upload(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The control: a package index would not show this README. The real checks look at it."""
    script = load()
    (wheel,) = built.glob("distlock_web-*.whl")
    (sdist,) = built.glob("distlock_web-*.tar.gz")
    spoilt, into = tmp_path / wheel.name, tmp_path / "dist"
    with zipfile.ZipFile(wheel) as files, zipfile.ZipFile(spoilt, "w") as copy:
        for name in files.namelist():
            content = files.read(name)
            # The README follows the first empty line.
            copy.writestr(name, content.split(b"\n\n")[0] if name.endswith("/METADATA") else content)
    monkeypatch.setattr(script, "install_build_tools", lambda tree, folder: Path(sys.executable))
    monkeypatch.setattr(script, "build", lambda *wanted: (sdist, spoilt))
    monkeypatch.setattr(sys, "argv", ["package", str(into)])

    assert script.main() == 1

    said = capsys.readouterr().err
    assert "Checking distlock-web failed." in said
    assert "long_description" in said
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
