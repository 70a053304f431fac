"""What a view finds on its user under the lock, one function a case: site.py runs them.

In each of them a middleware stands for what a request does before its lock, and then for another request,
which changes the row while this one waits.
"""

from __future__ import annotations

import asyncio
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib import auth
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.hashers import make_password
from django.contrib.auth.middleware import get_user
from django.contrib.auth.models import Permission
from django.core.files.base import ContentFile
from django.db import connection, connections
from django.db.models import F, Model, Value
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import path
from django.utils.decorators import sync_and_async_middleware
from django.utils.functional import SimpleLazyObject
from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.response import Response
from rest_framework.views import APIView

from distlock.errors import ConfigurationError, StaleWrite
from django_distlock import distributed_lock
from tests.django_distlock.fresh.bank.models import Customer, Member, Plan, Premium, Profile

PAGE = re.MULTILINE | re.DOTALL
BEFORE = f"{__name__}.before_the_lock"

_before: list[Callable[[Any], object]] = []


@sync_and_async_middleware
def before_the_lock(get_response: Callable[..., Any]) -> Callable[..., Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: Any) -> Any:
            await request.auser()
            await sync_to_async(_before[-1])(request)
            return await get_response(request)

    else:

        def middleware(request: Any) -> Any:
            _before[-1](request)
            return get_response(request)

    return middleware


def new_alice(**fields: Any) -> Customer:
    Customer.objects.all().delete()
    Plan.objects.all().delete()
    alice = Customer.objects.create_user("alice", password="secret", **fields)
    Profile.objects.create(customer=alice, tags=["new"])
    return alice


def others(**fields: Any) -> None:
    """Another request changes the customer's row."""
    Customer.objects.update(**fields)


@contextmanager
def serving(
    view: Any, before: Callable[[Any], object], under: Callable[[Any], Any] | None, **changed: Any
) -> Iterator[None]:
    class Urls:
        urlpatterns = [path("spend", view if under is None else under(view))]

    middleware = [*settings.MIDDLEWARE, BEFORE]
    _before.append(before)
    with override_settings(ROOT_URLCONF=Urls, **{"MIDDLEWARE": middleware, **changed}):
        yield
    _before.pop()


GUARD = distributed_lock("bank")


def ask(
    before: Callable[[Any], object],
    view: Callable[[Any], object],
    under: Callable[[Any], Any] | None = GUARD,
    headers: dict[str, str] | None = None,
    **changed: Any,
) -> int:
    """The status of a request that does *before*, and then *view* under a lock."""

    def answered(request: HttpRequest) -> HttpResponse:
        view(request)
        return HttpResponse("done")

    client = Client()
    backend = changed.get("AUTHENTICATION_BACKENDS", settings.AUTHENTICATION_BACKENDS)[0]
    client.force_login(Customer.objects.get(username="alice"), backend)
    with serving(answered, before, under, **changed):
        return int(client.post("/spend", headers=headers).status_code)


def load(request: Any) -> None:
    assert request.user.pk


def after_loading(change: Callable[[], object]) -> Callable[[Any], None]:
    def before(request: Any) -> None:
        load(request)
        change()

    return before


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


def case_a_value_that_was_set_and_not_saved_stays() -> None:
    new_alice(balance=5, wishes={"books": 1})
    others(plan=Plan.objects.create(price=1))

    def before(request: Any) -> None:
        request.user.plan.price = 7
        request.user.profile.tags.append("mine")
        request.user.first_name = "Ada"
        request.user.wishes["books"] = 2
        others(balance=2)

    def view(request: Any) -> None:
        request.user.save()
        saved = Customer.objects.get()
        assert (saved.first_name, saved.balance, saved.wishes) == ("Ada", 2, {"books": 2})
        assert (request.user.plan.price, request.user.profile.tags) == (7, ["new", "mine"])

    assert ask(before, view) == 200


def case_a_value_that_both_have_set_is_not_saved_over_the_other() -> None:
    new_alice(first_name="Alice")

    def before(request: Any) -> None:
        request.user.first_name = "Ada"
        others(first_name="Eve", balance=2)

    def view(request: Any) -> None:
        assert request.user.first_name == "Ada"
        with pytest.raises(ConfigurationError, match=r"Customer\.first_name"):
            request.user.save()
        request.user.save(update_fields=["balance"])
        request.user.refresh_from_db(fields=["first_name"])
        request.user.save()
        assert Customer.objects.get().first_name == "Eve"
        request.user.first_name = "Ada"
        request.user.save()

    assert ask(before, view) == 200
    assert Customer.objects.get().first_name == "Ada"


