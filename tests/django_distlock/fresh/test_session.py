"""What a guard of the user does with the session: what it takes over, what it saves, and when."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import login, logout, update_session_auth_hash
from django.contrib.sessions.exceptions import SessionInterrupted
from django.core.cache import caches
from django.core.checks import run_checks
from django.core.exceptions import PermissionDenied
from django.db import connection, connections
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils.functional import SimpleLazyObject

from distlock.errors import LockTimeout
from distlock.testing import contended
from django_distlock import distributed_lock
from tests.django_distlock.fresh.one_session import (
    EVERY_STORE,
    Site,
    atomic_requests_if,
    backend,
    guard_twice,
    look,
    site,
    spend,
)
from tests.web.quickstart import own_environment

__all__ = ["atomic_requests_if", "backend", "site"]


@EVERY_STORE
def test_the_view_sees_what_others_have_saved_and_nothing_is_written(site: Site) -> None:
    held: list[Any] = []

    def before(request: HttpRequest) -> None:
        session = request.session
        held.extend([session, session["cart"], session["shelf"], session["shelf"]["top"]])
        site.others(vouchers=4, cart=["tea", "jam"], shelf={"top": {"tea": 2}, "low": {}}, seen=True)

    def view(request: HttpRequest) -> HttpResponse:
        session = request.session
        assert (session["vouchers"], session["seen"]) == (4, True)
        assert held[1] == ["tea", "jam"]
        assert held[2] == {"top": {"tea": 2}, "low": {}}
        found = [session, session["cart"], session["shelf"], session["shelf"]["top"]]
        assert all(one is other for one, other in zip(held, found, strict=True))
        assert not session.modified
        return HttpResponse()

    site.before = before
    site.serve(view)
    before_it = site.stored()
    response = site.post()
    assert response.status_code == 200
    assert "sessionid" not in response.cookies
    assert site.stored() == before_it | {"vouchers": 4, "cart": ["tea", "jam"], "seen": True} | {
        "shelf": {"top": {"tea": 2}, "low": {}}
    }


def test_dicts_in_a_list_stay_the_same_objects(site: Site) -> None:
    site.others(cart=[{"tea": 5}, {"jam": 1}, "bag"])
    held: list[Any] = []

    def before(request: HttpRequest) -> None:
        held.extend([request.session["cart"], request.session["cart"][0]])
        site.others(cart=[{"tea": 4}, "bag"])

    def view(request: HttpRequest) -> HttpResponse:
        assert request.session["cart"] == [{"tea": 4}, "bag"]
        assert request.session["cart"] is held[0]
        assert request.session["cart"][0] is held[1]
        return HttpResponse()

    site.before = before
    site.serve(view)
    assert site.post().status_code == 200


@EVERY_STORE
def test_a_lazy_object_may_stand_in_front_of_the_session(site: Site) -> None:
    def before(request: HttpRequest) -> None:
        session = request.session
        assert session["vouchers"] == 5
        request.session = SimpleLazyObject(lambda: session)
        site.others(vouchers=4)

    site.before = before
    site.serve(spend)
    assert site.post().status_code == 200
    assert site.stored()["vouchers"] == 3  # type: ignore[index]


@EVERY_STORE
def test_what_others_have_removed_is_removed(site: Site) -> None:
    def before(request: HttpRequest) -> None:
        store = site.store()
        del store["vouchers"]
        store.save()

    site.before = before
    site.serve(lambda request: HttpResponse(str("vouchers" in request.session)))
    assert site.post().text == "False"


def test_what_the_request_itself_has_written_before_the_lock_stays(site: Site) -> None:
    def before(request: HttpRequest) -> None:
        request.session["last_seen"] = "now"
        site.others(vouchers=4)

    guard_twice(site)
    site.before = before
    site.serve(spend)
    assert site.post().status_code == 200
    assert site.stored()["last_seen"] == "now"  # type: ignore[index]
    assert site.stored()["vouchers"] == 3  # type: ignore[index]


@EVERY_STORE
def test_readers_keep_what_other_readers_change(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    def read(request: HttpRequest) -> HttpResponse:
        request.session["last_report"] = "totals"
        site.others(vouchers=4)  # Another reader, which runs at the same time.
        return HttpResponse()

    read.__qualname__ = f"read_{site.key}"  # Each view is named once in a process.
    site.serve(read, "catalogue", mode="shared", methods=["POST"])
    for _ in range(2):
        assert site.post().status_code == 200
    assert [released and released["last_report"] for released in site.at_release] == ["totals"] * 2
    assert site.stored().items() >= {"last_report": "totals", "vouchers": 4}.items()  # type: ignore[union-attr]
    [warning] = [one.getMessage() for one in caplog.records if "changed the session" in one.getMessage()]
    assert "leave mode= out of the guard" in warning


@EVERY_STORE
def test_a_reader_that_saves_its_session_itself_keeps_what_other_readers_change(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def read(request: HttpRequest) -> HttpResponse:
        request.session["last_report"] = "totals"
        site.others(vouchers=4, shelf={})  # Another reader, which runs at the same time.
        request.session.save()
        site.others(vouchers=3)
        return HttpResponse()

    read.__qualname__ = f"saves_{site.key}"
    site.serve(read, "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 200
    kept = {"last_report": "totals", "vouchers": 3, "shelf": {}}
    assert {key: site.stored()[key] for key in kept} == kept  # type: ignore[index]
    assert caplog.text.count("changed the session") == 1


def test_what_a_reader_saves_itself_is_saved_again_after_a_rollback(
    site: Site, atomic_requests_if: Callable[[bool], None]
) -> None:
    def read(request: HttpRequest) -> HttpResponse:
        request.session["last_report"] = "totals"
        request.session.save()
        raise PermissionDenied

    atomic_requests_if(True)
    site.serve(read, "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 403
    assert site.at_release[0]["last_report"] == "totals"  # type: ignore[index]


@pytest.mark.parametrize("saves", [False, True])
def test_a_reader_is_not_named_for_what_was_changed_before_its_lock(
    site: Site, caplog: pytest.LogCaptureFixture, saves: bool
) -> None:
    def before(request: HttpRequest) -> None:
        request.session["last_seen"] = "now"
        site.others(vouchers=4)

    def read(request: HttpRequest) -> HttpResponse:
        site.others(vouchers=3)  # Another reader, which runs at the same time.
        if saves:
            request.session.save()
        return HttpResponse()

    read.__qualname__ = f"unchanged_{site.key}"
    site.before = before
    site.serve(read, "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 200
    released = site.at_release[0] or {}
    assert (released["last_seen"], released["vouchers"]) == ("now", 3)
    assert "changed the session" not in caplog.text


@EVERY_STORE
def test_a_writer_inside_a_reader_sees_what_others_have_saved(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    def read(request: HttpRequest) -> HttpResponse:
        assert request.session["vouchers"] == 5
        site.others(vouchers=4)  # Another reader, which has had the writer's lock.
        return writer(request)

    writer = distributed_lock("user_<user.pk>")(spend)
    site.serve(read, "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 200
    assert [released and released["vouchers"] for released in site.at_release] == [3, 3]
    assert "changed the session" not in caplog.text


@EVERY_STORE
@pytest.mark.parametrize("words", [{"timeout": 0}, {"on_contended": "skip"}], ids=["raises", "skips"])
def test_a_reader_stays_one_if_a_writer_inside_it_gets_no_lock(site: Site, words: dict[str, Any]) -> None:
    def read(request: HttpRequest) -> HttpResponse:
        request.session["last_report"] = "totals"
        with contended("gift"), suppress(LockTimeout):
            give(request)
        site.others(vouchers=4)  # Another reader, which runs at the same time.
        return HttpResponse()

    give = distributed_lock(lambda request: "gift", **words)(lambda request: HttpResponse())
    site.serve(read, "catalogue", mode="shared", methods=["POST"])
    assert site.post().status_code == 200
    assert site.stored().items() >= {"last_report": "totals", "vouchers": 4}.items()  # type: ignore[union-attr]


def test_the_first_guard_of_a_process_decides_on_what_others_have_saved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know yet what the request has written, and what it has loaded."""

    def before(request: HttpRequest) -> None:
        request.session["last_seen"] = "now"
        del vars(request.session)["_distlock_loaded"]
        site.others(vouchers=4)

    guard_twice(site)
    site.before = before
    site.serve(spend)
    assert site.post().status_code == 200
    assert (site.stored()["vouchers"], site.stored()["last_seen"]) == (3, "now")  # type: ignore[index]


