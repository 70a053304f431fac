"""Two spellings of one product are one lock or a 400, on every source, with one answer in both frameworks.

The judge is the view: what it reads by itself, in its framework's usual way, has to be what is locked.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable
from typing import Any
from uuid import UUID

import flask
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.web.both import Both, Got, Sent

NUMBERS = [
    "1",
    "01",
    "+1",
    "-1",
    "-0",
    "1.0",
    "1e0",
    "1_0",
    " 1",
    "1 ",
    "\uff11",
    "\u0661",
    "1\n",
    "1\0",
    "2",
    "",
]
WORDS = ["ecs", "ECS", "e%63s", "\u00e9", "e\u0301", "a b", "a+b", "a,b", "\ufffd", "1", "01", ""]
IDS = [str(UUID(int=10)), str(UUID(int=10)).upper(), UUID(int=10).hex, f"{{{UUID(int=10)}}}"]

#: How a view makes a product of what it read. Form fields strip the blanks around text.
PRODUCTS: dict[str, Callable[[str], object]] = {
    "int": int,
    "slug": str,
    "str": lambda seen: str(seen).strip(),
    "uuid": UUID,
}

texts = st.sampled_from(NUMBERS + WORDS + IDS) | st.text(max_size=3)


@st.composite
def escaped(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> bytes:
    """A text as a browser, a hand or an enemy puts it in a query."""
    raw = draw(texts).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 9)) == 0:
        raw += draw(
            st.sampled_from([b"\xff", b"\xc3", b"%", b"%F", b"%ff", b"%zz", b";id=2", b"&", b"=", b"+"])
        )
    written = b""
    for byte in raw:
        escape = draw(st.integers(0, 2)) == 0 or byte in b"&=% +"
        written += b"%%%02X" % byte if escape else bytes([byte])
    return written


@st.composite
def pairs(draw: st.DrawFn) -> bytes:
    """A query, or the body of a form."""
    keys = escaped(st.sampled_from(["id", "id", "id", "Id", "id[]", "x"]))
    made = draw(st.lists(st.tuples(keys, escaped(texts)), max_size=3))
    separator = draw(st.sampled_from([b"&", b"&", b"&", b";", b"&&"]))
    return separator.join(key + draw(st.sampled_from([b"=", b"=", b"=", b""])) + value for key, value in made)


def judge(both: Both, sent: Sent, product: Callable[[Any], object]) -> Got:
    """Both answer alike, and what they lock is what their views then read."""
    answers = both.django(sent), both.flask(sent)
    assert answers[0] == answers[1]
    for got in answers:
        assert got.status in {200, 400}
        if got.status == 400:
            assert "lock_name_invalid" in got.body
        else:
            assert got.names == (f"p_{product(got.seen)}",)
    return answers[0]


@pytest.fixture(params=PRODUCTS, scope="module")
def converter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def query(converter: str) -> Both:
    looks = (lambda request: request.GET["id"], lambda request: request.args["id"])
    return Both(f"p_<{converter}:query.id>", looks=looks)


@pytest.fixture(scope="module")
def form(converter: str) -> Both:
    looks = (lambda request: request.POST["id"], lambda request: request.form["id"])
    return Both(f"p_<{converter}:form.id>", looks=looks)


@pytest.fixture(scope="module")
def body(converter: str) -> Both:
    looks = (
        lambda request: json.loads(request.body)["order"]["id"],
        lambda request: request.get_json()["order"]["id"],
    )
    return Both(f"p_<{converter}:json.order.id>", looks=looks)


@pytest.fixture(scope="module")
def header(converter: str) -> Both:
    looks = (lambda request: request.headers["X-Id"], lambda request: request.headers["X-Id"])
    return Both(f"p_<{converter}:header.X-Id>", looks=looks)


@given(raw=pairs() | st.binary(max_size=12))
def test_a_query(query: Both, converter: str, raw: bytes) -> None:
    judge(query, Sent(query=raw), PRODUCTS[converter])


@pytest.mark.attack("A08")
@given(
    raw=pairs() | st.binary(max_size=12), charset=st.sampled_from(["", "; charset=UTF-8", "; charset=utf-16"])
)
def test_a_form(form: Both, converter: str, raw: bytes, charset: str) -> None:
    sent = Sent(body=raw, content_type=f"application/x-www-form-urlencoded{charset}")
    got = judge(form, sent, PRODUCTS[converter])
    assert not charset.endswith("16") or got.status == 400


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """JSON as somebody writes it by hand: keys twice, numbers in every spelling, escapes."""
    strings = texts.map(json.dumps) | st.text(max_size=3).map(
        lambda text: json.dumps(text, ensure_ascii=False)
    )
    numbers = st.sampled_from(
        ["1", "-1", "-0", "01", "+1", "1.0", "1e0", "1E400", "NaN", "-Infinity", "1" * 300]
    )
    others = st.sampled_from(["true", "null", "[]", "{}", "[1]", '{"id":1}', "0x1", "'1'", '"\\ud800"', ""])
    keys = st.sampled_from(['"id"', '"id"', '"id"', '"\\u0069d"', '"ID"', "id"])
    members = st.tuples(keys, strings | numbers | others).map(":".join)
    orders = st.lists(members, max_size=2).map(lambda made: f'{{"order":{{{",".join(made)}}}}}')
    twice = st.tuples(orders, orders).map(lambda made: f"{made[0][:-1]},{made[1][1:]}")
    encoding = draw(st.sampled_from(["utf-8"] * 9 + ["utf-8-sig", "utf-16", "utf-32-le", "latin-1"]))
    return draw(orders | orders | twice).encode(encoding, "backslashreplace")


@pytest.mark.attack("A08")
@given(raw=documents() | st.binary(max_size=8))
def test_a_json_body(body: Both, converter: str, raw: bytes) -> None:
    judge(body, Sent(body=raw, content_type="application/json"), PRODUCTS[converter])


@given(value=texts | st.text(st.characters(max_codepoint=255), max_size=4))
def test_a_header(header: Both, converter: str, value: str) -> None:
    judge(header, Sent(headers={"X-Id": value.encode().decode("latin-1")}), PRODUCTS[converter])


def part(name: bytes, value: bytes, *more: bytes) -> bytes:
    return b"\r\n".join([b"--B", b'Content-Disposition: form-data; name="%s"' % name, *more, b"", value, b""])


UPLOAD = part(b"id", b"1").replace(b'name="id"', b'name="id"; filename="id.txt"')
values = texts.map(str.encode) | st.binary(max_size=3)
fields = st.builds(part, st.sampled_from([b"id", b"id", b"id", b"ID", b"id[]", b"x"]), values)
typed = st.builds(part, st.just(b"id"), values, st.just(b"Content-Type: text/plain; charset=utf-8"))
odd = st.sampled_from(
    [
        part(b" id", b"1"),
        part(b"i\\d", b"1"),
        part(b"id", b"MTIz", b"Content-Transfer-Encoding: base64"),
        part(b"id", b"\xe9", b"Content-Type: text/plain; charset=latin-1"),
        part(b"id", b"1")[:-2],
        b"--B\r\n\r\n1\r\n",
    ]
)


@given(parts=st.lists(fields | typed | st.just(UPLOAD), max_size=2))
def test_a_multipart_form(form: Both, converter: str, parts: list[bytes]) -> None:
    sent = Sent(body=b"".join(parts) + b"--B--\r\n", content_type="multipart/form-data; boundary=B")
    judge(form, sent, PRODUCTS[converter])


@given(
    parts=st.lists(fields | odd, max_size=2), end=st.sampled_from([b"--B--\r\n", b"--B--", b"--B\r\n", b""])
)
def test_an_odd_multipart_form_is_locked_as_its_view_reads_it(
    form: Both, converter: str, parts: list[bytes], end: bytes
) -> None:
    """The frameworks' parsers differ on what no browser sends. Then so do their views."""
    sent = Sent(body=b"".join(parts) + end, content_type="multipart/form-data; boundary=B")
    for got in (form.django(sent), form.flask(sent)):
        assert got.status == 400 or got.names == (f"p_{PRODUCTS[converter](got.seen)}",)


@pytest.mark.attack("A08")
@pytest.mark.parametrize("code", ["ecs", "ECS", "eCs"])
def test_the_number_of_a_row_is_one_name_for_what_its_database_takes_for_equal(code: str) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE product (code TEXT COLLATE NOCASE)")
        database.executemany("INSERT INTO product VALUES (?)", [("other",), ("ecs",)])

        def product(*request: Any) -> str:
            sent = flask.request.args if flask.has_request_context() else request[0].GET
            [(number,)] = database.execute("SELECT rowid FROM product WHERE code = ?", [sent["code"]])
            return f"product_{number}"

        assert Both(product)(Sent(query=f"code={code}".encode())).names == ("product_2",)