def case_a_moment_that_both_have_noted_is_saved() -> None:
    new_alice(balance=5)

    def before(request: Any) -> None:
        request.user.last_login = datetime(2026, 1, 2, tzinfo=UTC)
        others(last_login=datetime(2026, 1, 1, tzinfo=UTC), balance=2)

    assert ask(before, lambda request: request.user.save()) == 200
    alice = Customer.objects.get()
    assert (alice.balance, alice.last_login.day) == (2, 2)


def case_bytes_and_a_user_that_was_pickled() -> None:
    new_alice(balance=5, secret=b"old")

    def before(request: Any) -> None:
        request.user = pickle.loads(pickle.dumps(Customer.objects.get()))
        request.user.first_name = "Ada"
        others(secret=b"new", balance=2)

    def view(request: Any) -> None:
        user = pickle.loads(pickle.dumps(request.user))
        assert (bytes(user.secret), user.balance, user.first_name) == (b"new", 2, "Ada")
        request.user.save()

    def sets_bytes(request: Any) -> None:
        request.user.secret = b"mine"
        others(balance=3)

    assert ask(before, view) == 200
    assert ask(sets_bytes, lambda request: request.user.save()) == 200
    assert bytes(Customer.objects.get().secret) == b"mine"


class Replicas:
    """What is read comes from a replica."""

    def db_for_read(self, model: object, **hints: object) -> str:
        return "replica"

    def db_for_write(self, model: object, **hints: object) -> str:
        return "default"


def case_the_row_is_read_where_it_is_written() -> None:
    new_alice(balance=5)
    connections.databases["replica"] = {**connections.databases["default"]}
    try:
        with override_settings(DATABASE_ROUTERS=[f"{__name__}.Replicas"]):

            def before(request: Any) -> None:
                assert request.user.profile.points == 5
                assert request.user._state.db == "replica"
                Customer.objects.using("default").update(balance=2)
                request.captured = CaptureQueriesContext(connections["replica"]).__enter__()

            def view(request: Any) -> None:
                assert not len(request.captured)
                assert request.user.balance == 2
                assert not connections["default"].in_atomic_block

            assert ask(before, view, DISTLOCK_REFRESH_SESSION=False) == 200
    finally:
        connections["replica"].close()
        del connections.databases["replica"]


def case_a_value_that_was_saved_before_the_lock_is_no_conflict() -> None:
    new_alice(balance=5)

    def before(request: Any) -> None:
        request.user.first_name = "Ada"
        request.user.balance = F("balance") - 1
        request.user.save()
        others(first_name="Eve", balance=F("balance") - 1)

    def view(request: Any) -> None:
        assert (request.user.first_name, request.user.balance) == ("Eve", 3)
        request.user.save()

    assert ask(before, view) == 200


def case_a_value_that_was_refreshed_before_the_lock_is_no_conflict() -> None:
    new_alice(balance=5)

    def before(request: Any) -> None:
        load(request)
        others(balance=4)
        request.user.refresh_from_db()
        others(balance=3)

    def view(request: Any) -> None:
        assert request.user.balance == 3
        request.user.save()

    assert ask(before, view) == 200


def case_an_expression_that_was_set_before_the_lock_is_left_to_the_database() -> None:
    new_alice(balance=5)

    def before(request: Any) -> None:
        request.user.balance = F("balance") - 1
        others(balance=3)

    assert ask(before, lambda request: request.user.save()) == 200
    assert Customer.objects.get().balance == 2


def case_deferred_fields_and_annotations() -> None:
    new_alice(balance=5, wishes={"a": 1})

    def before(request: Any) -> None:
        some = Customer.objects.only("balance").annotate(rank=Value(7))
        request.user = some.select_related("profile").only("balance", "profile__points").get()
        others(balance=2, wishes={})
        Profile.objects.update(points=1)
        request.captured = CaptureQueriesContext(connection).__enter__()

    def view(request: Any) -> None:
        assert "wishes" not in request.captured.captured_queries[-1]["sql"]
        assert "wishes" in request.user.get_deferred_fields()
        assert (request.user.balance, request.user.rank) == (2, 7)
        with CaptureQueriesContext(connection) as captured:
            assert request.user.profile.points == 1
        assert not len(captured)

    assert ask(before, view) == 200


