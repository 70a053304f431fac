"""A stack of two locks, one of which is lost, and the session that one of them keeps apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.sessions.backends.file import SessionStore
from django.http import HttpRequest, HttpResponse
from django.test import Client

import distlock
from distlock.errors import LockLost
from distlock.testing.fakes import lose_grant
from django_distlock import distributed_lock, locks
from django_distlock.signals import lock_acquired, lock_contended, lock_released
from tests.django_distlock.guarding.test_stacks import (
    aliases,  # noqa: F401
    ask,
    closed,  # noqa: F401
    connected,
    grant_of,
    held,
    stacked,
)

Serve = Callable[..., Client]

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def lost_meanwhile(aliases: None) -> Iterator[None]:  # noqa: F811
    """Somebody has the lower lock until the upper one is lost."""
    taken = locks["new"].lock("product_1").acquire()
    assert taken is not None
    upper: list[distlock.Grant] = []

    def note(alias: str, grant: distlock.Grant, **_: Any) -> None:
        if alias == "old":
            upper.append(grant)

    def lose(alias: str, **_: Any) -> None:
        assert alias == "new"
        lose_grant(upper[0], "a test")
        taken.release()

    with connected(lock_acquired, note), connected(lock_contended, lose):
        yield
    assert taken.released


def unreached(*args: Any, **kwargs: Any) -> HttpResponse:
    pytest.fail("ran")


async def aunreached(*args: Any, **kwargs: Any) -> HttpResponse:
    pytest.fail("ran")


@pytest.mark.parametrize("view", [unreached, aunreached])
def test_a_view_does_not_run_if_its_upper_lock_is_lost_while_it_waits_for_the_lower(
    serve: Serve, lost_meanwhile: None, view: Any
) -> None:
    response = ask(serve, stacked(view))
    assert (response.status_code, response.json()["code"]) == (503, "lock_lost")
    assert held() == ""


@pytest.mark.parametrize("kind", ["function", "async function"])
def test_a_function_does_not_run_if_its_upper_lock_is_lost_while_it_waits_for_the_lower(
    lost_meanwhile: None, kind: str
) -> None:
    def job(id: int) -> None:
        pytest.fail("ran")

    async def ajob(id: int) -> None:
        pytest.fail("ran")

    call = stacked(job) if kind == "function" else async_to_sync(stacked(ajob))
    with pytest.raises(LockLost):
        call(1)
    assert held() == ""


@pytest.fixture
def store(settings: Any, tmp_path: Path) -> SessionStore:
    """That of a session with 10 vouchers."""
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.file"
    settings.SESSION_FILE_PATH = str(tmp_path)
    settings.MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
    store = SessionStore()
    store["vouchers"] = 10
    store.save()
    return store


def show(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(str(request.session["vouchers"]))


async def ashow(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(str(await request.session.aget("vouchers")))


@pytest.mark.parametrize("view", [show, ashow])
@pytest.mark.parametrize("apart", ["old", "new"])
def test_a_session_is_compared_if_either_lock_keeps_it_apart(
    serve: Serve, store: SessionStore, apart: str, view: Any
) -> None:
    names = {alias: "all" if alias == apart else "product_<id>" for alias in ("old", "new")}
    view = stacked(view, *(distributed_lock(names[alias], alias=alias) for alias in names))

    def spend(request: HttpRequest, alias: str, **_: Any) -> None:
        if alias == "old":
            assert request.session["vouchers"] == 10
            store["vouchers"] = 3
            store.save()

    with connected(lock_acquired, spend):
        assert ask(serve, view, sessionid=str(store.session_key)).content == b"3"


@pytest.mark.parametrize("kind", ["view", "async view"])
@pytest.mark.parametrize("lost", ["old", "new"])
def test_a_session_is_not_saved_under_a_stack_of_which_one_lock_is_lost(
    serve: Serve, store: SessionStore, lost: str, kind: str
) -> None:
    def spend(request: HttpRequest, id: int) -> HttpResponse:
        request.session["vouchers"] = 9
        lose_grant(grant_of(lost), "a test")
        return HttpResponse("spent")

    async def aspend(request: HttpRequest, id: int) -> HttpResponse:
        await request.session.aset("vouchers", 9)
        lose_grant(grant_of(lost), "a test")
        return HttpResponse("spent")

    stored: list[int] = []

    def note(**_: Any) -> None:
        stored.append(SessionStore(store.session_key)["vouchers"])

    view = stacked(
        spend if kind == "view" else aspend,
        *(distributed_lock("all", alias=alias) for alias in ("old", "new")),
    )
    with connected(lock_released, note):
        ask(serve, view, sessionid=str(store.session_key))
    assert stored == [10, 10]
