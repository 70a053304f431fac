"""Build the three distributions, check them, and install each into a virtual environment of its own."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAILED, INTERRUPTED = 1, 130


@dataclass(frozen=True, slots=True)
class Distribution:
    name: str
    #: Where its pyproject.toml is, below the root.
    folder: str
    #: The extra that it is installed with here, if any; and what can be imported then.
    extra: str
    imports: tuple[str, ...]


PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
REDIS = "distlock.backends.redis"
CORE = Distribution("distlock-web", ".", "", ("distlock",))
DISTRIBUTIONS = (
    CORE,
    Distribution("django-distlock", "packaging/django-distlock", "redis", (REDIS, "django_distlock")),
    Distribution("flask-distlock", "packaging/flask-distlock", "redis", (REDIS, "flask_distlock")),
)
IMPORT = """
import sys
for name in sys.argv[2:]:
    __import__(name)
import distlock
assert distlock.__version__ == sys.argv[1], distlock.__version__
assert distlock.__file__.startswith(sys.prefix), distlock.__file__
"""


class PackagingError(Exception):
    """A command failed; the text is what it printed."""


def run(*command: object, cwd: Path = ROOT) -> str:
    """Give what *command* printed. Raises `PackagingError` where it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise PackagingError(f"{' '.join(words)}\n{done.stdout}{done.stderr}".strip())
    return done.stdout


def copy_tree(folder: Path) -> Path:
    """Copy what git knows of: a build in the clone itself would take up what the last one left there."""
    for file in run("git", "ls-files", "-z").split("\0"):
        if file and (ROOT / file).is_file():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
    return folder


def new_environment(folder: Path, *wanted: str) -> Path:
    """Install *wanted* into a new virtual environment. Gives its Python."""
    venv.create(folder)
    python = folder / "bin" / "python"
    # Our own pip installs there: one of its own in each would take longer than all that it installs.
    run(*PIP, "--python", python, "install", "--quiet", "--no-compile", *wanted, cwd=folder)
    return python


def install_build_tools(tree: Path, folder: Path) -> Path:
    """What the distributions ask for to be built, and nothing else. Gives the Python that has it."""
    settings = [tree / distribution.folder / "pyproject.toml" for distribution in DISTRIBUTIONS]
    asked = {one for file in settings for one in tomllib.loads(file.read_text())["build-system"]["requires"]}
    return new_environment(folder, f"build=={metadata.version('build')}", *asked)


def build(distribution: Distribution, tree: Path, into: Path, python: Path) -> tuple[Path, Path]:
    """Build the sdist and, from the sdist, the wheel. Gives both files. *python* has what that needs."""
    command = (python, "-m", "build", "--no-isolation", "--outdir", into)
    run(*command, tree / distribution.folder, cwd=tree)
    stem = distribution.name.replace("-", "_")
    (sdist,), (wheel,) = into.glob(f"{stem}-*.tar.gz"), into.glob(f"{stem}-*.whl")
    return sdist, wheel


def check(distribution: Distribution, tree: Path, sdist: Path, wheel: Path) -> None:
    settings = tree / distribution.folder / "pyproject.toml"
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    run(sys.executable, "-m", "check_wheel_contents", "--config", settings, wheel)


def install(distribution: Distribution, wheel: Path, core: Path, folder: Path) -> None:
    """Install *wheel* into a new virtual environment, and import what it brings."""
    # Ours are given as files. A name would be looked up on the index, where it may be a stranger's.
    wanted = {f"{wheel}[{distribution.extra}]" if distribution.extra else str(wheel)}
    if wheel != core:
        wanted.add(str(core))
    version = core.name.split("-")[1]
    python = new_environment(folder, *wanted)
    run(*PIP, "--python", python, "check", cwd=folder)
    run(python, "-c", IMPORT, version, *distribution.imports, cwd=folder)


@contextmanager
def step(what: str) -> Iterator[None]:
    print(f"{what} …", flush=True)
    try:
        yield
    except PackagingError as error:
        raise PackagingError(f"{what} failed.\n{error}") from None


def package(into: Path) -> list[Path]:
    """Leave in *into* what has passed every check, and nothing before that. Gives the files."""
    with tempfile.TemporaryDirectory(prefix="distlock-package-") as name:
        folder = Path(name)
        tree = copy_tree(folder / "tree")
        made: dict[Distribution, tuple[Path, Path]] = {}
        with step("Installing what builds them"):
            python = install_build_tools(tree, folder / "tools")
        for distribution in DISTRIBUTIONS:
            with step(f"Building {distribution.name}"):
                made[distribution] = build(distribution, tree, folder / "dist", python)
            with step(f"Checking {distribution.name}"):
                check(distribution, tree, *made[distribution])
        for distribution, (_, wheel) in made.items():
            with step(f"Installing {distribution.name} into a new environment"):
                install(distribution, wheel, made[CORE][1], folder / f"venv-{distribution.name}")
        into.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy(file, into)) for files in made.values() for file in files]


def own_version() -> str:
    """Return the version that distlock/__init__.py states, without importing it."""
    (version,) = re.findall(
        r'^__version__ = "(.*)"$', (ROOT / "distlock/__init__.py").read_text("utf-8"), re.M
    )
    return str(version)


def refuse_unready(version: str) -> None:
    """Check the first three points of the release checklist in CONTRIBUTING.md.

    Raises:
        PackagingError: The tree has changes, the version has a tag, or its changes have no date.
    """
    if changed := run("git", "status", "--porcelain"):
        raise PackagingError(f"The clone has changes that no commit has. Commit or remove them:\n{changed}")
    if run("git", "tag", "--list", f"v{version}"):
        raise PackagingError(f"The tag v{version} exists. Raise __version__ in distlock/__init__.py.")
    heading = f"## {version}, "
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    said = next((line.removeprefix(heading) for line in lines if line.startswith(heading)), "nothing")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", said):
        raise PackagingError(
            f"CHANGELOG.md has no date for {version}, but {said!r}. Write '{heading}<year>-<month>-<day>'."
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/package", description=__doc__)
    parser.add_argument("into", nargs="?", type=Path, default=ROOT / "dist", help="directory (default: dist)")
    parser.add_argument(
        "--release",
        action="store_true",
        help="also check what CONTRIBUTING.md asks of a release",
    )
    told = parser.parse_args()
    into: Path = told.into.resolve()
    try:
        if told.release:
            refuse_unready(own_version())
        made = package(into)
    except (PackagingError, OSError) as error:
        print(error, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return INTERRUPTED
    print(f"\nAll of it is built, checked and installed once. In {into}:")
    for file in made:
        print(f"  {file.name}  {file.stat().st_size / 1000:.0f} kB")
    if told.release:
        print(f"Next: git tag v{own_version()} && git push --tags, then: twine upload {into}/*")
    return 0


if __name__ == "__main__":
    sys.exit(main())
