"""What a view finds in fields that were set, saved, refreshed or left out before the lock."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db import connection, connections
from django.db.models import F, Model, Value
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from distlock.errors import ConfigurationError
from tests.django_distlock.fresh.asking import (
    ask,
    load,
    new_alice,
    others,
)
from tests.django_distlock.fresh.bank.models import Customer, Member, Plan, Premium, Profile


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
