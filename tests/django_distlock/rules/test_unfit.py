"""What can't be locked by a rule stops the start, and the checks say the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views import View
from django.views.generic import FormView

from distlock.errors import ConfigurationError
from django_distlock import distributed_lock
from django_distlock.middleware import DistlockMiddleware


def buy(request: HttpRequest, id: int) -> HttpResponse: ...


async def abuy(request: HttpRequest, id: int) -> HttpResponse: ...


class Show(View):
    def get(self, request: HttpRequest, id: int) -> HttpResponse: ...


SHOP = [path("<int:id>", buy, name="buy")]
TWICE = [path("eu/", include((SHOP, "shop"), "eu")), path("us/", include((SHOP, "shop"), "us"))]


def rule(**words: object) -> dict[str, object]:
    return {"route": "buy", "lock": "product_<id>", **words}


@pytest.fixture
def refusal(settings: Any, serve: Callable[..., object]) -> Callable[..., str]:
    """What a server that starts with these rules says: the check errors, and the first of them is raised."""

    def refused(view: Any, *rules: object, route: str = "<int:id>") -> str:
        settings.DEBUG = True
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_distlock.middleware.DistlockMiddleware"]
        settings.DISTLOCK_RULES = list(rules) or [rule()]
        serve(view if isinstance(view, list) else [path(route, view, name="buy")])
        found = [message for message in run_checks() if (message.id or "").startswith("distlock.")]
        if not found:
            get_wsgi_application()
            return ""
        assert {message.id for message in found} == {"distlock.E009"}
        with pytest.raises(ConfigurationError) as caught:
            get_wsgi_application()
        assert str(caught.value) == found[0].msg
        return "\n".join(message.msg for message in found)

    return refused


def test_a_rule_that_can_lock_is_not_refused(refusal: Callable[..., str]) -> None:
    assert refusal(buy) == ""


@pytest.mark.parametrize(
    ("view", "rules", "message"),
    [
        (buy, [rule(route="bye")], "the route 'bye', which does not exist. Did you mean 'buy'?"),
        (buy, [rule(routes="buy")], "DISTLOCK_RULES[0] has an unknown key 'routes'. Did you mean 'route'?"),
        (TWICE, [rule(route="buy")], "which does not exist. Did you mean 'us:buy'?"),
        (buy, [rule(lock="product_<pk>")], "<pk> in the lock's name 'product_<pk>' is no argument"),
        (Show.as_view(), [rule(lock="product_<pk>", methods=["GET"])], "the route '<int:id>' has no 'pk'"),
        (Show.as_view(), [rule()], "takes only GET, OPTIONS, so that it would never lock: write \"me"),
        (Show.as_view(), [rule(methods=["GET", "POST"])], 'so that POST would never be locked: write "me'),
        (buy, [rule(), rule()], "two rules for 'buy' that lock every method but GET: name all locks in one"),
        (buy, [rule(), rule(methods=["PUT"])], "two rules for 'buy' that lock PUT: name all locks in one"),
        (buy, [rule(alias="othr")], "DISTLOCK has no alias 'othr', only 'default'"),
        (TWICE, [rule(route="eu:buy")], "lock only one of 'eu:buy' and 'us:buy'"),
        (
            TWICE,
            [rule(route="eu:buy"), rule(route="us:buy", lock="us_<id>")],
            "lock only one of 'eu:buy' and 'us:buy', or each in its own way",
        ),
    ],
)  # fmt: skip
def test_what_could_not_be_locked_stops_the_start(
    view: Any, rules: list[object], message: str, refusal: Callable[..., str]
) -> None:
    assert message in refusal(view, *rules)


def test_text_in_a_bare_placeholder_stops_it(refusal: Callable[..., str]) -> None:
    assert """Write "lock": 'product_<int:id>'""" in refusal(buy, route="<id>")


def test_one_pattern_at_two_places_may_have_one_rule_for_both(refusal: Callable[..., str]) -> None:
    assert refusal(TWICE, rule(route="eu:buy"), rule(route="us:buy")) == ""


def test_all_that_is_wrong_is_found_by_the_checks(refusal: Callable[..., str]) -> None:
    assert len(refusal(buy, rule(route="bye"), rule(alias="othr")).splitlines()) == 2


def test_an_async_view_in_the_transaction_of_a_request_stops_it(
    refusal: Callable[..., str], atomic_requests: None
) -> None:
    assert "abuy is async, and the database 'default' has ATOMIC_REQUESTS" in refusal(abuy)
    assert refusal(transaction.non_atomic_requests(abuy)) == ""


class TestDecoratedViews:
    def test_other_names_stop_it_under_atomic_requests(
        self, refusal: Callable[..., str], atomic_requests: None
    ) -> None:
        message = refusal(distributed_lock("shop_<id>")(buy))
        assert "name all in one place, \"lock\": ['product_<id>', 'shop_<id>']" in message

    def test_another_alias_stops_it_unless_both_lock_the_same_methods(
        self, refusal: Callable[..., str], atomic_requests: None, settings: Any
    ) -> None:
        settings.DISTLOCK = {alias: {"LOCATION": f"memory://{alias}"} for alias in ("default", "other")}
        view = distributed_lock("product_<id>", alias="other")(buy)
        message = "its lock is taken inside the transaction of the rule. Write the same methods"
        assert message in refusal(view)
        assert refusal(view, rule(methods=["*"])) == ""

    def test_the_same_names_in_another_spelling_do_not(
        self, refusal: Callable[..., str], atomic_requests: None
    ) -> None:
        assert refusal(distributed_lock("product_<int:id>")(buy)) == ""

    def test_other_names_for_other_methods_do_not(
        self, refusal: Callable[..., str], atomic_requests: None
    ) -> None:
        assert refusal(distributed_lock("shop_<id>", methods=["GET"])(buy)) == ""

    def test_what_callables_name_is_not_known_before(
        self, refusal: Callable[..., str], atomic_requests: None
    ) -> None:
        assert refusal(distributed_lock(lambda request, id: f"product_{id}")(buy)) == ""

    def test_without_a_transaction_one_lock_may_be_inside_another(self, refusal: Callable[..., str]) -> None:
        assert refusal(distributed_lock("shop_<id>")(buy)) == ""


@pytest.mark.parametrize("name", ["DISTLOCK_RULES", "DISTLOCK_SERVER_TIMING"])
class TestWithoutTheMiddleware:
    def test_the_app_does_not_start(self, settings: Any, name: str) -> None:
        setattr(settings, name, [rule()])
        with pytest.raises(ConfigurationError, match=f"{name} is set, but the middleware .* is missing: add"):
            apps.get_app_config("distlock").ready()

    def test_the_checks_say_so(self, settings: Any, name: str, serve: Callable[..., object]) -> None:
        settings.DEBUG = True
        serve(SHOP)
        setattr(settings, name, [rule()])
        assert "distlock.E010" in [message.id for message in run_checks()]

    def test_a_middleware_of_the_sites_own_that_inherits_is_one(self, settings: Any, name: str) -> None:
        setattr(settings, name, [rule()])
        settings.MIDDLEWARE = [f"{__name__}.Own"]
        apps.get_app_config("distlock").ready()


class Own(DistlockMiddleware): ...


class Sell(View):
    def post(self, request: HttpRequest, id: int) -> HttpResponse: ...


@pytest.mark.attack("A15")
@pytest.mark.parametrize(
    ("view", "other"),
    [
        (buy, buy),
        (buy, functools.wraps(buy)(lambda *args, **kwargs: buy(*args, **kwargs))),
        (Sell.as_view(), Sell.as_view()),
    ],
    ids=["a function", "behind a decorator", "a class"],
)
def test_a_second_route_to_a_view_with_a_rule_is_told(
    refusal: Callable[..., str], view: Any, other: Any
) -> None:
    second = path("old/<int:id>", other, name="old-buy")
    routes = [path("<int:id>", view, name="buy"), second]
    assert "the route 'old/<int:id>' leads to the same view without the lock" in (told := refusal(routes))
    assert 'write a rule for it, too, {"route": "old-buy", …}' in told
    assert refusal(routes, rule(), rule(route="old-buy")) == ""
    assert refusal(routes, rule(only_this_route=True)) == ""
    assert "you have given it a name" in refusal([routes[0], path("old/<int:id>", other)])
    assert "'only_this_route' is 'no'" in refusal(routes, rule(only_this_route="no"))


def test_a_second_route_with_a_guard_of_its_own_is_let_be(refusal: Callable[..., str]) -> None:
    guarded = distributed_lock("product_<id>")(buy)
    assert refusal([path("<int:id>", buy, name="buy"), path("old/<int:id>", guarded, name="old")]) == ""


def test_generic_views_of_django_serve_routes_that_have_nothing_in_common(
    refusal: Callable[..., str],
) -> None:
    pages = [path(f"{name}/<int:id>", FormView.as_view(), name=name) for name in ("buy", "other")]
    assert refusal(pages) == ""
