"""Requests of any bytes: none is an error of the server, and none leaves a lock behind."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.fuzz import examples
from tests.hostile.site import FACES, GUARDS, RULES, Site
from tests.web.both import Sent

# Other threads of the process draw numbers while hypothesis does. It warns of that with a long text.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")

ROUTES = [route.removesuffix("<path:id>") for route in (*GUARDS, *RULES)]
FIELDS = ["id", "id[]", "lines", "sku", "lines[].sku", "user", "pk", "csrfmiddlewaretoken", "_method", ""]
#: Bytes that mean something to some parser on the way.
PIECES = [
    b"",
    b"1",
    b"01",
    b"-1",
    b"\xd9\xa1",
    b"..",
    b"/",
    b"//",
    b"%2F",
    b"%00",
    b"%ff",
    b"%u0031",
    b"\x00",
    b"\r\n",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"{0.__class__}",
    b"%(id)s",
    b"<int:id>",
    b"}{",
    b"]]>",
    b"'; DROP TABLE distlock_fence; --",
    b"$(id)",
    b"x" * 256,
    b"9" * 5000,
    b"=",
    b"&",
    b";",
    b",",
]
pieces = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=4).map(b"".join)
latin = pieces.map(lambda raw: raw.decode("latin-1"))
paths = st.tuples(st.sampled_from(ROUTES).map(str.encode), pieces).map(lambda made: b"/" + b"".join(made))
methods = st.sampled_from(["POST"] * 6 + ["GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BUY", "TRACE"])

pairs = st.lists(
    st.tuples(st.sampled_from(FIELDS).map(str.encode) | pieces, pieces).map(b"=".join), max_size=3
).map(b"&".join)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)
documents = values.map(lambda value: json.dumps(value).encode())
deep = st.integers(1, 200_000).map(lambda depth: b"[" * depth)
PART = b'--B\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n%b\r\n'
parts = st.lists(
    st.builds(
        lambda name, more, value: PART % (name, more, value),
        st.sampled_from(FIELDS).map(str.encode) | pieces,
        st.sampled_from([b"", b'; filename="x"', b"\r\nContent-Transfer-Encoding: base64", b"\r\nX: \x00"])
        | pieces,
        pieces,
    ),
    max_size=3,
).map(lambda made: b"".join(made) + b"--B--\r\n")
TYPES = [
    "application/json",
    "application/json; charset=utf-16",
    "application/vnd.api+json",
    "application/x-www-form-urlencoded",
    "application/x-www-form-urlencoded; charset=utf-7",
    "multipart/form-data; boundary=B",
    "multipart/form-data; boundary=" + "B" * 300,
    "multipart/form-data",
    "multipart/mixed; boundary=B",
    "text/plain",
    "",
]
ACCEPTS = ["*/*", "text/html", "text/html;q=nan, */*;q=-1", "a/b;" * 500, "\xff", ";", ",,,"]
headers = st.fixed_dictionaries(
    {},
    optional={
        "X-Id": latin,
        "Accept": st.sampled_from(ACCEPTS) | latin,
        "Cookie": st.sampled_from(
            ["sessionid=", "sessionid=a:b:c; messages=", "=;=;", "session=eyJ9.x.y; id="]
        ).flatmap(lambda begin: latin.map(lambda end: begin + end)),
        "Authorization": st.sampled_from(["Basic ", "Bearer ", "Basic Og==", ""]).flatmap(
            lambda begin: latin.map(lambda end: begin + end)
        ),
        "X-Forwarded-For": latin,
        "X-HTTP-Method-Override": st.sampled_from(["GET", "BUY"]),
        "Transfer-Encoding": st.sampled_from(["chunked", "gzip", "\x00"]),
        "Range": latin,
        "Expect": latin,
    },
)
lengths = st.fixed_dictionaries(
    {},
    optional={
        "CONTENT_LENGTH": st.sampled_from(["", "0", "-1", "1", "x", "1e3", "\u00b2", "99999999999999999999"])
    },
)
requests = st.builds(
    Sent,
    path=paths,
    query=pairs | pieces,
    body=pairs | documents | documents | parts | pieces | deep,
    content_type=st.sampled_from(TYPES) | latin,
    headers=headers,
    method=methods,
    more=lengths,
)


@pytest.fixture(scope="module", params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def site(face: str) -> Iterator[Site]:
    with Site("memory://fuzzed") as site:
        yield site


@pytest.fixture(scope="module")
def away(face: str) -> Iterator[Site]:
    with Site("redis://127.0.0.1:1") as site:
        yield site


def judge(site: Site, face: str, sent: Sent, outage: bool) -> None:
    site.held.clear()
    answer = site.ask(face, sent)
    assert answer.status < 500 or (outage and answer.status == 503), answer
    assert "Traceback" not in answer.body
    if site.held:
        [names] = site.held
        prefixes = {name.partition("_")[0] for name in (*GUARDS.values(), *RULES.values())}
        assert {name.partition("_")[0] for name in names} <= prefixes, names
        assert all(0 < len(name) <= 255 and name.isprintable() for name in names), names
        assert not outage
    if answer.code is not None:
        problem = json.loads(answer.body)
        assert (problem["status"], problem["title"] != "") == (answer.status, True)
        assert not site.held
    assert site.nothing_is_held()


@pytest.mark.attack("A05", "A11")
@examples(400)
@given(sent=requests)
def test_no_request_is_an_error_of_the_server(site: Site, face: str, sent: Sent) -> None:
    judge(site, face, sent, outage=False)


@examples(100)
@given(sent=requests)
def test_without_a_lock_service_a_request_is_a_503_or_its_own_mistake(
    away: Site, face: str, sent: Sent
) -> None:
    judge(away, face, sent, outage=True)