def test_an_equal_session_costs_one_query(site: Site) -> None:
    site.serve(look)
    with CaptureQueriesContext(connection) as with_guard:
        site.post()
    site.settings.DISTLOCK_REFRESH_SESSION = False
    with CaptureQueriesContext(connection) as without:
        site.post()
    assert len(with_guard) == len(without) + 1


@pytest.mark.parametrize("name", ["user_<user.pk>", "sale", lambda request: "mine"])
def test_names_that_serialise_a_session(site: Site, name: Any) -> None:
    site.before = lambda request: site.others(vouchers=4)
    site.serve(look, name)
    assert site.post().text == "4"


@pytest.mark.parametrize("name", ["product_<int:query.id>", "product_<int:query.id>_<user.pk>"])
def test_names_that_do_not_serialise_it(site: Site, name: str) -> None:
    site.before = lambda request: site.others(vouchers=4)
    site.serve(look, name)
    assert site.client.post("/spend?id=1").text == "5"


def test_the_setting_switches_it_off(site: Site) -> None:
    site.settings.DISTLOCK_REFRESH_SESSION = False
    site.before = lambda request: site.others(vouchers=4)
    site.serve(look)
    assert site.post().text == "5"


def test_a_session_that_the_view_loads_first_is_saved_under_the_lock(site: Site) -> None:
    def before(request: HttpRequest) -> None:
        # As where a token says who the user is.
        request.session = site.store()
        assert not request.session.accessed

    site.before = before
    site.serve(spend, "sale")
    assert site.post().status_code == 200
    assert site.at_release[0]["vouchers"] == 4  # type: ignore[index]


