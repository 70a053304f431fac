"""Sessions of Flask-Session under a lock of their user: sixteen requests spend its five vouchers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cachelib.file import FileSystemCache
from flask import Flask, Response, abort, session
from flask_session import Session
from flask_sqlalchemy import SQLAlchemy

from demo_shop.ledger import database_url
from flask_distlock import DistLock, distributed_lock
from tests.databases import Databases
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]

REQUESTS = 16
VOUCHERS = 5


class Site:
    """One user, whose session has vouchers. *config*: of Flask-Session."""

    def __init__(self, **config: Any) -> None:
        self.app = Flask(__name__)
        self.app.config.update(
            DISTLOCK={"default": {"LOCATION": "memory://vouchers", "TIMEOUT": 60}}, **config
        )
        self.db = SQLAlchemy(self.app) if config["SESSION_TYPE"] == "sqlalchemy" else None
        if self.db is not None:
            self.app.config["SESSION_SQLALCHEMY"] = self.db
        Session(self.app)
        self.locks = DistLock(self.app, user=lambda: session.get("user"))
        #: Called before the lock.
        self.before: Callable[[], object] = lambda: None
        self.app.add_url_rule("/log-in", view_func=self.log_in, methods=["POST"])
        self.app.before_request(self.come)
        self.cookie = ""

    def close(self) -> None:
        with self.app.app_context():
            self.locks.close()
            if self.db is not None:
                self.db.engine.dispose()

    def come(self) -> None:
        self.before()

    @staticmethod
    def log_in() -> str:
        session.update(user=7, vouchers=VOUCHERS, cart=["tea"])
        return ""

    def serve(self, view: Callable[[], Any], name: Any = "user_<user.pk>", **words: Any) -> None:
        guarded = distributed_lock(name, **words)(view)
        self.app.add_url_rule("/spend", "spend", guarded, methods=["POST"])
        client = self.app.test_client()
        client.post("/log-in")
        cookie = client.get_cookie("session")
        assert cookie is not None
        self.cookie = cookie.value

    def post(self) -> Any:
        client = self.app.test_client()
        client.set_cookie("session", self.cookie)
        return client.post("/spend")

    def stored(self) -> dict[str, Any]:
        with self.app.test_request_context(headers={"Cookie": f"session={self.cookie}"}):
            return dict(session)

    def others(self, **content: object) -> None:
        """Another request of the session has saved *content*."""
        with self.app.test_request_context(headers={"Cookie": f"session={self.cookie}"}):
            session.update(content)
            self.app.session_interface.save_session(
                self.app,
                session._get_current_object(),  # type: ignore[attr-defined]
                Response(),
            )

    def post_together(self) -> Counter[int]:
        """Sixteen at once, each of which has opened its session before the first has the lock."""
        meet = threading.Barrier(REQUESTS)
        self.before = lambda: meet.wait(60)
        answers: Counter[int] = Counter()
        threads = [
            threading.Thread(target=lambda: answers.update([self.post().status_code]))
            for _ in range(REQUESTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.before = lambda: None
        return answers


@pytest.fixture(params=["redis", "cachelib", "sqlalchemy"])
def site(
    request: pytest.FixtureRequest, redis_server: RedisServer, databases: Databases, tmp_path: Path
) -> Iterator[Site]:
    config: dict[str, Any] = {"SESSION_TYPE": request.param}
    if request.param == "redis":
        config["SESSION_REDIS"] = redis.Redis.from_url(redis_server.url)
    elif request.param == "cachelib":
        config["SESSION_CACHELIB"] = FileSystemCache(str(tmp_path))
    else:
        config["SQLALCHEMY_DATABASE_URI"] = database_url(databases("postgresql", "flask_sessions"))
        config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": REQUESTS}
    site = Site(**config)
    yield site
    site.close()


def spend() -> Any:
    if session["vouchers"] < 1:
        return "none left", 409
    session["vouchers"] -= 1
    return "spent"


@pytest.mark.attack("A40")
def test_as_many_are_spent_as_there_are(site: Site) -> None:
    site.serve(spend)
    assert site.post_together() == {200: VOUCHERS, 409: REQUESTS - VOUCHERS}
    assert site.stored()["vouchers"] == 0


@pytest.mark.attack("A40", control=True)
def test_without_it_each_spends_what_the_first_has_found(site: Site) -> None:
    site.app.config["DISTLOCK_REFRESH_SESSION"] = False
    site.serve(spend)
    assert site.post_together() == {200: REQUESTS}


def test_each_refusal_is_counted(site: Site) -> None:
    def count() -> Any:
        session["refused"] = session.get("refused", 0) + 1
        abort(403)

    site.serve(count)
    assert site.post_together() == {403: REQUESTS}
    assert site.stored()["refused"] == REQUESTS


def test_an_async_view_sees_what_others_have_saved(site: Site) -> None:
    async def aspend() -> Any:
        return spend()

    site.serve(aspend)
    assert site.post_together() == {200: VOUCHERS, 409: REQUESTS - VOUCHERS}


def test_the_session_is_the_same_object_and_not_modified(site: Site) -> None:
    held: list[Any] = []

    def before() -> None:
        held.extend([session._get_current_object(), session["cart"]])  # type: ignore[attr-defined]
        site.before = lambda: None
        site.others(vouchers=4, cart=["tea", "jam"])

    def view() -> str:
        assert session._get_current_object() is held[0]  # type: ignore[attr-defined]
        assert session["cart"] is held[1]
        assert (session["vouchers"], held[1]) == (4, ["tea", "jam"])
        return str(session.modified)

    site.serve(view)
    site.before = before
    assert site.post().text == "False"


def test_what_the_request_has_added_before_the_lock_stays(site: Site) -> None:
    def before() -> None:
        site.before = lambda: None
        session["last_seen"] = "now"
        site.others(vouchers=4)

    site.serve(spend)
    site.before = before
    assert site.post().status_code == 200
    assert (site.stored()["vouchers"], site.stored()["last_seen"]) == (3, "now")


def test_names_of_something_else_leave_the_session_alone(site: Site) -> None:
    def before() -> None:
        site.before = lambda: None
        site.others(vouchers=4)

    site.serve(lambda: str(session["vouchers"]), "product_<int:query.id>")
    site.before = before
    client = site.app.test_client()
    client.set_cookie("session", site.cookie)
    assert client.post("/spend?id=1").text == "5"


def test_what_a_hook_has_changed_before_the_lock_stays(site: Site) -> None:
    """Flask-Login's session protection is such a hook: it marks the login of another browser as not fresh."""

    def before() -> None:
        site.before = lambda: None
        session["cart"] = ["coffee"]
        session.pop("flash")
        site.others(vouchers=4)

    site.serve(lambda: f"{session['cart']} {'flash' in session} {session['vouchers']}")
    site.others(flash="once")
    site.before = before
    assert site.post().text == "['coffee'] False 4"
    assert site.stored() == {"user": 7, "cart": ["coffee"], "vouchers": 4} | {
        key: value for key, value in site.stored().items() if key.startswith("_")
    }


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "changed the session" in one.getMessage()]


