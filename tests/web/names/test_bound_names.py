from __future__ import annotations

import functools

import pytest

from distlock.errors import ConfigurationError
from distlock.web.names.bound_names import Names
from distlock.web.names.converters import Malformed


def buy(request: object, id: int, amount: int = 1) -> None: ...


def names(*sources, function=buy, args=(None,), kwargs=None, maximum=32, first=()):
    return Names(sources).bind(function).of_call(args, kwargs or {}, maximum, first=first)


def test_arguments_are_found_however_they_are_passed() -> None:
    assert names("product_<id>", kwargs={"id": 1}) == ["product_1"]
    assert names("product_<id>", args=(None, 1)) == ["product_1"]


def test_a_default_is_an_argument_too() -> None:
    assert names("<amount>_of_<id>", args=(None, 7)) == ["1_of_7"]


def test_only_the_call_itself_is_looked_at() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'id'"):
        names("product_<id>")


def test_several_names_come_in_order_and_once() -> None:
    assert names("p_<id>", "shop", "p_<int:id>", kwargs={"id": 1}) == ["p_1", "shop"]


@pytest.mark.attack("A11")
def test_an_argument_that_the_function_does_not_have_is_found_at_once() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'product_<int:id>'"):
        Names(["product_<int:idd>"]).bind(buy)
    with pytest.raises(
        ConfigurationError, match=r"^tests\.web\.names\.test_bound_names\.buy: .*It has: request, id, amount"
    ):
        Names(["<slug:shop>"]).bind(buy)


def test_the_user_of_the_request_is_guessed() -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'user_<user\.pk>'"):
        Names(["user_<user>"]).bind(buy)


def test_an_argument_in_other_letters_is_guessed() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'product_<id>'"):
        Names(["product_<ID>"]).bind(buy)


def test_what_a_call_can_not_fill_in_names_the_function() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^tests\.web\.names\.test_bound_names\.buy: <id> .*'product_<slug:id>'"
    ):
        names("product_<id>", kwargs={"id": "red-shoe"})
    with pytest.raises(
        ConfigurationError, match=r"^tests\.web\.names\.test_bound_names\.buy: A callable for a lock's"
    ):
        names(lambda *args, **kwargs: None, kwargs={"id": 1})


def test_behind_open_keyword_arguments_it_is_found_at_the_call() -> None:
    def view(request: object, **kwargs: object) -> None: ...

    assert names("product_<id>", function=view, kwargs={"id": 3}) == ["product_3"]
    with pytest.raises(ConfigurationError, match="is no argument of this function"):
        names("product_<id>", function=view, kwargs={"pk": 3})


def test_the_signature_is_that_of_the_innermost_function() -> None:
    @functools.wraps(buy)
    def wrapper(*args: object, **kwargs: object) -> None: ...

    assert names("product_<id>", function=wrapper, args=(None, 1)) == ["product_1"]


def test_a_callable_makes_one_name_or_several_from_the_call() -> None:
    def by_shop(request: object, id: int) -> list[str]:
        return [f"shop_{request}", f"product_{id}"]

    assert names(by_shop, args=("berlin",), kwargs={"id": 2}) == ["shop_berlin", "product_2"]
    assert names(lambda id: f"p_{id}", args=(), kwargs={"id": 2}) == ["p_2"]


def test_a_callable_of_a_view_gets_the_request_first() -> None:
    assert names(lambda request, id: f"{request}_{id}", args=(), kwargs={"id": 2}, first=("r",)) == ["r_2"]


@pytest.mark.parametrize("made", ["", "a\nb", [""], [None], []])
def test_what_a_callable_makes_is_checked(made: object) -> None:
    with pytest.raises(Malformed):
        names(lambda *args: made)


def test_a_callable_that_makes_no_names_at_all_is_an_error_of_the_site() -> None:
    with pytest.raises(ConfigurationError, match="not NoneType"):
        names(lambda *args: None)


def test_more_names_than_allowed_are_refused_before_they_are_all_made() -> None:
    def endless(*args: object):
        number = 0
        while True:
            number += 1
            yield f"p_{number}"

    with pytest.raises(Malformed, match="more than 3"):
        names(endless, maximum=3)


def test_without_names_there_is_nothing_to_lock() -> None:
    with pytest.raises(ConfigurationError, match="needs a name"):
        Names([])
