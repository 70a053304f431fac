from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.both import Both, Look, Sent

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=B"
FIELD = b'--B\r\nContent-Disposition: form-data; name="id"\r\n\r\n7\r\n--B--\r\n'


def lines(*skus: object) -> Sent:
    return Sent(body=json.dumps({"lines": [{"sku": sku} for sku in skus]}).encode(), content_type=JSON)


def document(text: str | bytes, content_type: str = JSON, **words: Any) -> Sent:
    return Sent(body=text if isinstance(text, bytes) else text.encode(), content_type=content_type, **words)


@pytest.mark.parametrize(
    ("template", "sent", "names"),
    [
        ("p_<int:query.id>", Sent(query=b"id=7&x=%FF"), ["p_7"]),
        ("p_<int:query.id>", Sent(query=b"id=7", method="GET"), ["p_7"]),
        ("p_<int:query.id-b>", Sent(query=b"id-b=7"), ["p_7"]),
        ("p_<int:query.id[]>", Sent(query=b"id=7&id=8&id=7"), ["p_7", "p_8"]),
        ("p_<str:query.\u540d>", Sent(query="\u540d=\u540d".encode()), ["p_\u540d"]),
        ("p_<int:query.id>", Sent(query=b"id=7", content_type="a/b; charset=latin-1"), ["p_7"]),
        ("p_<int:form.id>", document("id=7", FORM), ["p_7"]),
        ("p_<int:form.id[]>", document("id=7&id=8", FORM), ["p_7", "p_8"]),
        ("p_<int:form.id>", document(FIELD, MULTIPART), ["p_7"]),
        ("p_<slug:header.X-Shop>", Sent(headers={"X-Shop": "berlin"}), ["p_berlin"]),
        ("p_<slug:header.x-shop>", Sent(headers={"X-Shop": "berlin"}), ["p_berlin"]),
        ("p_<int:json.id>", document('{"id": 7}'), ["p_7"]),
        ("p_<int:json.id>", document('{"id": 7}', method="PUT"), ["p_7"]),
        ("p_<int:json.id>", document('{"id": 7}', "application/vnd.api+json; charset=UTF-8"), ["p_7"]),
        ("p_<int:json.id>", document('{"id": "7", "x": {"a": 1, "a": 2}}'), ["p_7"]),
        (
            "p_<uuid:json.id>",
            document('{"id": "0000000A-0000-0000-0000-000000000000"}'),
            [f"p_{10:08x}" + "-0000" * 3 + "-" + "0" * 12],
        ),
        ("p_<int:json.order.id>", document('{"order": {"id": 7}}'), ["p_7"]),
        ("p_<int:json.lines[].sku>", lines(2, 1, "2"), ["p_1", "p_2"]),
        ("p_<int:json.skus[]>", document('{"skus": [2, 1]}'), ["p_1", "p_2"]),
        ("p_<int:json[].sku>", document('[{"sku": 7}]'), ["p_7"]),
        ("p_<int:json[]>", document("[7]"), ["p_7"]),
        ("p_<int:json.a[].b[]>", document('{"a": [{"b": [1, 2]}, {"b": [3]}]}'), ["p_1", "p_2", "p_3"]),
        (
            "<int:json.l[].s>_<int:json.l[].p>",
            document('{"l": [{"s": 1, "p": 2}, {"s": 3, "p": 4}]}'),
            ["1_2", "3_4"],
        ),
        (
            "<int:query.s>_<int:json.l[]>",
            document("[]", query=b"s=1") and document('{"l": [2, 3]}', query=b"s=1"),
            ["1_2", "1_3"],
        ),
    ],
)
def test_a_part_of_the_request_makes_names(template: str, sent: Sent, names: list[str]) -> None:
    both = Both(template)
    got = both(sent)
    assert (got.status, sorted(got.names or ())) == (200, names), got.body


