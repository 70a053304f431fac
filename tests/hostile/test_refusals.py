"""What a refusal tells to whom it is sent, and what a client can't have by asking for it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from django.core.handlers.wsgi import WSGIHandler
from werkzeug.serving import make_server

from distlock.testing.waits import PATIENCE, engine_of
from tests.hostile.memory import LITTLE, peak, reset_peak
from tests.hostile.site import FACES, JSON, Answer, Site
from tests.redis_server import eventually
from tests.web.both import Sent

each_face = pytest.mark.parametrize("face", FACES)
CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def away() -> Iterator[Site]:
    """A site whose lock service is down, so that it would notice who asks it."""
    with Site("redis://:secret-of-the-site@127.0.0.1:1") as site:
        yield site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose fences are long numbers, so that no answer has one by chance."""
    with Site((tmp_path / "locks").as_uri()) as site:
        yield site


def sent_by_json(id: object) -> Sent:
    return Sent(path=b"/json", body=json.dumps({"id": id}).encode(), content_type=JSON)


@each_face
def test_the_lock_service_would_be_missed(away: Site, face: str) -> None:
    assert away.ask(face, sent_by_json("2")).code == "lock_backend_unavailable"


@pytest.mark.attack("A10", "A11")
@each_face
@pytest.mark.parametrize("id", ["", " ", None, [], {}, ["2"], {"id": "2"}, True, 1.5])
def test_what_is_no_id_is_a_400_before_anybody_is_asked(away: Site, face: str, id: object) -> None:
    assert away.ask(face, sent_by_json(id)).code == "lock_name_invalid"


@pytest.mark.attack("A13")
@each_face
@pytest.mark.parametrize("size", [300, 1_000_000])
def test_a_name_that_is_too_long_is_a_400_before_anybody_is_asked(away: Site, face: str, size: int) -> None:
    for sent in (sent_by_json("x" * size), Sent(path=b"/text/" + b"x" * size)):
        answer = away.ask(face, sent)
        assert answer.code == "lock_name_invalid"
        assert len(answer.body) < 1000


def said(answer: Answer) -> str:
    return f"{answer.status} {sorted(answer.headers.items())} {answer.body}"


each_reader = pytest.mark.parametrize("accept", ["*/*", CHROME], ids=["program", "browser"])


@pytest.mark.attack("A35", "A36")
@each_face
@each_reader
def test_a_423_is_the_same_for_all_names_and_all_holders(site: Site, face: str, accept: str) -> None:
    refusals = set()
    for name in ("text_of_ann", "text_of_bob"):
        grant = site.client(face).lock(name).acquire()
        assert grant is not None
        answer = site.ask(face, Sent(path=f"/text/{name[5:]}".encode(), headers={"Accept": accept}))
        assert answer.status == 423
        refusals.add(said(answer))
        (queue,) = engine_of(site.client(face)).queues.by_key.values()
        assert queue.hold is not None
        told = [
            name,
            str(grant.fence.number),
            queue.hold.request.token,
            socket.gethostname(),
            str(os.getpid()),
        ]
        assert [secret for secret in [*told, "test_refusals"] if secret in said(answer)] == []
        grant.release()
    assert len(refusals) == 1


@pytest.mark.attack("A35", "A37")
@each_face
@each_reader
def test_a_503_is_the_same_and_names_no_server(away: Site, face: str, accept: str) -> None:
    asked = [Sent(path=path, headers={"Accept": accept}) for path in (b"/text/ann", b"/text/bob")]
    (refusal,) = {said(away.ask(face, sent)) for sent in asked}
    assert refusal.startswith("503 ")
    assert [told for told in ("secret-of-the-site", "127.0.0.1", "redis") if told in refusal] == []


@pytest.mark.attack("A35", control=True)
def test_in_debug_mode_it_is_told(site: Site, settings: object) -> None:
    settings.DEBUG = True  # type: ignore[attr-defined]
    with site.client("django").lock("text_2"):
        assert "text_2" in said(site.ask("django", Sent(path=b"/text/2")))


