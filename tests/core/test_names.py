from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.errors import ConfigurationError, InvalidName
from distlock.names import MAX_LENGTH, check_name, check_prefix, encode


@pytest.mark.parametrize("name", ["product_1", "a", "x" * MAX_LENGTH, "\u00e9", "\U0001f600", " ", "a/b{c}"])
def test_text_is_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("x" * (MAX_LENGTH + 1), "256 characters"),
        ("a\x00b", r"U\+0000"),
        ("a\r\nb", r"U\+000D"),
        ("a\x7f", r"U\+007F"),
        ("a\x85", r"U\+0085"),
        ("\ud83d", r"U\+D83D"),
        ("\ufffe", r"U\+FFFE"),
        (1, "not int"),
        (None, "not NoneType"),
        (b"product_1", "not bytes"),
    ],
)
def test_what_is_not_text_is_refused_with_a_reason(name: object, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        check_name(name)


@pytest.mark.parametrize("prefix", ["a:b", "a b", "\u00e9", "x" * 65, None, 1])
def test_a_prefix_is_plain(prefix: object) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        check_prefix(prefix)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=300)


@given(TEXT, TEXT)
def test_different_keys_are_encoded_differently(one: str, two: str) -> None:
    assert (encode(one) == encode(two)) == (one == two)


@given(TEXT)
def test_an_encoded_key_is_short_and_plain(key: str) -> None:
    encoded = encode(key)
    assert len(encoded) <= 200
    assert not set(encoded) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-%~")


def test_keys_that_differ_only_in_the_part_that_is_cut_off_stay_different() -> None:
    assert encode("x" * 250 + "a") != encode("x" * 250 + "b")
    assert encode(encode("x" * 250)) != encode("x" * 250)
