from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

import pytest

from distlock.errors import ConfigurationError
from distlock.web.names.bound_names import Names
from distlock.web.names.converters import Malformed
from distlock.web.names.templates import parse


def name(template: str, arguments: dict[str, object]) -> str:
    (made,) = Names([template]).bind(lambda **_: None).of_call((), arguments, 1)
    return made


def test_a_template_is_filled_from_the_arguments() -> None:
    assert name("<slug:shop>_product_<int:id>", {"shop": "berlin", "id": "42"}) == "berlin_product_42"


def test_a_name_without_placeholders_is_itself() -> None:
    assert name("stock", {}) == "stock"


def test_a_bare_placeholder_takes_numbers_and_uuids() -> None:
    assert name("p_<id>", {"id": 42}) == "p_42"
    assert name("p_<id>", {"id": UUID(int=1)}) == "p_00000000-0000-0000-0000-000000000001"


def test_a_bare_placeholder_over_text_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"Write 'product_<int:id>'"):
        name("product_<id>", {"id": "42"})
    with pytest.raises(
        ConfigurationError, match=r"Write 'product_<slug:slug>', or 'int:', 'uuid:', or 'str:'"
    ):
        name("product_<slug>", {"slug": "red-shoe"})


def test_an_object_in_a_placeholder_says_what_to_pass() -> None:
    with pytest.raises(ConfigurationError, match="Pass its key"):
        name("product_<product>", {"product": object()})


def test_a_user_in_a_placeholder_says_what_to_write_in_a_view() -> None:
    class User:
        is_authenticated = True

    with pytest.raises(ConfigurationError, match=r"write 'user_<user\.pk>'.* pass its key.*'buyer'"):
        name("user_<buyer>", {"buyer": User()})


@pytest.mark.attack("A10")
@pytest.mark.parametrize("value", [None, "", "01"])
def test_a_missing_or_malformed_value_names_the_placeholder_and_not_the_value(value: object) -> None:
    with pytest.raises(Malformed, match="<int:id>") as caught:
        name("product_<int:id>", {"id": value})
    assert "01" not in str(caught.value)


@pytest.mark.attack("A05")
@pytest.mark.parametrize("value", ["a\x00b", "\ud800", "x" * 300])
def test_a_value_that_can_not_stand_in_a_name_is_malformed(value: str) -> None:
    with pytest.raises(Malformed):
        name("<str:code>", {"code": value})


@pytest.mark.attack("A12")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("product_{id}", "write 'product_<int:id>'"),
        ("product_%s", "%s in the lock's name 'product_%s' is not filled in: write 'product_<int:id>'"),
        ("product_%(sku)s", "write 'product_<int:sku>'"),
        ("product_{}", "write 'product_<int:id>'"),
        ("product_<int(min=1):id>", "write 'product_<int:id>'"),
        ("product_<string:id>", "write 'product_<str:id>'"),
        ("product_<path:id>", "write 'product_<str:id>'"),
        ("product_<slugg:id>", "write 'product_<slug:id>'"),
        ("product_<float:id>", r"known: int, slug, str, uuid"),
        ("product_<id", "without its partner"),
        ("product_id>", "without its partner"),
        ("product_<>", "does not name an argument"),
        ("product_<product.pk>", "known are query.*write 'product_<int:product>'"),
        ("product_<self.id>", r"is an attribute.*locks\.lock\(f'…\{self\.id\}'\).*write 'product_<int:id>'"),
        ("product_<int:cookie.id>", "known are query.*write 'product_<int:cookie>'"),
        ("product_<int:GET.id>", "write 'product_<int:query.id>'"),
        ("product_<int:post.id>", "write 'product_<int:form.id>'"),
        ("product_<request.POST.id>", "write 'product_<int:form.id>'"),
        ("product_<int:request.query.id>", "write 'product_<int:query.id>'"),
        ("cart_<request.user.id>", "write 'cart_<user.pk>'"),
        ("product_<int:data.id>", "write 'product_<int:json.id>'"),
        ("product_<int:headers.X-Id>", "write 'product_<int:header.X-Id>'"),
        ("product_<querry.id>", "write 'product_<int:query.id>'"),
        ("product_<int:query.>", "names no field of the query: write 'product_<int:query.id>'"),
        ("product_<int:form.a b>", "names no field of the form"),
        (
            "product_<int:query.a.b>",
            r"only JSON bodies have .*needs a callable.*write 'product_<int:query.b>'",
        ),
        ("product_<int:form.order.id[]>", r"only JSON bodies have .*write 'product_<int:form.id\[\]>'"),
        ("product_<int:query.a.>", "names no field of the query: write 'product_<int:query.id>'"),
        ("product_<int:query.id[].x>", "names no field of the query"),
        ("product_<str:header.X_Shop>", "write 'product_<str:header.X-Shop>'"),
        ("product_<str:header.>", "write 'product_<str:header.X-Shop>'"),
        ("product_<int:json.>", "no path into the JSON body: write 'product_<int:json.order.id>'"),
        ("product_<int:json.a..b>", "no path into the JSON body"),
        ("product_<int:json.lines[0].sku>", "no path into the JSON body"),
        ("product_<int:json.lines[][]>", "no path into the JSON body"),
        ("product_<int:lines[].sku>", "write 'product_<int:json.lines"),
        ("cart_<user.id>", "write 'cart_<user.pk>'"),
        ("cart_<current_user.id>", "write 'cart_<user.pk>'"),
        ("product_<query.id>", "Write 'product_<int:query.id>'"),
        ("product_<json.id>", "Write 'product_<int:json.id>'"),
        ("shop_<slug:header.X-Shop>_<form.id>", "Write 'shop_<slug:header.X-Shop>_<int:form.id>'"),
        ("p_<int:json.a[].x>_<int:json.b[].y>", r"'p_<int:json.a\[\].x>', 'p_<int:json.b\[\].y>'"),
        ("p_<int:query.a[]>_<int:query.b[]>", "goes through two lists"),
        ("", "empty"),
        ("x" * 300, "at most 255"),
        ("tab\there", r"U\+0009"),
    ],
)
def test_what_is_no_template_gets_an_error_that_says_what_to_write(wrong: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(wrong)


def test_the_templates_of_the_page_are_templates() -> None:
    page = Path(__file__).parents[3] / "docs/reference/names.md"
    written = re.findall(r"`([^`{}]*<[^`]*>)`", page.read_text("utf-8"))
    assert len(written) > 10
    for text in written:
        parse(text)


def test_what_is_no_text_is_no_template() -> None:
    with pytest.raises(ConfigurationError, match="not int"):
        parse(42)  # type: ignore[arg-type]
