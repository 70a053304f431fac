"""What a view finds on its user under the lock, one function a case: site.py runs them.

In each of them a middleware stands for what a request does before its lock, and then for another request,
which changes the row while this one waits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib import auth
from django.contrib.auth.middleware import get_user
from django.db import connection
from django.db.models import F
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.functional import SimpleLazyObject

from distlock.errors import StaleWrite
from django_distlock import distributed_lock
from tests.django_distlock.fresh.asking import (
    BEFORE,
    PAGE,
    after_loading,
    ask,
    load,
    new_alice,
    others,
    serving,
)
from tests.django_distlock.fresh.bank.models import Customer, Plan, Profile


def case_a_field_that_another_request_has_written() -> None:
    new_alice(balance=5)
    seen: list[Any] = []

    def before(request: Any) -> None:
        seen.append(request._cached_user if request.user.pk else None)
        others(balance=2, first_name="Alice")

    def view(request: Any) -> None:
        assert (request.user.balance, request.user.first_name) == (2, "Alice")
        assert request._cached_user is seen[0]

    assert ask(before, view) == 200


def case_the_page_is_right() -> None:
    """Its example spends the last coin once."""
    page = Path(__file__).parents[3] / "docs/explanation/read-under-the-lock.md"
    (example,) = re.findall(r"^```python\n(@distributed_lock\(\"user_.*?)^```", page.read_text("utf-8"), PAGE)
    given: dict[str, Any] = {
        "__name__": "page",
        "HttpResponse": HttpResponse,
        "distributed_lock": distributed_lock,
    }
    exec(example, given)
    alice = new_alice(balance=2)
    client = Client()
    client.force_login(alice)
    with serving(given["spend"], after_loading(lambda: others(balance=F("balance") - 1)), None):
        assert client.post("/spend").content == b"spent"
        assert client.post("/spend").content == b"no coins left"


def case_the_user_counts_as_read_under_the_lock() -> None:
    """Nothing is told of a user, or a profile, that was compared."""
    new_alice(balance=5)
    assert Profile.objects.get().points == 5

    def before(request: Any) -> None:
        assert request.user.profile.points == 5
        others(balance=4)

    def view(request: Any) -> None:
        request.user.balance -= 1
        request.user.save()
        request.user.profile.points -= 1
        request.user.profile.save()

    assert ask(before, view, DISTLOCK_STALE_WRITES="raise") == 200
    assert Customer.objects.get().balance == 3
    new_alice(balance=5)
    with pytest.raises(StaleWrite):
        ask(before, view, DISTLOCK_STALE_WRITES="raise", DISTLOCK_REFRESH_USER=False)


def case_nothing_is_read_where_the_user_was_not_loaded() -> None:
    new_alice()
    queries: list[str] = []

    def view(request: Any) -> None:
        with CaptureQueriesContext(connection) as captured:
            assert request.user.pk
        queries.extend(one["sql"] for one in captured.captured_queries)

    assert ask(lambda request: None, view) == 200
    # Those that load the session and the user: both come after the lock.
    assert len(queries) == 2


def case_one_query_is_all_it_costs() -> None:
    new_alice()

    def before(request: Any) -> None:
        assert request.user.profile.points == 5
        request.captured = CaptureQueriesContext(connection).__enter__()

    def view(request: Any) -> None:
        queries = [one["sql"] for one in request.captured.captured_queries]
        assert len(queries) == 1, queries
        assert request.user.profile.points == 5

    assert ask(before, view, DISTLOCK_REFRESH_SESSION=False) == 200


def case_it_can_be_switched_off() -> None:
    new_alice(balance=5)

    def view(request: Any) -> None:
        assert request.user.balance == 5

    assert ask(after_loading(lambda: others(balance=2)), view, DISTLOCK_REFRESH_USER=False) == 200


def case_what_a_middleware_has_set_stays() -> None:
    new_alice()

    def before(request: Any) -> None:
        request.user.otp_device = device = object()
        request.device = device
        request.user.get_all_permissions()
        others(balance=2)

    def view(request: Any) -> None:
        assert request.user.otp_device is request.device
        assert request.user._perm_cache == set()
        assert request.user.balance == 2

    assert ask(before, view) == 200


def case_lists_and_dicts_stay_the_same_objects() -> None:
    new_alice(wishes={"books": ["one"], "toys": {"car": 1}, "old": 1})

    def before(request: Any) -> None:
        request.wishes = request.user.wishes
        request.books = request.user.wishes["books"]
        request.toys = request.user.wishes["toys"]
        others(wishes={"books": ["two", "three"], "toys": {"car": 2}, "new": 1})

    def view(request: Any) -> None:
        assert request.user.wishes is request.wishes
        assert request.wishes == {"books": ["two", "three"], "toys": {"car": 2}, "new": 1}
        assert request.wishes["books"] is request.books
        assert request.wishes["toys"] is request.toys

    assert ask(before, view) == 200


def case_a_profile_that_is_cached_on_the_user() -> None:
    new_alice()

    def before(request: Any) -> None:
        request.profile = request.user.profile
        request.tags = request.profile.tags
        request.profile.note = "mine"
        Profile.objects.update(points=1, tags=["old", "rich"])

    def view(request: Any) -> None:
        assert request.user.profile is request.profile
        assert (request.profile.points, request.profile.note) == (1, "mine")
        assert request.profile.tags is request.tags
        assert request.tags == ["old", "rich"]

    assert ask(before, view) == 200


def case_a_profile_that_is_made_or_deleted_meanwhile() -> None:
    alice = new_alice()

    def deleted(request: Any) -> None:
        assert request.user.profile
        Profile.objects.all().delete()

    def made(request: Any) -> None:
        assert not hasattr(request.user, "profile")
        Profile.objects.create(customer=alice, points=3)

    def is_gone(request: Any) -> None:
        assert not hasattr(request.user, "profile")

    def is_there(request: Any) -> None:
        assert request.user.profile.points == 3

    assert ask(deleted, is_gone) == 200
    assert ask(made, is_there) == 200


def case_a_foreign_key_that_is_cached_on_the_user() -> None:
    cheap, dear = Plan.objects.create(price=1), Plan.objects.create(price=9)
    alice = new_alice()
    cheap.save(), dear.save()
    others(plan=cheap)

    def price_rises(request: Any) -> None:
        request.plan = request.user.plan
        Plan.objects.filter(pk=cheap.pk).update(price=2)

    def costs_more(request: Any) -> None:
        assert request.user.plan is request.plan
        assert request.plan.price == 2

    def plan_changes(request: Any) -> None:
        assert request.user.plan.price == 2
        others(plan=dear)

    def is_dear(request: Any) -> None:
        assert request.user.plan.price == 9

    assert ask(price_rises, costs_more) == 200
    assert ask(plan_changes, is_dear) == 200
    assert alice.pk


class Facade:
    """What a site may put in the place of its user."""

    def __init__(self, user: Any) -> None:
        self._user = user

    def __getattr__(self, name: str) -> Any:
        return getattr(self._user, name)


def case_a_user_that_was_found_and_stands_behind_something_else() -> None:
    def found(request: Any) -> None:
        # As AuthenticationMiddleware does it for request.user, which stays unused.
        assert get_user(request).pk

    def lazy(request: Any) -> None:
        found(request)
        request.user = SimpleLazyObject(lambda: get_user(request))

    def facade(request: Any) -> None:
        request.user = Facade(get_user(request))

    def nowhere(request: Any) -> None:
        found(request)
        del request.user

    for look in (found, lazy, facade, nowhere):
        new_alice(balance=5)

        def before(request: Any, look: Callable[[Any], None] = look) -> None:
            look(request)
            others(balance=2)

        def view(request: Any) -> None:
            assert getattr(request, "user", get_user(request)).balance == 2

        assert ask(before, view) == 200

        def refused(request: Any, look: Callable[[Any], None] = look) -> None:
            look(request)
            others(is_active=False)

        assert ask(refused, view) == 403


def case_users_that_are_no_rows() -> None:
    new_alice()

    class Robot:
        pk, is_authenticated = 7, True

    for user in (Robot(), Customer(pk=7, balance=3), Customer(balance=3), auth.models.AnonymousUser(), None):

        def before(request: Any, user: Any = user) -> None:
            request.user = user
            request.captured = CaptureQueriesContext(connection).__enter__()

        def view(request: Any, user: Any = user) -> None:
            assert not len(request.captured)
            assert request.user is user

        assert ask(before, view) == 200


def case_no_session_and_no_users() -> None:
    new_alice()
    assert ask(lambda request: None, lambda request: None, MIDDLEWARE=[BEFORE]) == 200


def case_a_nested_guard_reads_again_for_a_new_lock_only() -> None:
    new_alice(balance=5)
    seen: list[tuple[int, int]] = []

    @distributed_lock("bank")
    def again(request: Any) -> None:
        seen.append((request.user.balance, 5))

    @distributed_lock("vault")
    def another(request: Any) -> None:
        seen.append((request.user.balance, 4))

    def view(request: Any) -> None:
        others(balance=4)
        again(request)
        another(request)

    assert ask(load, view) == 200
    assert all(found == wanted for found, wanted in seen), seen
    assert len(seen) == 2
