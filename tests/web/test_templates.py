from __future__ import annotations

from uuid import UUID

import pytest

from distlock.errors import ConfigurationError
from distlock.web.converters import Malformed
from distlock.web.templates import parse


def test_a_template_is_filled_from_the_arguments() -> None:
    template = parse("<slug:shop>_product_<int:id>")
    assert template.name({"shop": "berlin", "id": "42"}) == "berlin_product_42"


def test_a_name_without_placeholders_is_itself() -> None:
    assert parse("stock").name({}) == "stock"


def test_a_bare_placeholder_takes_numbers_and_uuids() -> None:
    assert parse("p_<id>").name({"id": 42}) == "p_42"
    assert parse("p_<id>").name({"id": UUID(int=1)}) == "p_00000000-0000-0000-0000-000000000001"


def test_a_bare_placeholder_over_text_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"Write 'product_<int:id>'"):
        parse("product_<id>").name({"id": "42"})


def test_an_object_in_a_placeholder_says_what_to_pass() -> None:
    with pytest.raises(ConfigurationError, match="Pass its key"):
        parse("product_<product>").name({"product": object()})


@pytest.mark.parametrize("value", [None, "", "01"])
def test_a_missing_or_malformed_value_names_the_placeholder_and_not_the_value(value: object) -> None:
    with pytest.raises(Malformed, match="<int:id>") as caught:
        parse("product_<int:id>").name({"id": value})
    assert "01" not in str(caught.value)


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "x" * 300])
def test_a_value_that_can_not_stand_in_a_name_is_malformed(value: str) -> None:
    with pytest.raises(Malformed):
        parse("<str:code>").name({"code": value})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("product_{id}", "write 'product_<int:id>'"),
        ("product_{}", "write 'product_<int:id>'"),
        ("product_<int(min=1):id>", "write 'product_<int:id>'"),
        ("product_<string:id>", "write 'product_<str:id>'"),
        ("product_<path:id>", "write 'product_<str:id>'"),
        ("product_<slugg:id>", "write 'product_<slug:id>'"),
        ("product_<float:id>", r"known: int, slug, str, uuid"),
        ("product_<id", "without its partner"),
        ("product_id>", "without its partner"),
        ("product_<>", "does not name an argument"),
        ("product_<product.pk>", "does not name an argument"),
        ("product_<int:query.id>", "not available in this version"),
        ("product_<int:json.lines[].sku>", "not available in this version"),
        ("cart_<user.pk>", "not available in this version"),
        ("", "empty"),
        ("x" * 300, "at most 255"),
        ("tab\there", r"U\+0009"),
    ],
)
def test_what_is_no_template_gets_an_error_that_says_what_to_write(wrong: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(wrong)


def test_what_is_no_text_is_no_template() -> None:
    with pytest.raises(ConfigurationError, match="not int"):
        parse(42)  # type: ignore[arg-type]
