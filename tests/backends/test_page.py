"""The page for authors of backends says what is there."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

from distlock.backends.base import Backend, Capabilities
from distlock.backends.protocols import LooksAhead, TakesArguments
from distlock.testing import conformance
from tests.backend_class import backend_class

PAGE = (Path(__file__).parents[2] / "docs/how-to/backend.md").read_text("utf-8")


def first_cells(heading: str) -> set[str]:
    """The words in code in the first column of the table below *heading*."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {word for row in rows for word in re.findall(r"`(\w+)`", row)}


def code(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_it_has_every_capability() -> None:
    assert first_cells("The class") == {field.name for field in dataclasses.fields(Capabilities)}


def test_it_has_every_part_of_the_kit() -> None:
    assert first_cells("The kit") == set(conformance.__all__)


def test_its_entry_point_is_of_our_group() -> None:
    (toml,) = code("toml")
    assert list(tomllib.loads(toml)["project"]["entry-points"]) == ["distlock.backends"]


def test_its_class_declares_and_its_suite_is_made_of_the_kit() -> None:
    namespace: dict[str, object] = {}
    python = code("python")
    exec(python[0], namespace)
    assert namespace["EtcdBackend"].capabilities == Capabilities(
        several_processes=True, lease=True, fence=True
    )
    exec(python[-1], namespace)
    assert issubclass(namespace["TestClose"], conformance.CloseConformance)


def test_the_method_that_takes_clients_of_others_is_there() -> None:
    assert hasattr(TakesArguments, "url_of")
    assert issubclass(backend_class("redis://localhost"), TakesArguments)
    assert not issubclass(backend_class("memory://"), TakesArguments)


def test_the_method_that_looks_ahead_is_there() -> None:
    assert hasattr(LooksAhead, "refuse_unusable")
    assert not hasattr(Backend, "refuse_unusable")
    assert issubclass(backend_class("file:///nowhere"), LooksAhead)
    assert not issubclass(backend_class("memory://"), LooksAhead)