@pytest.mark.parametrize("backend", ["cached_db"])
@pytest.mark.parametrize("loads_late", [False, True])
def test_a_row_is_read_past_the_cache_before_it(site: Site, backend: str, loads_late: bool) -> None:
    """Another request may have put a row there that it had read before the last COMMIT."""

    def before(request: HttpRequest) -> None:
        stale = dict(site.store().items()) | {"vouchers": 9}
        caches["default"].set(site.store().cache_key, stale)
        if loads_late:
            request.session = site.store()

    site.before = before
    site.serve(look, "sale")
    assert site.post().text == "5"


class Replicas:
    """A router that reads from a replica which lags behind."""

    def db_for_read(self, model: type, **hints: object) -> str | None:
        return "other" if model.__name__ == "Session" else None


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("loads_late", [False, True])
def test_a_row_is_read_from_the_database_that_is_written_to(site: Site, loads_late: bool) -> None:
    from django.contrib.sessions.models import Session

    with connections["other"].schema_editor() as editor:
        editor.create_model(Session)
    row = Session.objects.get(pk=site.key)
    site.others(vouchers=4)
    row.save(using="other")
    if loads_late:
        site.before = lambda request: setattr(request, "session", site.store())
    site.serve(look, "sale")
    try:
        site.settings.DATABASE_ROUTERS = [Replicas()]
        assert site.store()["vouchers"] == 5
        assert site.post().text == "4"
    finally:
        site.settings.DATABASE_ROUTERS = []
        with connections["other"].schema_editor() as editor:
            editor.delete_model(Session)


@pytest.mark.parametrize("place", ["class", "handler"])
def test_a_view_of_rest_framework_counts_what_it_refuses(
    site: Site, atomic_requests_if: Callable[[bool], None], place: str
) -> None:
    from rest_framework.exceptions import Throttled
    from rest_framework.response import Response
    from rest_framework.views import APIView

    def post(self: APIView, request: Any) -> Response:
        request.session["vouchers"] -= 1
        raise Throttled

    guard = distributed_lock("user_<user.pk>")
    if place == "class":
        view = guard(type("Spend", (APIView,), {"post": post}))
    else:
        view = type("Spend", (APIView,), {"post": guard(post)})
    atomic_requests_if(place == "class")
    site.settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("spend", view.as_view())]})
    assert site.post().status_code == 429
    assert site.at_release[0]["vouchers"] == 4  # type: ignore[index]


# -- sessions that go and come ----------------------------------------------------------------------------