def case_a_deferred_field_that_was_loaded_later() -> None:
    new_alice(balance=5)

    def before(request: Any) -> None:
        request.user = Customer.objects.only("username").get()
        assert request.user.balance == 5
        others(balance=2)

    def view(request: Any) -> None:
        assert request.user.balance == 2

    assert ask(before, view) == 200


def case_proxies_and_subclasses_with_rows_of_their_own() -> None:
    new_alice()
    Customer.objects.all().delete()
    Premium.objects.create_user("alice", balance=5, bonus=5)  # type: ignore[attr-defined]
    seen: list[tuple[int, int]] = []

    def load_as(model: type[Model]) -> Callable[[Any], None]:
        def before(request: Any) -> None:
            others(balance=5)
            Premium.objects.update(bonus=5)
            request.user = model._default_manager.get()
            others(balance=2)
            Premium.objects.update(bonus=1)

        return before

    def child(request: Any) -> None:
        load_as(Customer)(request)
        others(balance=5)
        Premium.objects.update(bonus=5)
        request.user = Customer.objects.get()
        assert request.user.premium.bonus == 5
        others(balance=2)
        Premium.objects.update(bonus=1)

    def parent(request: Any) -> None:
        load_as(Premium)(request)
        assert request.user.customer_ptr.balance

    def both(request: Any) -> None:
        seen.append((request.user.balance, request.user.bonus))

    assert ask(load_as(Member), lambda request: seen.append((request.user.balance, 1))) == 200
    assert ask(load_as(Premium), both) == 200
    assert ask(child, lambda request: seen.append((request.user.balance, request.user.premium.bonus))) == 200
    assert ask(child, lambda request: seen.append((request.user.premium.balance, 1))) == 200
    assert ask(parent, lambda request: seen.append((request.user.customer_ptr.balance, 1))) == 200
    assert seen == [(2, 1)] * 5


def case_files() -> None:
    new_alice(photo="one.png")

    def before(request: Any) -> None:
        assert request.user.photo.name == "one.png"
        others(photo="two.png")

    def view(request: Any) -> None:
        assert request.user.photo.name == "two.png"

    def uploads(request: Any) -> None:
        request.user.photo = ContentFile(b"", name="three.png")
        others(balance=2)

    def has_upload(request: Any) -> None:
        assert (request.user.photo.name, request.user.balance) == ("three.png", 2)

    assert ask(before, view) == 200
    assert ask(uploads, has_upload) == 200


def case_an_image_is_not_opened() -> None:
    """A picture with columns for its size would be read from its storage, and may be gone."""
    new_alice(balance=5)

    def before(request: Any) -> None:
        load(request)
        others(picture="gone.png", width=3, height=4, balance=2)

    def view(request: Any) -> None:
        user = request.user
        assert (user.picture.name, user.width, user.height, user.balance) == ("gone.png", 3, 4, 2)
        assert user.picture.instance is user._wrapped
        user.save()

    assert ask(before, view) == 200
    customer = Customer.objects.get()
    assert (customer.picture.name, customer.width) == ("gone.png", 3)


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


# Authentication that changed while the request waited -------------------------------------------------------


def reached(request: Any) -> None:
    request.reached = True


CHANGES: dict[str, Callable[[], object]] = {
    "row gone": lambda: Customer.objects.all().delete(),
    "inactive": lambda: others(is_active=False),
    "password": lambda: others(password=make_password("other")),
}


GUARDS = [
    GUARD,
    distributed_lock("user_<user.pk>", fence=True),
    distributed_lock("user_<user.pk>", fence=True, batch=32),
]


def case_a_user_who_may_not_log_in_any_more_is_refused() -> None:
    inside: list[Any] = []
    for change in CHANGES.values():
        for guard in GUARDS:
            new_alice()
            assert ask(after_loading(change), inside.append, guard) == 403
        new_alice()
        connection.settings_dict["ATOMIC_REQUESTS"] = True
        try:
            assert ask(after_loading(change), inside.append) == 403
        finally:
            connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert inside == []


def case_what_else_changes_is_no_reason() -> None:
    for fields in ({"last_login": None}, {"email": "alice@example.com"}, {"is_staff": True}):
        new_alice()
        assert ask(after_loading(partial(others, **fields)), reached) == 200


