"""What a view changes in its session is saved before the lock's release, and overwrites nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import Http404, HttpRequest, HttpResponse
from django.test.utils import CaptureQueriesContext
from django.urls import path

from django_distlock import distributed_lock, locks
from tests.django_distlock.fresh.one_session import (
    EVERY_STORE,
    Site,
    View,
    atomic_requests_if,
    backend,
    look,
    site,
    spend,
)

__all__ = ["atomic_requests_if", "backend", "site"]


# -- what it saves, and when ------------------------------------------------------------------------------


@EVERY_STORE
@pytest.mark.parametrize("atomic", [True, False])
def test_a_change_is_saved_before_the_release_and_the_cookie_is_set(
    site: Site, atomic_requests_if: Callable[[bool], None], atomic: bool
) -> None:
    atomic_requests_if(atomic)
    site.serve(spend)
    response = site.post()
    assert site.at_release[0]["vouchers"] == 4  # type: ignore[index]
    assert site.stored()["vouchers"] == 4  # type: ignore[index]
    assert response.cookies["sessionid"].value == site.key


class Answered(Exception):
    """As the exceptions of REST frameworks, which say how they are answered."""

    status_code = 402


@EVERY_STORE
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("error", [PermissionDenied, Http404])
def test_a_change_is_saved_before_the_release_where_the_view_raises(
    site: Site, atomic_requests_if: Callable[[bool], None], atomic: bool, error: type[Exception]
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        User.objects.create(username="gone again")
        request.session["vouchers"] -= 1
        raise error

    atomic_requests_if(atomic)
    site.serve(view)
    assert site.post().status_code in {403, 404}
    assert site.at_release[0]["vouchers"] == 4  # type: ignore[index]
    assert User.objects.filter(username="gone again").exists() is not atomic


def test_a_change_is_merged_where_a_decorator_answers_what_the_view_raises(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        raise Answered

    def answering(request: HttpRequest) -> HttpResponse:
        try:
            return guarded(request)
        except Answered as error:
            return HttpResponse(status=error.status_code)

    guarded = distributed_lock(lambda request: "mine")(view)
    site.settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("spend", answering)]})
    assert site.post().status_code == 402
    # That it is answered is known after the release only.
    assert site.stored()["vouchers"] == 4  # type: ignore[index]


@EVERY_STORE
def test_a_change_is_saved_where_the_view_rolls_its_transaction_back(
    site: Site, atomic_requests_if: Callable[[bool], None]
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        transaction.set_rollback(True)
        return HttpResponse(status=409)

    atomic_requests_if(True)
    site.serve(view)
    assert site.post().status_code == 409
    assert site.at_release[0]["vouchers"] == 4  # type: ignore[index]


@EVERY_STORE
@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("raises", [True, False])
def test_a_500_saves_nothing_as_everywhere_in_django(
    site: Site, atomic_requests_if: Callable[[bool], None], atomic: bool, raises: bool
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        if raises:
            raise ZeroDivisionError
        return HttpResponse(status=500)

    atomic_requests_if(atomic)
    site.client.raise_request_exception = False
    site.serve(view)
    assert site.post().status_code == 500
    assert site.at_release[0]["vouchers"] == 5  # type: ignore[index]
    assert site.stored()["vouchers"] == 5  # type: ignore[index]


@EVERY_STORE
def test_a_lock_that_is_lost_before_commit_saves_nothing(
    site: Site, atomic_requests_if: Callable[[bool], None]
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        locks.close_all()
        return HttpResponse()

    def after(request: HttpRequest) -> None:
        left.append(request.session["vouchers"])

    left: list[int] = []
    atomic_requests_if(True)
    site.after = after
    site.serve(view)
    assert site.post().status_code == 503
    assert site.stored()["vouchers"] == 5  # type: ignore[index]
    # A site that answers otherwise would save it.
    assert left == [5]


@EVERY_STORE
def test_what_the_view_saves_itself_is_saved(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        request.session.save()
        assert site.stored()["vouchers"] == 4  # type: ignore[index]
        request.session["vouchers"] -= 1
        return HttpResponse()

    site.serve(view)
    site.post()
    assert site.at_release[0]["vouchers"] == 3  # type: ignore[index]


def test_guards_that_follow_each_other_in_a_request_each_compare(site: Site) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        spend_one(request)
        site.others(vouchers=2)
        spend_one(request)
        return HttpResponse()

    def spend_one(request: HttpRequest) -> None:
        helper(request)

    helper = distributed_lock(lambda request: "mine")(spend)
    site.settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("spend", view)]})
    site.post()
    assert [one["vouchers"] for one in site.at_release if one] == [4, 1]
    assert site.stored()["vouchers"] == 1  # type: ignore[index]


@pytest.mark.parametrize("backend", ["db", "cached_db"])
def test_a_row_is_saved_in_the_transaction_of_the_view(
    site: Site, atomic_requests_if: Callable[[bool], None], backend: str
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        # The first that happens after COMMIT.
        transaction.on_commit(lambda: seen.append(Session.objects.get(pk=site.key).get_decoded()))
        return spend(request)

    from django.contrib.sessions.models import Session

    seen: list[dict[str, Any]] = []
    atomic_requests_if(True)
    site.serve(view)
    assert site.post().status_code == 200
    assert seen[0]["vouchers"] == 4


def test_what_a_hook_changes_after_commit_is_saved_before_the_release(
    site: Site, atomic_requests_if: Callable[[bool], None]
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        transaction.on_commit(lambda: spend(request) and None)
        return spend(request)

    atomic_requests_if(True)
    site.serve(view)
    site.post()
    assert site.at_release[0]["vouchers"] == 3  # type: ignore[index]


@EVERY_STORE
@pytest.mark.parametrize("raises", [True, False])
def test_a_row_as_lock_ends_with_the_transaction(
    site: Site, atomic_requests_if: Callable[[bool], None], backend: str, raises: bool
) -> None:
    """What is no row of its own is saved before COMMIT, since that is the release."""
    seen: list[int] = []

    def view(request: HttpRequest) -> HttpResponse:
        spend(request)
        if raises:
            raise PermissionDenied
        return HttpResponse()

    def ended(self: Any) -> None:
        seen.append(site.store()["vouchers"])
        (roll_back if raises else commit)(self)

    site.settings.DISTLOCK = {"default": {"BACKEND": "database"}}
    commit, roll_back = BaseDatabaseWrapper._commit, BaseDatabaseWrapper._rollback
    site.serve(view)
    atomic_requests_if(True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "_rollback" if raises else "_commit", ended)
        assert site.post().status_code == (403 if raises else 200)
    if backend in {"cache", "file"} or (backend == "db" and not raises):
        assert seen[-1] == 4
    assert site.stored()["vouchers"] == 4  # type: ignore[index]


# -- after the release ------------------------------------------------------------------------------------


@EVERY_STORE
def test_what_others_save_after_the_release_is_not_overwritten(site: Site) -> None:
    site.after = lambda request: site.others(vouchers=3, seen=True)
    site.serve(spend)
    assert "sessionid" in site.post().cookies
    assert site.at_release[0]["vouchers"] == 4  # type: ignore[index]
    assert (site.stored()["vouchers"], site.stored()["seen"]) == (3, True)  # type: ignore[index]


@EVERY_STORE
@pytest.mark.parametrize("view", [spend, look])
def test_what_this_request_writes_after_the_release_is_merged(site: Site, view: View) -> None:
    def after(request: HttpRequest) -> None:
        request.session["message"] = "thank you"
        site.others(vouchers=3)

    site.after = after
    site.serve(view)
    assert "sessionid" in site.post().cookies
    assert (site.stored()["vouchers"], site.stored()["message"]) == (3, "thank you")  # type: ignore[index]


@EVERY_STORE
def test_saving_every_request_extends_the_expiry_and_overwrites_nothing(site: Site) -> None:
    site.settings.SESSION_SAVE_EVERY_REQUEST = True
    site.before = lambda request: site.others(vouchers=4)
    site.after = lambda request: site.others(vouchers=3)
    site.serve(look)
    response = site.post()
    assert response.text == "4"
    assert "sessionid" in response.cookies
    assert site.stored()["vouchers"] == 3  # type: ignore[index]


def test_the_row_of_a_changed_session_is_written_once(site: Site) -> None:
    site.serve(spend)
    with CaptureQueriesContext(connection) as queries:
        site.post()
    written = [query["sql"] for query in queries if "UPDATE" in query["sql"]]
    assert len(written) == 1


@EVERY_STORE
def test_an_error_of_the_site_that_has_a_status_saves_nothing(site: Site, backend: str) -> None:
    class NoSuchProduct(Exception):
        """As clients of an API have it. Django answers it with 500."""

        status_code = 404

    def view(request: HttpRequest) -> HttpResponse:
        request.session["vouchers"] -= 1
        raise NoSuchProduct

    site.serve(view)
    site.client.raise_request_exception = False
    assert site.post().status_code == 500
    assert (site.stored() or {})["vouchers"] == 5