@pytest.mark.attack("A11")
@pytest.mark.parametrize(
    ("template", "sent", "problem"),
    [
        ("<int:query.id>", Sent(), "is missing"),
        ("<int:query.id>", Sent(query=b"id"), "is empty"),
        ("<int:query.id>", Sent(query=b"id=7&id=7"), "is given twice"),
        ("<int:query.id>", Sent(query=b"id=7&%69d=8"), "is given twice"),
        ("<int:query.id>", document("id=7", FORM), "is missing"),
        ("<int:query.id[]>", Sent(), "is missing"),
        ("<int:query.id[]>", Sent(query=b"id=7&id="), "is empty"),
        ("<str:query.id>", Sent(query=b"id=%FF"), "is not UTF-8"),
        ("<str:query.id>", Sent(query=b"id=7&\xff"), "is not UTF-8"),
        ("<str:query.id>", Sent(query=b"id=%00"), "U+0000"),
        ("<str:query.id>", Sent(query=b"id=" + b"x" * 300), "at most 255"),
        ("<str:query.id>", Sent(query=b"id=%C3%A9", content_type="a/b; charset=latin-1"), "is not UTF-8"),
        ("<int:form.id>", document("id=7", FORM, method="PUT"), "a form comes with POST, not with PUT"),
        ("<int:form.id>", Sent(query=b"id=7", method="GET"), "not with GET; let the view take POST only"),
        ("<int:form.id>", document("id=7", JSON), "the body is no form"),
        ("<int:form.id>", document("id=7", ""), "the body is no form"),
        ("<int:form.id>", document("id=7&id=8", FORM), "is given twice"),
        ("<int:form.id>", document("id=7", FORM + "; charset=latin-1"), "is not UTF-8"),
        ("<int:form.id>", document("id=7", FORM + "; charset*=utf-8''utf-16"), "is not UTF-8"),
        ("<int:form.id>", document(FIELD, "multipart/form-data"), "is missing"),
        ("<int:form.id>", document(FIELD, "multipart/form-data; boundary=B; charset=utf-16"), "is not UTF-8"),
        ("<int:form.id>", document(FIELD.replace(b'"id"', b'"id"; filename="a"'), MULTIPART), "is missing"),
        ("<str:form.id>", document(FIELD.replace(b"7", b"\xff"), MULTIPART), "is not UTF-8"),
        ("<str:header.X-Id>", Sent(), "is missing"),
        ("<str:header.X-Id>", Sent(headers={"X-Id": ""}), "is empty"),
        ("<str:header.X-Id>", Sent(headers={"X-Id": "1,2"}), "is given twice"),
        ("<int:json.id>", document('{"id": 7}', "text/plain"), "the Content-Type is not application/json"),
        ("<int:json.id>", document('{"id": 7}', "application/json; charset=utf-16"), "is not UTF-8"),
        ("<int:json.id>", document('{"id": 7'), "the body is no JSON"),
        ("<int:json.id>", document(""), "the body is no JSON"),
        ("<int:json.id>", document('{"id": 7, "x": NaN}'), "the body is no JSON"),
        ("<int:json.id>", document('\ufeff{"id": 7}'), "the body is no JSON"),
        ("<int:json.id>", document('{"id": 7}'.encode("utf-16")), "the body is no JSON"),
        ("<int:json.id>", document(b'{"id": 7, "x": "\xff"}'), "the body is no JSON"),
        ("<int:json.id>", document('{"x":' * 5000), "the body is no JSON"),
        ("<int:json.id>", document("[" * 100_000 + "]" * 100_000), "the body is no JSON"),
        ("<int:json.id>", document('{"id": %s}' % ("9" * 5000)), "the body is no JSON"),
        ("<int:json.id>", document('{"id": %s}' % ("9" * 300)), "at most 255"),
        ("<int:json.id>", document('{"id": 1, "id": 2}'), "is given twice"),
        ("<int:json.id>", document('{"id": 1, "\\u0069d": 1, "id": 1}'), "is given twice"),
        ("<int:json.id>", document('{"ID": 1}'), "is missing"),
        ("<int:json.id>", document('{"id": null}'), "is missing"),
        ("<int:json.id>", document('{"id": 1.0}'), "not float"),
        ("<int:json.id>", document('{"id": 1e400}'), "not float"),
        ("<int:json.id>", document('{"id": true}'), "not bool"),
        ("<int:json.id>", document('{"id": {"id": 1}}'), "not dict"),
        ("<int:json.id>", document('{"id": [1]}'), "not list"),
        ("<str:json.id>", document('{"id": 1.0}'), "not float"),
        ("<slug:json.id>", document('{"id": 1}'), "not int"),
        ("<str:json.id>", document('{"id": "\\ud800"}'), "U+D800"),
        ("<str:json.id>", document('{"id": "a\\u0000"}'), "U+0000"),
        ("<int:json.id>", document("[1]"), "a list where the name has no '[]'"),
        ("<int:json.a.id>", document('{"a": [{"id": 1}]}'), "a list where the name has no '[]'"),
        ("<int:json.id>", Sent(method="GET"), "let the view take POST only, with @require_POST or @app.post"),
        ("<int:json.a.id>", document('{"a": {"id": 1}, "a": {"id": 2}}'), "is given twice"),
        ("<int:json.a.id>", document('{"a": 1}'), "is missing"),
        ("<int:json.lines[].sku>", lines(), "the list is empty"),
        ("<int:json.lines[].sku>", document("{}"), "is missing"),
        ("<int:json.lines[].sku>", document('{"lines": {"sku": 1}}'), "the body has no list"),
        ("<int:json.lines[].sku>", document('{"lines": [[{"sku": 1}]]}'), "is missing"),
        ("<int:json.lines[].sku>", lines(1, None), "is missing"),
        ("<int:json.lines[].sku>", lines(1, "01"), "is not a whole number"),
        ("<int:json.lines[].sku>", lines(*range(33)), "more than 32 locks"),
        ("<int:query.id[]>", Sent(query=b"&".join(b"id=%d" % n for n in range(33))), "more than 32 locks"),
    ],
)
def test_what_is_missing_or_malformed_is_a_400(template: str, sent: Sent, problem: str) -> None:
    both = Both(template)
    for got in (both(sent), both.flask(sent)):
        assert got.status == 400
        answer = json.loads(got.body)
        assert answer["code"] == "lock_name_invalid"
        assert problem in answer["debug"]


