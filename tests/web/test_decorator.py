from __future__ import annotations

import functools
import linecache
import traceback
from itertools import islice
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from distlock.errors import ConfigurationError
from distlock.web.guard_marks import Guarded, chain, guards_of, passes_on, reached, refusing_as_view, unused
from distlock.web.guard_options import ALL_BUT_GET, GuardOptions


def view(id: int) -> None: ...


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"timeout": -1}, "timeout=-1 has to be a number of seconds, 0 or more"),
        ({"timeout": True}, "timeout=True"),
        ({"ttl": 0}, "ttl=0 has to be a number of seconds, more than 0"),
        ({"ttl": float("nan")}, "ttl=nan"),
        ({"max_hold": 0}, "max_hold=0 has to be a number of seconds, more than 0"),
        ({"alias": ""}, "has to be a key of DISTLOCK"),
        ({"methods": "POST"}, r"write methods=\['POST'\]"),
        ({"methods": []}, "would never lock"),
        ({"methods": ["PSOT"]}, "Did you mean 'POST'"),
        ({"methods": [1]}, "is no HTTP method"),
        ({"fence": ""}, "fence='' has to be True, False, or the name of a database"),
        ({"fence": 3}, "fence=3 has to be True"),
        ({"on_contended": "wait"}, "on_contended='wait' has to be 'respond', 'raise' or 'skip'"),
    ],
)
def test_what_can_never_work_is_an_error_at_import(words: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        GuardOptions(["product_<id>"], **words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("wait", r"distributed_lock\(\) has no 'wait'\. Here that is timeout="),
        ("blocking", r"distributed_lock\(\) has no 'blocking'\. Here that is timeout=0 for blocking=False"),
        ("metods", "no argument 'metods'"),
    ],
)
def test_an_unknown_word_is_an_error_at_import(word: str, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        GuardOptions(["product_<id>"], **{word: 1})  # type: ignore[misc]


def test_methods_may_be_written_small() -> None:
    guarded = Guarded(view, GuardOptions(["stock"], methods=["post"]))
    assert guarded.locks_method("POST")
    assert not guarded.locks_method("GET")


def test_every_method_is_locked_unless_what_is_guarded_or_its_guard_says_otherwise() -> None:
    assert Guarded(view, GuardOptions(["stock"])).locks_method("GET")
    rule = Guarded(view, GuardOptions(["stock"]), methods=ALL_BUT_GET)
    assert rule.locks_method("PATCH")
    assert not rule.locks_method("GET")
    assert Guarded(view, GuardOptions(["stock"], methods=["GET"]), methods=ALL_BUT_GET).locks_method("GET")


def test_head_runs_what_get_runs() -> None:
    assert Guarded(view, GuardOptions(["stock"], methods=["GET"])).locks_method("HEAD")


def generator():
    yield


async def async_generator():
    yield


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_can_not_be_guarded(function: object) -> None:
    with pytest.raises(ConfigurationError, match=r"test_decorator\.\w+ is a generator"):
        Guarded(function, GuardOptions(["stock"]))  # type: ignore[arg-type]


def test_guards_are_found_through_the_decorators_above_them_the_outermost_first() -> None:
    inner = Guarded(view, GuardOptions(["product_<id>"]))

    @functools.wraps(view)
    def guarded(id: int) -> None: ...

    inner.mark(guarded)
    outer = Guarded(guarded, GuardOptions(["stock"]))

    @functools.wraps(guarded)
    def guarded_twice(id: int) -> None: ...

    outer.mark(guarded_twice)

    @functools.wraps(guarded_twice)
    def login_required(id: int) -> None: ...

    assert guards_of(login_required) == [outer, inner]
    assert guards_of(view) == []


def test_a_guard_knows_its_function_by_name() -> None:
    assert Guarded(view, GuardOptions(["product_<id>"])).where.endswith("test_decorator.view")
    assert "partial" in Guarded(functools.partial(view, 1), GuardOptions(["stock"])).where


def test_a_decorator_is_shown_as_it_was_written() -> None:
    told = GuardOptions(["a_<id>", view], alias="other", timeout=0, ttl=2.5, max_hold=9, methods=["post"])
    assert str(told) == (
        'distributed_lock("a_<id>", view, alias="other", timeout=0, ttl=2.5, max_hold=9, methods=["POST"])'
    )
    assert str(GuardOptions(["größe_<id>"])) == 'distributed_lock("größe_<id>")'


def test_a_class_in_the_place_of_a_name_is_told_that_a_lock_needs_one() -> None:
    with pytest.raises(ConfigurationError, match=r"test_decorator\.Shop: A lock needs a name"):
        GuardOptions([Shop])


class Shop:
    """Its handlers call others, of their own and of another object."""

    def get(self, other: Any) -> Any:
        return self.post(other)

    def post(self, other: Any) -> Any:
        return other.delete()

    def delete(self) -> None: ...

    def __call__(self) -> None: ...


class Stall(Shop):
    def get(self, other: Any) -> Any:
        return super().get(other)


class Cart(Shop):
    def get(self, other: Any) -> Any:
        return other().post(self)


@pytest.mark.parametrize(
    ("cls", "methods"), [(Shop, {"get", "post"}), (Stall, {"get", "post"}), (Cart, {"get"})]
)
def test_a_method_reaches_those_of_its_own_object_and_of_its_base_classes(
    cls: type, methods: set[str]
) -> None:
    assert reached(cls, "get") == methods


def test_what_a_function_wraps_is_found_once_each() -> None:
    async def buy() -> None: ...

    def again() -> None: ...

    again.__wrapped__ = again  # type: ignore[attr-defined]
    shop, in_thread = Shop(), async_to_sync(buy)
    assert list(islice(chain(again), 2)) == [again]
    assert list(chain(shop)) == [shop, Shop.__call__]
    assert list(chain(in_thread)) == [in_thread, buy]


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), (("request",), {}), ((view,), {"id": 1}), ((), {"id": 1})]
)
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            [view],
            r"^tests\.web\.test_decorator\.view: A lock needs a name: write @distributed_lock\('product_",
        ),
        (["stock"], r'^@distributed_lock\("stock"\) guards nothing here'),
    ],
)
def test_a_decorator_that_is_called_as_a_view_says_what_was_forgotten(
    names, message: str, args, kwargs
) -> None:
    decorate = refusing_as_view(GuardOptions(names), lambda function: function)
    assert decorate(view) is view
    with pytest.raises(ConfigurationError, match=message):
        decorate(*args, **kwargs)
    assert unused(decorate)
    assert not unused(view)


