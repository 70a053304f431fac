"""The mutants that are made, what becomes of them, and what is said of those that survive."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.mutation import lua_mutants, python_mutants
from tests.mutation.explained import explanations
from tests.mutation.mutant import Mutant
from tests.mutation.record import moved_lines
from tests.mutation.recording import lines_of_lua
from tests.mutation.tree import ROOT, Tree
from tests.mutation.trial import KILLED, SURVIVED, TIMED_OUT, UNTESTED, Trials

PYTHON = """\
LIMIT = 3

def full(waiting: int | None, grace=1.5):
    if waiting is not None and waiting + 1 > LIMIT:
        raise Full(f"{waiting + 1}")
    return min(waiting, 60)
"""
LUA = """\
-- A comment has no mutant: 1 == 1 and true.
local function keep(now)
  if now <= 0 and not late then
    return false
  end
  redis.call('PEXPIRE', KEYS[1], ttl)
end
"""
NUMBERS, SCRIPT = "distlock/numbers.py", "distlock/backends/redis/lua/latch.lua"
ONE = "tests/core/test_numbers.py::test_nothing_else_is[ttl--1]"
LIMIT = "tests/core/test_numbers.py::test_a_limit_of_permits_can_be_written_into_names"
FAILING = "tests/core/test_planted.py::test_it_fails"
WARM = "tests/core/test_planted.py::test_it_is_not_in_a_cold_process"
LEAVING = "tests/core/test_planted.py::test_it_leaves_a_process"
EARLY = "tests/core/test_planted.py::test_it_has_asked_before"
PLANTED = """\
import os
import signal
import sys
from pathlib import Path

from distlock.numbers import is_count

COUNTS = is_count(3)


def test_it_has_asked_before():
    assert COUNTS


def test_it_fails():
    assert not "ever"


def test_it_is_not_in_a_cold_process():
    assert sys.modules["__main__"].__spec__.name != "tests.mutation.cold"


def test_it_leaves_a_process():
    if child := os.fork():
        Path("left").write_text(str(child))
    else:
        os.setsid()
        while True:
            signal.pause()
