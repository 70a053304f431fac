"""CONTRIBUTING.md draws the house as it stands, and each promise has one home, which says so."""

from __future__ import annotations

import re

from tests.test_docs import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PACKAGES = ("distlock", "django_distlock", "flask_distlock")


def drawn() -> list[str]:
    """The directories of the drawing. One that is indented by two more, or named behind it, is inside."""
    (drawing,) = re.findall(r"^## The house\n+```\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    inside: list[str] = []
    found = []
    for line in drawing.splitlines():
        name, *others = re.findall(r"(?:^| )(\w+)/", line)
        inside[line.index(name) // 2 :] = [name]
        found += ["/".join(inside), *("/".join([*inside, other]) for other in others)]
    return found


def test_the_drawing_has_every_directory_and_no_other() -> None:
    packages = {
        path.parent.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
    }
    # Django's own place for commands.
    packages -= {"django_distlock/management/commands"}
    there = [path for path in drawn() if (ROOT / path).is_dir()]
    assert there == drawn()
    assert packages == {path for path in there if path.startswith(PACKAGES)}
    assert len(there) == len(set(there))


def test_each_promise_has_one_home_that_says_so() -> None:
    homes = dict(re.findall(r"^\| (G\d) \| [^|]+ \| `([^`|]+)` \|", PAGE, re.MULTILINE))
    assert list(homes) == [f"G{number}" for number in range(1, 8)]
    said: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for promises in re.findall(r"\b[Pp]romises? (G\d(?: and G\d)*)\b", path.read_text("utf-8")):
                for promise in promises.split(" and "):
                    said.setdefault(promise, []).append(path.relative_to(ROOT).as_posix())
    assert said == {promise: [home] for promise, home in homes.items()}


def test_every_path_on_the_page_is_there() -> None:
    paths = re.findall(r"`([a-z_]+(?:/[\w.*-]*)+)`", PAGE)
    assert len(paths) > 20
    missing = [
        path for path in paths if not path.startswith("var/") and not list(ROOT.glob(path.rstrip("/")))
    ]
    assert not missing
