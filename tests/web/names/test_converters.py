from __future__ import annotations

import enum
from uuid import UUID

import pytest
from django import forms
from hypothesis import given
from hypothesis import strategies as st
from rest_framework import serializers

from distlock.web.names.converters import CONVERTERS, Malformed, Unfit, convert_plain

convert_int, convert_slug = CONVERTERS["int"], CONVERTERS["slug"]
convert_str, convert_uuid = CONVERTERS["str"], CONVERTERS["uuid"]


class Product(enum.IntEnum):
    ECS = 7


@pytest.mark.attack("A09")
@pytest.mark.parametrize(
    "spelling", ["01", "+1", "\uff11", " 1", "1 ", "1.0", "1_0", "-0", "0x1", "1\n", "\u0661", ""]
)
def test_another_spelling_of_a_number_is_refused(spelling: str) -> None:
    with pytest.raises(Malformed):
        convert_int(spelling)


@given(st.integers())
def test_a_number_and_its_text_are_one_lock(number: int) -> None:
    assert convert_int(number) == convert_int(str(number)) == convert_plain(number)


@pytest.mark.attack("A09")
@given(st.from_regex(r"\s*[-+]?[\d_]{1,6}\s*", fullmatch=True))
def test_all_texts_that_python_reads_as_one_number_are_one_lock_or_refused(text: str) -> None:
    try:
        number = int(text)
    except ValueError:
        return
    try:
        written = convert_int(text)
    except Malformed:
        return
    assert written == str(number)


@given(st.uuids(), st.booleans())
def test_a_uuid_is_one_lock_in_either_case(uuid: UUID, upper: bool) -> None:
    text = str(uuid).upper() if upper else str(uuid)
    assert convert_uuid(text) == convert_uuid(uuid) == str(uuid)


@pytest.mark.parametrize("text", ["{%s}", "urn:uuid:%s", " %s", "%s0"])
def test_other_spellings_of_a_uuid_are_refused(text: str) -> None:
    with pytest.raises(Malformed):
        convert_uuid(text % UUID(int=5))
    with pytest.raises(Malformed):
        convert_uuid(UUID(int=5).hex)


@pytest.mark.parametrize("text", ["", "a b", "ä", "a/b", "a\n"])
def test_a_slug_is_ascii_letters_digits_dash_and_underscore(text: str) -> None:
    assert convert_slug("ECS-1c_2") == "ECS-1c_2"
    with pytest.raises(Malformed):
        convert_slug(text)


def test_str_keeps_the_spelling_and_refuses_nothing_but_emptiness() -> None:
    assert convert_str("ECS:1C2048M ä") == "ECS:1C2048M ä"
    with pytest.raises(Malformed):
        convert_str("")


def test_a_number_of_five_thousand_digits_is_malformed_and_no_crash() -> None:
    with pytest.raises(Malformed):
        convert_int(10**5000)


def test_an_enum_is_the_number_that_it_is() -> None:
    assert convert_int(Product.ECS) == convert_plain(Product.ECS) == "7"


@pytest.mark.parametrize("converter", [convert_int, convert_slug, convert_str, convert_uuid, convert_plain])
@pytest.mark.parametrize("value", [True, 1.0, b"1", object(), ["1"]])
def test_a_type_that_never_fits_is_an_error_of_the_template(converter, value: object) -> None:
    with pytest.raises(Unfit):
        converter(value)


@pytest.mark.attack("A08")
@pytest.mark.parametrize("blank", [" ", "\t", "\u00a0", "\u3000"])
def test_blanks_around_text_make_no_second_lock(blank: str) -> None:
    """Form fields of Django and REST framework strip them before the view looks."""
    spellings = ("a b", f"{blank}a b", f"a b{blank}", f"{blank}a b{blank}")
    assert {CONVERTERS["str"](text) for text in spellings} == {"a b"}
    assert {serializers.CharField().to_internal_value(text) for text in spellings} == {"a b"}
    assert {forms.CharField().clean(text) for text in spellings} == {"a b"}
    with pytest.raises(Malformed, match="is empty"):
        CONVERTERS["str"](blank)