def test_readers_that_change_the_session_are_named_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def view() -> str:
        if changes:
            session["last_report"] = "totals"
        return ""

    changes = False
    view.__qualname__ = f"view_{id(site)}"  # Each view is named once in a process.
    site.serve(view, "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 200
    assert not warnings(caplog)
    changes = True
    for report in range(2):
        site.others(last_report=report)
        assert site.post().status_code == 200
    [warning] = warnings(caplog)
    assert warning.startswith(f"{__name__}.{view.__qualname__} changed the session")


@pytest.mark.parametrize("site", ["redis"], indirect=True)
def test_a_reader_is_not_named_for_what_a_hook_has_changed_before_its_lock(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def view() -> str:
        if changes:
            session["cart"].append("jam")
            session.modified = True
        return ""

    changes = False
    view.__qualname__ = f"hooked_{id(site)}"
    site.serve(view, "catalogue", mode="shared", methods=["POST"])
    site.before = lambda: session.update(last_seen="now")
    assert site.post().status_code == 200
    assert not warnings(caplog)
    changes = True
    site.before = lambda: session.update(last_seen="later")
    assert site.post().status_code == 200
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("site", ["redis"], indirect=True)
def test_a_writer_inside_a_reader_keeps_the_session(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.serve(distributed_lock("user_<user.pk>")(spend), "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 200
    assert site.stored()["vouchers"] == VOUCHERS - 1
    assert not warnings(caplog)