def test_a_function_that_takes_any_arguments_is_told_from_others() -> None:
    assert passes_on(lambda *args: args)
    assert passes_on(lambda **kwargs: kwargs)
    assert not passes_on(lambda id: id)
    assert not passes_on(object())


@pytest.mark.parametrize("package", ["django_distlock", "flask_distlock"])
@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("'product_<int:id>', time_out=3", "has no argument 'time_out'. Did you mean 'timeout'?"),
        ("'product_<ix>'", "is no argument of this function"),
        ("'product_<ix:id>'", "write 'product_<int:id>'"),
    ],
)
def test_the_traceback_of_a_mistake_ends_with_its_line(package: str, words: str, error: str) -> None:
    line = f"@distributed_lock({words})"
    source = f"from {package} import distributed_lock\n\n\n{line}\ndef buy(id): ...\n"
    linecache.cache["shop.py"] = (len(source), None, source.splitlines(keepends=True), "shop.py")
    with pytest.raises((ConfigurationError, TypeError)) as caught:
        exec(compile(source, "shop.py", "exec"), {"__name__": "shop"})
    told = traceback.format_exception(caught.value)
    assert error in told[-1]
    assert told[-2].splitlines()[:2] == ['  File "shop.py", line 4, in <module>', f"    {line}"]


def test_a_function_without_a_signature_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"max does not tell its arguments.*decorate a 'def'"):
        Guarded(max, GuardOptions(["stock"]))
