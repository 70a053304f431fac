"""The pinned versions can be installed on the oldest Debian that the scripts promise."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]

#: The Python of Debian 12. pip leaves out what asks for a later one, such as 3.11.5, and then finds nothing.
DEBIAN_12 = "3.11.2"


def test_what_is_pinned_runs_on_the_python_of_debian_12() -> None:
    pinned = {
        canonicalize_name(requirement.name): requirement.specifier
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
        if line.strip() and not line.startswith("#")
        for requirement in [Requirement(line)]
    }
    looked_at, too_new = 0, []
    for found in distributions():
        wanted = pinned.get(canonicalize_name(found.metadata["Name"]))
        if wanted is None or not wanted.contains(found.version, prereleases=True):
            continue
        looked_at += 1
        needs = found.metadata.get("Requires-Python") or ""
        if not SpecifierSet(needs).contains(DEBIAN_12):
            too_new.append(f"{found.metadata['Name']} {found.version} needs Python {needs}")
    assert looked_at > 20
    assert not too_new
