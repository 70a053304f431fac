from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from demo_shop.guards import View, guarded


def answer() -> Any:
    return SimpleNamespace(headers={})


def refuse_to_guard(view: View) -> View:
    raise AssertionError("the distributed lock was not asked for")


def test_without_a_guard_two_threads_are_inside_at_once() -> None:
    both = threading.Barrier(2, timeout=10)

    @guarded("none", refuse_to_guard)
    def view(id: int) -> Any:
        both.wait()
        return answer()

    other = threading.Thread(target=view, kwargs={"id": 1})
    other.start()
    view(id=1)
    other.join()
    assert not both.broken


def test_the_process_lock_lets_one_thread_in_at_a_time() -> None:
    inside, leave, entered = threading.Event(), threading.Event(), list[str]()

    @guarded("process", refuse_to_guard)
    def view(id: int) -> Any:
        entered.append(threading.current_thread().name)
        inside.set()
        leave.wait(10)
        return answer()

    first = threading.Thread(target=view, kwargs={"id": 1}, name="first")
    first.start()
    assert inside.wait(10)
    second = threading.Thread(target=view, kwargs={"id": 1}, name="second")
    second.start()
    second.join(0.1)
    assert entered == ["first"]
    leave.set()
    first.join()
    second.join()
    assert entered == ["first", "second"]


def test_the_process_lock_of_one_product_leaves_another_product_alone() -> None:
    both = threading.Barrier(2, timeout=10)

    @guarded("process", refuse_to_guard)
    def view(id: int) -> Any:
        both.wait()
        return answer()

    other = threading.Thread(target=view, kwargs={"id": 2})
    other.start()
    view(id=1)
    other.join()
    assert not both.broken


def test_an_answer_tells_how_long_it_waited_and_worked() -> None:
    @guarded("none", refuse_to_guard)
    def view(id: int) -> Any:
        return answer()

    timing = view(id=1).headers["Server-Timing"]
    assert [part.split(";dur=")[0] for part in timing.split(", ")] == ["wait", "work"]


def test_an_unknown_guard_is_refused() -> None:
    with pytest.raises(KeyError):
        guarded("hope", refuse_to_guard)(lambda id: answer())