def case_a_cycled_key_is_no_reason() -> None:
    alice = new_alice()

    def before(request: Any) -> None:
        load(request)
        # A second login, from the same browser.
        auth.login(request, alice)
        others(balance=2)

    assert ask(before, reached) == 200


def case_a_user_who_was_inactive_all_along_is_no_reason() -> None:
    new_alice(is_active=False)
    backends = ["django.contrib.auth.backends.AllowAllUsersModelBackend"]
    assert ask(after_loading(lambda: others(balance=2)), reached, AUTHENTICATION_BACKENDS=backends) == 200
    new_alice()
    assert (
        ask(after_loading(lambda: others(is_active=False)), reached, AUTHENTICATION_BACKENDS=backends) == 200
    )


class Anybody(BaseBackend):
    """Knows nothing of inactive users."""

    def get_user(self, user_id: Any) -> Any:
        return Customer.objects.get(pk=user_id)


def case_a_backend_that_takes_inactive_users() -> None:
    backends = [f"{__name__}.Anybody"]
    new_alice(is_active=False)
    assert ask(after_loading(lambda: others(balance=2)), reached, AUTHENTICATION_BACKENDS=backends) == 200
    new_alice()
    change = after_loading(lambda: others(is_active=False))
    assert ask(change, reached, AUTHENTICATION_BACKENDS=backends) == 403


def case_somebody_who_is_impersonated_is_no_reason() -> None:
    for change in ("is_active", "delete"):
        new_alice()
        bob = Customer.objects.create_user("bob", balance=5)

        def before(request: Any, change: str = change, bob: Any = bob) -> None:
            request.impersonator = request.user
            assert request.impersonator.pk
            request.user = SimpleLazyObject(lambda: Customer.objects.get(pk=bob.pk))
            request.user.impersonated_by = request.impersonator
            if change == "delete":
                Customer.objects.filter(pk=bob.pk).delete()
            else:
                Customer.objects.filter(pk=bob.pk).update(is_active=False, balance=2)

        def view(request: Any, change: str = change) -> None:
            assert request.user.impersonated_by is request.impersonator
            assert request.user.balance == (5 if change == "delete" else 2)

        assert ask(before, view) == 200


def rest(authentication: type, change: Callable[[], object]) -> Any:
    class Authentication(authentication):  # type: ignore[misc, valid-type]
        def authenticate(self, request: Any) -> Any:
            found = super().authenticate(request)
            change()
            return found

    class Spend(APIView):  # type: ignore[misc]  # REST framework has no types
        authentication_classes = [Authentication]

        def post(self, request: Any) -> Response:
            return Response(request.user.is_active)

    return GUARD(Spend).as_view()


def case_in_rest_framework_it_is_the_session_alone() -> None:
    for change in CHANGES.values():
        for authentication, status in ((TokenAuthentication, 200), (SessionAuthentication, 403)):
            alice = new_alice()
            token = Token.objects.create(user=alice)
            client = Client()
            client.force_login(alice)
            headers = {"authorization": f"Token {token.key}"}
            # Something else has used the session.
            with serving(rest(authentication, change), lambda request: request.session.get("cart"), None):
                assert client.post("/spend", headers=headers).status_code == status, authentication


def case_async_views_refuse_too() -> None:
    async def view(request: Any) -> HttpResponse:
        return HttpResponse(f"{(await request.auser()).balance}")

    for change, status in (*((one, 403) for one in CHANGES.values()), (lambda: others(balance=2), 200)):
        alice = new_alice()
        first = Client()
        first.force_login(alice)
        client = AsyncClient()
        client.cookies = first.cookies
        with serving(GUARD(view), lambda request, change=change: change(), None):
            response = asyncio.run(client.post("/spend"))
        assert response.status_code == status
        assert status == 403 or response.content == b"2"


def case_a_permission_that_was_given_meanwhile() -> None:
    alice = new_alice()

    def before(request: Any) -> None:
        assert not request.user.has_perm("bank.add_plan")
        alice.user_permissions.add(Permission.objects.get(codename="add_plan"))
        others(is_staff=True)

    def view(request: Any) -> None:
        # The cache of permissions is no field.
        assert not request.user.has_perm("bank.add_plan")
        assert request.user.is_staff

    assert ask(before, view) == 200
