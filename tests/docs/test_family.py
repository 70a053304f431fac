"""The page that goes through Java's locks names tests that are there, and says of each row what proves it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.testing import conformance
from distlock.testing.waits import wait_until
from tests.docs.blocks import DOCS, ROOT

PAGE = (DOCS / "reference/family.md").read_text("utf-8")


def rows(text: str) -> Iterator[list[str]]:
    for line in re.findall(r"^\|(.*)\|$", text, re.MULTILINE):
        cells = [cell.strip() for cell in line.split("|")]
        if cells[-1] not in {"test", "---"}:
            yield cells


@functools.cache
def functions_in(path: str) -> frozenset[str]:
    file = ROOT / path
    tree = ast.parse(file.read_text("utf-8")) if file.exists() else ast.Module([], [])
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def named(text: str) -> list[tuple[str, str]]:
    return re.findall(r"`([\w/.]+)::(\w+)`", text)


def missing(text: str) -> list[str]:
    return [f"{path}::{name}" for path, name in named(text) if name not in functions_in(path)]


def test_each_test_that_is_named_is_there() -> None:
    assert len(named(PAGE)) > 70
    assert missing(PAGE) == []
    assert all(name.startswith("test_") for _, name in named(PAGE))
    assert missing("`tests/gone.py::test_it`, `tests/docs/test_family.py::test_gone`") == [
        "tests/gone.py::test_it",
        "tests/docs/test_family.py::test_gone",
    ]


@pytest.mark.parametrize("service", ["redis", "zookeeper"])
def test_each_test_of_the_kit_that_is_named_is_run_on(service: str) -> None:
    """A test that no class inherits runs nowhere."""
    suite = (ROOT / f"tests/backends/{service}/test_conformance.py").read_text("utf-8")
    inherited = [getattr(conformance, name) for name in set(re.findall(r"conformance\.(\w+)", suite))]
    run = {name for one in inherited for name in dir(one)}
    of_kit = {name for path, name in named(PAGE) if path.startswith("distlock/testing/")}
    assert len(of_kit) > 20
    assert of_kit - run == set()


def test_each_row_has_its_test() -> None:
    assert len(list(rows(PAGE))) > 60
    assert [cells for cells in rows(PAGE) if not named(cells[-1])] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(?:distlock|locks)\.(\w+)", PAGE))))
def test_what_it_is_called_here_is_there(name: str) -> None:
    assert hasattr(distlock, name) or hasattr(distlock.Locks, name)


def test_two_latches_are_a_double_barrier() -> None:
    locks = distlock.connect("memory://double-barrier")
    members = 3
    arrived: list[str] = []
    left: list[str] = []
    for name in ("enter", "leave"):
        assert locks.latch(name, members).make()

    def work() -> tuple[int, int]:
        arrived.append("one")
        locks.latch("enter").count_down()
        assert locks.latch("enter").wait(60)
        seen = len(arrived)
        left.append("one")
        locks.latch("leave").count_down()
        assert locks.latch("leave").wait(60)
        return seen, len(left)

    with ThreadPoolExecutor(members) as pool:
        others = [pool.submit(work) for _ in range(members - 1)]
        wait_until(lambda: locks.latch("enter").count() == 1, "all but one are there")
        assert left == []
        assert [work(), *(other.result(60) for other in others)] == [(members, members)] * members
    locks.close()