"""
LATCH = "tests/backends/redis/test_latches.py::test_its_keys_have_an_end_and_a_slot_of_their_own"


def changes(mutants: list[Mutant]) -> set[tuple[str, str]]:
    return {(mutant.before, mutant.after) for mutant in mutants}


def test_python_is_changed_piece_by_piece() -> None:
    condition = "if waiting is not None and waiting + 1 > LIMIT:"
    assert changes(python_mutants.mutants_of("full.py", PYTHON)) == {
        ("LIMIT = 3", "LIMIT = 4"),
        ("def full(waiting: int | None, grace=1.5):", "def full(waiting: int | None, grace=2.5):"),
        (condition, "if True:"),
        (condition, "if False:"),
        (condition, condition.replace("is not", "is")),
        (condition, condition.replace("and", "or")),
        (condition, condition.replace("+", "-")),
        (condition, condition.replace("1", "2")),
        (condition, condition.replace(">", ">=")),
        ('raise Full(f"{waiting + 1}")', "pass"),
        ("return min(waiting, 60)", "return None"),
        ("return min(waiting, 60)", "return max(waiting, 60)"),
        ("return min(waiting, 60)", "return min(waiting, 0)"),
    }


def test_lua_is_changed_piece_by_piece() -> None:
    condition = "if now <= 0 and not late then"
    assert changes(lua_mutants.mutants_of("keep.lua", LUA)) == {
        (condition, "if true then"),
        (condition, "if false then"),
        (condition, condition.replace("<=", "<")),
        (condition, condition.replace("0", "1")),
        (condition, condition.replace("and", "or")),
        (condition, condition.replace("not ", " ")),
        ("return false", "return true"),
        ("return false", ""),
        ("redis.call('PEXPIRE', KEYS[1], ttl)", "redis.call('EXPIRE', KEYS[1], ttl)"),
        ("redis.call('PEXPIRE', KEYS[1], ttl)", ""),
    }


@pytest.mark.parametrize("path", ["distlock/engine/wait_queue.py", "distlock/web/guard.py"])
def test_every_mutant_is_python_and_no_other_line_moves(path: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    mutants = python_mutants.mutants_of(path, text)
    assert len({mutant.key for mutant in mutants}) == len(mutants) > 100
    for mutant in mutants:
        ast.parse(mutant.text)
        assert mutant.text.count("\n") == text.count("\n"), mutant.diff()


def test_a_mark_stands_before_each_statement_of_lua() -> None:
    marked = lua_mutants.with_marks("keep.lua", LUA)
    assert marked.replace("redis.log(redis.LOG_WARNING, '@keep.lua:3') ", "").count("redis.log") == 3
    assert marked.count("\n") == LUA.count("\n")


def test_an_elseif_belongs_to_its_if() -> None:
    text = "if a then\n  b()\nelseif c and\n    d then\n  e()\nend\n"
    assert [lua_mutants.begin_of_statement(text, number) for number in (1, 2, 3, 5)] == [1, 2, 1, 5]


def test_the_time_in_the_log_says_which_test_has_run_a_statement(tmp_path: Path) -> None:
    notes = [{"test": "first", "began": 0.0}, {"test": "second", "began": 10.0}]
    (tmp_path / "notes").write_text("\n".join(json.dumps(note) for note in notes))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.log").write_text(
        "7:M 01 Jan 1970 00:00:09.900 # @keep.lua:3\n"
        "7:M 01 Jan 1970 00:00:10.000 * Ready to accept connections\n"
        "7:M 01 Jan 1970 00:00:10.001 # @keep.lua:3\n"
        "7:M 01 Jan 1970 00:00:10.001 # @keep.lua:4\n"
    )
    found = lines_of_lua(tmp_path / "notes", tmp_path / "logs")
    assert found == {"keep.lua:3": ["first", "second"], "keep.lua:4": ["second"]}


def test_lines_that_have_moved_since_they_were_recorded_are_found(tmp_path: Path) -> None:
    (tmp_path / "before.py").write_text("a()\nb()\nc()\n")
    assert moved_lines(tmp_path / "before.py", "new()\na()\nc()\n") == {1: 2, 3: 3}
    assert moved_lines(tmp_path / "unknown.py", "a()\n") == {}


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    tree = Tree(tmp_path_factory.mktemp("mutation") / "tree")
    tree.update()
    (tree.place / "tests/core/test_planted.py").write_text(PLANTED)
    collected = [
        "tests/core/test_numbers.py",
        "tests/core/test_planted.py",
        "tests/backends/redis/test_latches.py",
    ]
    seconds = {ONE: 0.1, LIMIT: 0.1, FAILING: 0.01, LATCH: 0.1, WARM: 0.1, LEAVING: 0.1, EARLY: 0.1}
    trials = Trials(tree, collected, seconds, shortest_timeout=15)
    yield trials
    trials.close()


def mutant(path: str, before: str, after: str) -> Mutant:
    of = lua_mutants.mutants_of if path.endswith(".lua") else python_mutants.mutants_of
    mutants = of(path, (ROOT / path).read_text("utf-8"))
    return next(one for one in mutants if (one.before, one.after) == (before, after))


def test_a_mutant_is_killed_by_a_test_that_passes_without_it(trials: Trials) -> None:
    changed = mutant(NUMBERS, "if not is_seconds(value, zero=zero, most=most):", "if False:")
    outcome = trials.play(changed, [FAILING, LIMIT, ONE])
    assert (outcome.state, outcome.by) == (KILLED, ONE)


def test_one_that_no_test_notices_survives(trials: Trials) -> None:
    changed = mutant(NUMBERS, "if seconds < 0:", "if False:")
    assert trials.play(changed, [FAILING, LIMIT, ONE]).state == SURVIVED


def test_one_whose_line_no_test_runs_is_untested(trials: Trials) -> None:
    assert trials.play(mutant(NUMBERS, "if seconds < 0:", "if False:"), []).state == UNTESTED


def test_one_in_what_runs_while_the_module_is_imported_is_played_too(trials: Trials) -> None:
    outcome = trials.play(mutant(NUMBERS, "MOST_PERMITS = 1_000_000", "MOST_PERMITS = 0"), [LIMIT])
    assert (outcome.state, outcome.by) == (KILLED, LIMIT)


def test_one_in_such_lines_is_not_killed_by_a_test_that_fails_in_a_process_of_its_kind(
    trials: Trials,
) -> None:
    changed = mutant(NUMBERS, "MOST_PERMITS = 1_000_000", "MOST_PERMITS = 0")
    assert trials.play(changed, [WARM]).state == SURVIVED


def test_one_that_runs_before_any_test_is_played_in_a_process_that_has_not_run_it(trials: Trials) -> None:
    counts = "return isinstance(value, int) and not isinstance(value, bool) and value >= 1"
    changed = mutant(NUMBERS, counts, "return None")
    assert trials.play(changed, [EARLY]).state == SURVIVED
    assert trials.play(changed, [EARLY], cold=True).by == EARLY


def test_a_process_that_a_test_has_forked_and_left_is_ended(trials: Trials) -> None:
    changed = mutant(NUMBERS, "if seconds < 0:", "if False:")
    assert trials.play(changed, [LEAVING]).state == SURVIVED
    assert not psutil.pid_exists(int((trials.tree.place / "left").read_text()))


def test_one_that_never_ends_is_timed_out(trials: Trials) -> None:
    changed = mutant(NUMBERS, "if not is_seconds(value, zero=zero, most=most):", "if False:")
    endless = replace(
        changed,
        text=changed.text.replace("    if False:\n", "    while True:\n        continue\n    if 0:\n"),
    )
    assert trials.play(endless, [ONE]).state == TIMED_OUT


def test_one_of_a_script_of_redis_is_killed(trials: Trials) -> None:
    changed = mutant(SCRIPT, "redis.call('SADD', KEYS[2], ARGV[3])", "")
    outcome = trials.play(changed, [LATCH])
    assert (outcome.state, outcome.by) == (KILLED, LATCH)


def test_an_explanation_is_of_one_of_several_equal_changes(tmp_path: Path) -> None:
    text = "def waits():\n    end()\n    end()\n"
    first, second = python_mutants.mutants_of("waits.py", text)
    entry = "[['waits.py']]\nfunction = 'waits'\nbefore = 'end()'\nafter = 'pass'\nwhy = 'It has ended.'\n"
    (tmp_path / "survivors.toml").write_text(entry + "nth = 1\n" + entry.replace("end()", "else()"))
    [explained, _] = explanations(tmp_path / "survivors.toml")
    assert (explained.fits(first), explained.fits(second)) == (False, True)


def test_each_explanation_is_of_a_mutant_that_there_is() -> None:
    for one in explanations():
        text = (ROOT / one.path).read_text("utf-8")
        of = lua_mutants.mutants_of if one.path.endswith(".lua") else python_mutants.mutants_of
        assert any(one.fits(each) for each in of(one.path, text)), one
        assert len(one.why) > 20, one