@EVERY_STORE
def test_a_session_that_is_gone_stays_as_loaded_and_a_write_is_interrupted(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        assert request.session["vouchers"] == 5
        return spend(request)

    site.before = lambda request: site.store().delete()
    site.serve(view)
    response = site.post()
    assert response.status_code == 400
    assert isinstance(response.exc_info[1] if response.exc_info else SessionInterrupted(), SessionInterrupted)
    assert site.stored() is None


@EVERY_STORE
def test_a_session_that_is_deleted_during_the_view_is_interrupted(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        site.store().delete()
        return spend(request)

    site.serve(view)
    assert site.post().status_code == 400
    assert site.stored() is None


@EVERY_STORE
@pytest.mark.parametrize("atomic", [True, False])
def test_a_login_and_a_logout_are_those_of_django(
    site: Site, atomic_requests_if: Callable[[bool], None], atomic: bool
) -> None:
    def log_out(request: HttpRequest) -> HttpResponse:
        logout(request)
        return HttpResponse()

    def log_in(request: HttpRequest) -> HttpResponse:
        logout(request)
        login(request, site.user, "django.contrib.auth.backends.ModelBackend")
        request.session["vouchers"] = 7
        return HttpResponse()

    atomic_requests_if(atomic)
    site.serve(log_in)
    fresh = site.post().cookies["sessionid"].value
    assert fresh not in {"", site.key}
    assert site.stored() is None
    site.key = fresh
    assert site.stored()["vouchers"] == 7  # type: ignore[index]
    site.serve(log_out)
    assert site.post().cookies["sessionid"].value == ""
    assert site.stored() is None


@EVERY_STORE
def test_a_key_that_is_cycled_keeps_what_the_view_has_changed(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        request.user.set_password("other")  # type: ignore[union-attr]
        request.user.save()  # type: ignore[union-attr]
        update_session_auth_hash(request, request.user)  # type: ignore[arg-type]
        request.session["vouchers"] -= 1
        return HttpResponse()

    site.serve(view)
    fresh = site.post().cookies["sessionid"].value
    assert site.stored() is None
    site.key = fresh
    assert site.stored()["vouchers"] == 3  # type: ignore[index]


def test_a_new_session_is_that_of_django(site: Site) -> None:
    site.client.cookies.clear()

    def before(request: HttpRequest) -> None:
        request.session["vouchers"] = 9

    # The middleware of this site asks for a user.
    site.settings.MIDDLEWARE = site.settings.MIDDLEWARE[:1]
    site.serve(lambda request: (before(request), spend(request))[1], "sale")
    site.key = site.post().cookies["sessionid"].value
    assert site.stored()["vouchers"] == 8  # type: ignore[index]


@pytest.mark.parametrize("backend", ["signed_cookies"])
def test_a_session_that_the_client_keeps_is_left_alone(
    settings: Any, serve: Callable[..., Client], backend: str
) -> None:
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{backend}"
    settings.MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]

    def view(request: HttpRequest) -> HttpResponse:
        request.session["seen"] = request.session.get("seen", 0) + 1
        return HttpResponse(str(request.session["seen"]))

    client = serve(distributed_lock("sale")(view), "spend")
    assert [client.post("/spend").text for _ in range(3)] == ["1", "2", "3"]


def found_by_checks() -> list[str]:
    return [f"{one.msg} {one.hint}" for one in run_checks() if one.id == "distlock.W008"]


def test_a_check_tells_of_counters_in_cookies(settings: Any, serve: Callable[..., Client]) -> None:
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    settings.MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
    serve(distributed_lock("user_<user.pk>")(spend), "spend")
    (message,) = found_by_checks()
    assert "one_session.spend is locked for each user" in message
    assert "Keep counters in a row of the database" in message
    serve(distributed_lock("sale")(spend), "spend")
    assert found_by_checks() == []
    settings.DISTLOCK_RULES = [{"route": "spend", "lock": "user_<user.pk>"}]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_distlock.middleware.DistlockMiddleware"]
    serve([path("spend", look, name="spend")])
    assert len(found_by_checks()) == 1
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.db"
    assert found_by_checks() == []


#: A process that has served nothing yet.
FIRST_REQUEST = """
import sys
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    DEBUG=True,
    DISTLOCK="memory://first",
    INSTALLED_APPS=["django.contrib.sessions", "django_distlock"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware", "__main__.hook"],
    ROOT_URLCONF="__main__",
    SECRET_KEY="tests only",
    SESSION_ENGINE="django.contrib.sessions.backends.file",
    SESSION_FILE_PATH=sys.argv[1],
)
import django

django.setup()
from django.contrib.sessions.backends.file import SessionStore
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from django_distlock import distributed_lock


def hook(get_response):
    def middleware(request):
        request.session["campaign"] = "new"
        request.session.pop("flash")
        return get_response(request)

    return middleware


@distributed_lock("stock")
def view(request):
    return HttpResponse(f"{request.session['campaign']} {'flash' in request.session}")


urlpatterns = [path("", view)]
store = SessionStore()
store.update({"campaign": "old", "flash": "once"})
store.save()
client = Client()
client.cookies["sessionid"] = store.session_key
print(client.post("/").content.decode(), dict(SessionStore(store.session_key).items()))
"""


def test_what_a_middleware_has_written_stays_in_the_first_request_of_a_process_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_REQUEST, str(tmp_path)]
    done = subprocess.run(
        command, env=own_environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "new False {'campaign': 'new'}\n", done.stderr
