"""Every history of a few callers is as promised, and a planted bug shows in its shortest history."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.histories import automaton, keys, scenes
from tests.histories.page import rows_of
from tests.histories.plants import PLANTS
from tests.histories.process import Scene, quiet
from tests.histories.rules import FAULTS
from tests.histories.search import Search
from tests.histories.services import FAMILIES, REDIS

#: How many states a search may have. The largest one has a fifth of that.
MOST = 100_000
#: These have two holds in one process, and sessions that end: `scripts/histories` plays them, by hand.
BY_HAND = {("zookeeper", "read and write"), ("zookeeper", "permits")}


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """It would be for each of many thousand events."""
    with quiet():
        yield


@pytest.mark.parametrize(("family", "mode"), [one for one in scenes.all_modes() if one not in BY_HAND])
def test_whatever_the_history_nothing_is_wrong(family: str, mode: str) -> None:
    """One fault anywhere. Each call and its answer are one step."""
    found = [
        Search(FAMILIES[family], scene, scenes.kinds(FAMILIES[family]), most=MOST, whole=True).run()
        for scene in scenes.of(FAMILIES[family], mode)
    ]
    assert [(one.wrong, one.history) for one in found if one.wrong] == []
    assert all(one.proved and not one.cut for one in found)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_shows_in_its_shortest_history(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = PLANTS[name]
    search = Search(one.family, one.scene, one.kinds, whole=one.whole)
    one.plant(monkeypatch)
    found = search.run()
    assert found.wrong
    assert not found.wrong.startswith("the key")
    said = {row[0]: row[2] for row in rows_of("bugs")}
    assert said[name.replace("_", " ")] == str(len(found.history))


FORGETTING = {
    "the local variables": lambda patch: patch.setattr(keys, "still_read", lambda code, last: frozenset()),
    "where a generator stands": lambda patch: patch.setattr(keys.Description, "_frames", lambda *_: None),
    "when something ends": lambda patch: patch.setattr(keys.Description, "_end", lambda *_: 0.0),
    "when something was": lambda patch: patch.setattr(keys.Description, "_moment", lambda *_: 0.0),
}


@pytest.mark.parametrize("forgotten", FORGETTING)
def test_a_key_that_forgets_something_is_found(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FORGETTING[forgotten](monkeypatch)
    monkeypatch.setattr(automaton, "SAMPLE", 1)
    search = Search(REDIS, Scene(("WW",)), ("turn", "lost answer"), whole=True)
    assert search.run().wrong.startswith("the key is wrong")


def test_the_page_names_each_planted_bug() -> None:
    assert {row[0] for row in rows_of("bugs")} == {name.replace("_", " ") for name in PLANTS}
    assert {(row[0], row[1]) for row in rows_of("modes")} <= {*scenes.all_modes()}
    assert {row[0] for row in rows_of("faults")} <= {"none", *FAULTS}