@pytest.mark.attack("A13")
@pytest.mark.parametrize("size", [3_000_000])
@pytest.mark.parametrize(("template", "content_type"), [("<int:json.id>", JSON), ("<int:form.id>", FORM)])
def test_a_body_that_is_too_large_is_answered_by_the_framework(
    template: str, content_type: str, size: int
) -> None:
    sent = document(b"x" * size, content_type)
    both = Both(template)
    both.app.config["MAX_CONTENT_LENGTH"] = 1_000_000
    django, flask = both.django(sent), both.flask(sent)
    assert (django.status, flask.status) == (400, 413)
    assert "lock_name_invalid" not in django.body + flask.body


LOOKS: list[tuple[Look, Look]] = [
    (lambda request: request.body, lambda request: request.get_data()),
    (lambda request: request.read(), lambda request: request.stream.read()),
    (lambda request: request.body, lambda request: request.data or request.get_data()),
    (lambda request: request.POST.get("id", "7"), lambda request: request.form.get("id", "7")),
]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize(
    ("template", "sent"), [("<int:json.id>", document('{"id":7}')), ("<int:form.id>", document("id=7", FORM))]
)
def test_the_view_reads_the_body_as_if_nobody_had(template: str, sent: Sent, look: tuple[Look, Look]) -> None:
    both = Both(template, looks=look)
    for got in (both.django(sent), both.flask(sent)):
        assert got.seen in {sent.body, "7"}


def test_a_multipart_form_has_its_uploads_in_the_view() -> None:
    upload = b'--B\r\nContent-Disposition: form-data; name="f"; filename="f.txt"\r\n\r\nhello\r\n'
    looks = (lambda request: request.FILES["f"].read(), lambda request: request.files["f"].read())
    both = Both("<int:form.id>", looks=looks)
    for got in (
        both.django(document(upload + FIELD, MULTIPART)),
        both.flask(document(upload + FIELD, MULTIPART)),
    ):
        assert got.seen == b"hello"
