from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from demo_shop import guards
from demo_shop.configuration import Configuration
from demo_shop.guards import Guard, View, guarded
from demo_shop.sale import Refusal, sold_out


def answer() -> Any:
    return SimpleNamespace(headers={}, status=200)


def refuse(refusal: Refusal) -> Any:
    return SimpleNamespace(headers={}, status=refusal.status)


def guard(slug: str) -> guards.Decorator:
    def no_distributed_lock(view: View) -> View:
        raise AssertionError("the distributed lock was not asked for")

    return guarded(
        Configuration(guard=slug), no_distributed_lock, lambda ids: [f"product_{sku}" for sku in ids], refuse
    )


def in_thread(view: View, ids: list[int], name: str = "") -> threading.Thread:
    thread = threading.Thread(target=view, kwargs={"ids": ids}, name=name)
    thread.start()
    return thread


def test_without_a_guard_two_threads_are_inside_at_once() -> None:
    both = threading.Barrier(2, timeout=10)

    @guard("none")
    def view(ids: list[int]) -> Any:
        both.wait()
        return answer()

    other = in_thread(view, [1])
    view(ids=[1])
    other.join()
    assert not both.broken


def test_the_process_lock_lets_one_thread_in_at_a_time() -> None:
    inside, leave, entered = threading.Event(), threading.Event(), list[str]()

    @guard("process")
    def view(ids: list[int]) -> Any:
        entered.append(threading.current_thread().name)
        inside.set()
        leave.wait(10)
        return answer()

    first = in_thread(view, [1, 2], "first")
    assert inside.wait(10)
    second = in_thread(view, [2, 3], "second")
    second.join(0.1)
    assert entered == ["first"]
    leave.set()
    first.join()
    second.join()
    assert entered == ["first", "second"]


def test_the_process_lock_of_one_product_leaves_another_product_alone() -> None:
    both = threading.Barrier(2, timeout=10)

    @guard("process")
    def view(ids: list[int]) -> Any:
        both.wait()
        return answer()

    other = in_thread(view, [2])
    view(ids=[1])
    other.join()
    assert not both.broken


def test_two_carts_in_opposite_orders_do_not_wait_for_each_other() -> None:
    @guard("process")
    def view(ids: list[int]) -> Any:
        return answer()

    def shop(ids: list[int]) -> None:
        for _ in range(500):
            view(ids=ids)

    buyers = [threading.Thread(target=shop, args=(ids,)) for ids in ([1, 2, 3], [3, 2, 1])]
    for buyer in buyers:
        buyer.start()
    for buyer in buyers:
        buyer.join(30)
    assert not any(buyer.is_alive() for buyer in buyers)


def test_who_does_not_get_the_lock_is_turned_away_and_what_was_got_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[str] = []

    class Lock:
        def __init__(self, name: str) -> None:
            self.name = name

        def acquire(self) -> bool:
            taken.append(self.name)
            return self.name != "product_2"

        def release(self) -> None:
            taken.remove(self.name)

    monkeypatch.setitem(guards.GUARDS, "picky", Guard("picky", "", "", lock=lambda _, name: Lock(name)))

    @guard("picky")
    def view(ids: list[int]) -> Any:
        raise AssertionError("nobody may be inside")

    assert view(ids=[3, 2, 1]).status == 423
    assert taken == ["product_2"]  # never got, and so not released


def test_a_refusal_of_the_view_is_an_answer_inside_of_the_lock() -> None:
    @guard("process")
    def view(ids: list[int]) -> Any:
        raise sold_out()

    assert view(ids=[1]).status == 409
    assert view(ids=[1]).status == 409


def test_an_answer_tells_how_long_it_waited_and_worked() -> None:
    @guard("none")
    def view(ids: list[int]) -> Any:
        return answer()

    timing = view(ids=[1]).headers["Server-Timing"]
    assert [part.split(";dur=")[0] for part in timing.split(", ")] == ["wait", "work"]


def test_an_unknown_guard_is_refused() -> None:
    with pytest.raises(KeyError):
        guard("hope")


@pytest.mark.parametrize("guard", ["hope", "for-update"])
def test_a_configuration_that_can_not_be_is_refused(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_GUARD", guard)
    with pytest.raises(SystemExit, match=f"SHOP_GUARD is '{guard}'"):
        guards.configured()