#: What a site may call it, and what other proxies and servers do.
WISHES = ["X-Lock-Timeout", "Lock-Timeout", "Timeout", "X-Timeout", "X-Request-Timeout", "DISTLOCK-TIMEOUT"]


@pytest.mark.attack("A23")
@each_face
def test_nobody_waits_longer_because_a_client_asks_for_it(site: Site, face: str) -> None:
    words = [f"{word}=1e9" for word in ("timeout", "wait", "ttl", "blocking", "max_hold", "lock_timeout")]
    sent = Sent(
        path=b"/query",
        query="&".join(["id=2", *words]).encode(),
        body="&".join(words).encode(),
        content_type="application/x-www-form-urlencoded",
        headers={
            **dict.fromkeys(WISHES, "1e9"),
            "Prefer": "wait=1000000",
            "Keep-Alive": "timeout=1000000",
            "Cookie": "; ".join(words),
        },
    )
    with ThreadPoolExecutor(1) as pool, site.client(face).lock("query_2"):
        # A wait for ever ends this with an error: the block gives the lock back, and the pool ends, too.
        assert pool.submit(site.ask, face, sent).result(PATIENCE).status == 423


@contextmanager
def served(site: Site, face: str) -> Iterator[tuple[str, int]]:
    """Serve *site* with a thread for each request. Yields the address."""
    app = site.app if face == "flask" else WSGIHandler()
    server = make_server("127.0.0.1", 0, app, threaded=True)
    serving = Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield "127.0.0.1", server.server_port
    finally:
        server.shutdown()
        serving.join(PATIENCE)
        server.server_close()


@pytest.mark.attack("A13")
@each_face
def test_a_body_of_512_mb_is_refused_and_not_kept(away: Site, face: str) -> None:
    """Django has this limit by default, and Flask has none."""
    away.app.config["MAX_CONTENT_LENGTH"] = 2_500_000
    size, begin = 512 << 20, b'{"id": "'
    reset_peak()
    before = peak()
    with served(away, face) as address, socket.create_connection(address, timeout=PATIENCE) as connection:
        head = f"POST /json HTTP/1.0\r\nContent-Type: {JSON}\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode() + begin)
        # A server that reads the whole body gets it.
        with suppress(OSError):
            for _ in range(size >> 20):
                connection.sendall(b"x" * (1 << 20))
        assert peak() - before < LITTLE
        status = connection.recv(20).split()[1]
    assert status == (b"413" if face == "flask" else b"400")


@pytest.mark.attack("A22")
@each_face
def test_a_client_that_waits_in_a_thread_and_goes_away_leaves_the_queue_with_the_timeout(
    tmp_path: Path, face: str
) -> None:
    """No server of WSGI tells that a client has gone."""
    with Site((tmp_path / "locks").as_uri(), TIMEOUT=8) as site:
        queues = engine_of(site.client(face)).queues
        with site.client(face).lock("product_2"), served(site, face) as address:
            for count in (1, 2, 3, 4):
                with socket.create_connection(address, timeout=PATIENCE) as client:
                    client.sendall(b"POST /fixed HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
                    eventually(lambda count=count: queues.waiting == count, "it waits")  # type: ignore[misc]
            eventually(lambda: queues.waiting == 0, "none of them waits")
        assert site.held == []
        assert site.nothing_is_held()


@pytest.mark.attack("A27")
@each_face
def test_a_view_that_calls_itself_is_refused_and_goes_on(site: Site, face: str) -> None:
    """The inner request has no part in the outer lock, in this process or in another one."""
    at: list[tuple[str, int]] = []

    def call_itself() -> str:
        with socket.create_connection(at[0], timeout=PATIENCE) as connection:
            connection.sendall(b"POST /fixed HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
            with connection.makefile("rb") as answer:
                return answer.readline().decode()

    site.work = call_itself
    with served(site, face) as address:
        at.append(address)
        outer = site.ask(face, Sent(path=b"/fixed"))
    assert outer.status == 200
    assert re.match(r"HTTP/1\.[01] 423 ", outer.body)
    assert site.nothing_is_held()
