from __future__ import annotations

import pytest

from distlock.errors import InvalidName
from distlock.web.dummy import DummyLocks


def test_everybody_gets_the_lock_at_once() -> None:
    locks = DummyLocks()
    with locks.lock("product_1") as first, locks.lock("product_1") as second:
        first.check()
        second.check()
        assert not first.lost
        assert locks.lock("product_1").acquire(timeout=0)


def test_fences_grow() -> None:
    locks = DummyLocks(era=3)
    with locks.lock("product_1") as first:
        pass
    with locks.lock("product_1") as second:
        pass
    assert second.fence > first.fence
    assert second.fence.era == 3


def test_several_names_have_several_fences() -> None:
    with DummyLocks().lock("b", "a", "b") as grant:
        assert grant.names == ("a", "b")
        assert set(grant.fences) == {"a", "b"}
        with pytest.raises(AttributeError, match=r"fences\[name\]"):
            _ = grant.fence


def test_a_name_that_no_lock_could_have_is_found() -> None:
    with pytest.raises(InvalidName):
        DummyLocks().lock("")
