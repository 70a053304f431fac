from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf.urls.i18n import i18n_patterns
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import include, path, resolve, reverse
from django.views import View

from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from django_distlock import distributed_lock, locks
from django_distlock.conf import MIDDLEWARE
from django_distlock.signals import lock_acquired
from tests.django_distlock.conftest import rule
from tests.django_distlock.guarding.test_transactions import Log, log

__all__ = ["log"]

Rules = Callable[..., Client]


def buy(request: HttpRequest, id: int) -> HttpResponse:
    return HttpResponse(f"{request.method} {'locked' if locks.lock(f'product_{id}').locked() else 'free'}")


@pytest.mark.attack("A28")
def test_a_rule_locks_the_methods_that_change_something(rules: Rules) -> None:
    client = rules(buy)
    assert client.post("/product/1").content == b"POST locked"
    assert client.delete("/product/1").content == b"DELETE locked"
    assert client.get("/product/1").content == b"GET free"


def test_a_rule_locks_the_methods_that_it_names(rules: Rules) -> None:
    client = rules(buy, rule(methods=["GET"]))
    assert client.get("/product/1").content == b"GET locked"
    assert client.post("/product/1").content == b"POST free"


def test_a_predicate_says_which_requests(rules: Rules) -> None:
    client = rules(buy, rule(when=lambda request, id: id == 1))
    assert client.post("/product/1").content == b"POST locked"
    assert client.post("/product/2").content == b"POST free"


def test_rules_for_one_route_with_predicates_stand_around_one_another(rules: Rules) -> None:
    client = rules(
        lambda request, id: HttpResponse(
            " ".join(name for one in current_grants() for name in one.grant.names)
        ),
        rule(when=lambda request, id: id < 3),
        rule(lock="shelf", when=lambda request, id: id > 1),
    )
    found = [client.post(f"/product/{product}").content for product in (1, 2, 3)]
    assert found == [b"product_1", b"product_2 shelf", b"shelf"]


def test_whoever_does_not_get_the_lock_is_answered(rules: Rules) -> None:
    client = rules(buy)
    with locks.lock("product_1"):
        response = client.post("/product/1")
    assert (response.status_code, response.json()["code"]) == (423, "lock_contended")


def test_a_class_is_locked(rules: Rules) -> None:
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return buy(request, id)

    assert rules(Buy.as_view()).post("/product/1").content == b"POST locked"


def test_the_site_still_finds_its_own_view(rules: Rules) -> None:
    assert rules(buy).post("/product/1").status_code == 200
    assert reverse(buy, kwargs={"id": 1}) == reverse("buy", kwargs={"id": 1}) == "/product/1"
    assert resolve("/product/1").func is buy


def test_all_patterns_of_one_name_are_locked(rules: Rules) -> None:
    client = rules([path("a/<int:id>", buy, name="buy"), path("b/<int:id>", buy, name="buy")])
    assert client.post("/a/1").content == client.post("/b/1").content == b"POST locked"


def test_included_routes_are_named_with_their_namespaces(rules: Rules) -> None:
    shop = [path("<int:id>", buy, name="buy")]
    site = [path("eu/", include((shop, "shop"), namespace="eu")), path("<int:id>", buy, name="buy")]
    client = rules(site, rule(route="eu:buy", only_this_route=True))
    assert client.post("/eu/1").content == b"POST locked"
    assert client.post("/1").content == b"POST free"


def test_several_rules_of_one_route_lock_methods_of_their_own(
    rules: Rules, atomic_requests: None, db: None
) -> None:
    client = rules(buy, rule(methods=["PUT"]), rule(methods=["POST"], lock="shop"))
    assert client.put("/product/1").content == b"PUT locked"
    assert client.post("/product/1").content == b"POST free"
    with locks.lock("shop"):
        assert client.post("/product/1").status_code == 423


def in_a_thread(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """A middleware that is not async: under ASGI what is below it is called from a thread."""
    return lambda request: get_response(request)


@pytest.mark.django_db(transaction=True)
class TestOrder:
    @pytest.fixture(params=["wsgi", "asgi"])
    def post(self, request: pytest.FixtureRequest) -> Callable[[str], HttpResponse]:
        if request.param == "wsgi":
            return lambda url: Client().post(url)
        # The sync parts run in this thread: it waits for the loop.
        return lambda url: async_to_sync(AsyncClient().post)(url)

    @pytest.fixture(params=[0, 1])
    def place(self, request: pytest.FixtureRequest, settings: Any, rules: Rules) -> Callable[..., None]:
        """Serve a view with our middleware as the first, or the last."""

        def served(view: Any, *given: dict[str, object]) -> None:
            rules(view, *given)
            others = [name for name in settings.MIDDLEWARE if name != MIDDLEWARE]
            others.append(f"{__name__}.in_a_thread")
            settings.MIDDLEWARE = [MIDDLEWARE, *others] if request.param else [*others, MIDDLEWARE]

        return served

    def test_the_lock_encloses_commit(
        self, place: Callable[..., None], post: Any, atomic_requests: None, log: Log
    ) -> None:
        def names(request: HttpRequest, id: int) -> str:
            log.note("names")
            return f"product_{id}"

        def view(request: HttpRequest, id: int) -> HttpResponse:
            log.note("view in a transaction" if connection.in_atomic_block else "view")
            return HttpResponse()

        place(view, rule(lock=names))
        assert post("/product/1").status_code == 200
        log.note("answer")
        assert log == ["names-", "view in a transaction+", "commit+", "answer-"]

    def test_without_atomic_requests_nothing_is_opened(
        self, place: Callable[..., None], post: Any, log: Log
    ) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            log.note("view in a transaction" if connection.in_atomic_block else "view")
            return HttpResponse()

        place(view)
        assert post("/product/1").status_code == 200
        assert log == ["view+"]

    def test_an_error_is_rolled_back_under_the_lock(
        self, place: Callable[..., None], post: Any, atomic_requests: None, log: Log
    ) -> None:
        def view(request: HttpRequest, id: int) -> HttpResponse:
            raise ZeroDivisionError

        place(view)
        with pytest.raises(ZeroDivisionError):
            post("/product/1")
        log.note("answer")
        assert log == ["rollback+", "answer-"]

    def test_a_decorator_on_the_same_name_asks_no_second_time(
        self, place: Callable[..., None], post: Any, atomic_requests: None, log: Log
    ) -> None:
        acquired: list[object] = []
        lock_acquired.connect(lambda names, **about: acquired.append(names), weak=False, dispatch_uid="count")
        try:
            place(distributed_lock("product_<int:id>")(log.view))
            assert post("/product/1").status_code == 200
        finally:
            lock_acquired.disconnect(dispatch_uid="count")
        assert acquired == [("product_1",)]
        assert log == ["view+", "commit+"]


class TestSettings:
    def test_the_rules_are_those_of_the_settings_whoever_made_the_client(self, rules: Rules) -> None:
        client = rules(buy)
        assert client.post("/product/1").content == b"POST locked"
        with override_settings(DISTLOCK_RULES=[]):
            assert client.post("/product/1").content == Client().post("/product/1").content == b"POST free"
        assert client.post("/product/1").content == b"POST locked"

    def test_another_url_configuration_has_rules_of_its_own(self, rules: Rules) -> None:
        client = rules(buy)

        class Other:
            urlpatterns = [path("other/<int:id>", buy, name="buy")]

        with override_settings(ROOT_URLCONF=Other):
            assert client.post("/other/1").content == b"POST locked"
        assert client.post("/product/1").content == b"POST locked"

    def test_a_server_without_the_middleware_is_left_alone(self, rules: Rules, settings: Any) -> None:
        client, names = rules(buy), settings.MIDDLEWARE
        assert client.post("/product/1").content == b"POST locked"
        settings.MIDDLEWARE = names[:-1]
        assert Client().post("/product/1").content == b"POST free"

    def test_two_middlewares_lock_once(self, rules: Rules, settings: Any) -> None:
        client = rules(buy)
        settings.MIDDLEWARE = [MIDDLEWARE, *settings.MIDDLEWARE]
        assert client.post("/product/1").content == Client().post("/product/1").content == b"POST locked"


@pytest.mark.parametrize("ours", [0, 1])
@pytest.mark.parametrize("how", ["wsgi", "asgi"])
def test_a_url_configuration_that_a_middleware_chooses_is_refused(
    rules: Rules, settings: Any, how: str, ours: int
) -> None:
    class Other:
        urlpatterns = [path("other/<int:id>", buy, name="buy"), path("free/<int:id>", buy, name="free")]

    class Choosing:
        def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
            self.get_response = get_response

        def __call__(self, request: HttpRequest) -> HttpResponse:
            request.urlconf = Other
            return self.get_response(request)

    rules(buy)
    globals()["Choosing"] = Choosing
    settings.MIDDLEWARE = [f"{__name__}.Choosing"]
    settings.MIDDLEWARE.insert(ours, MIDDLEWARE)
    post = Client().post if how == "wsgi" else async_to_sync(AsyncClient().post)
    with pytest.raises(ConfigurationError, match=r"'buy', and /other/1 was routed there by .*Other"):
        post("/other/1")
    assert post("/free/1").content == b"POST free"


def test_routes_below_a_language_are_locked(rules: Rules) -> None:
    client = rules(i18n_patterns(path("product/<int:id>", buy, name="buy")))
    assert client.post("/en-us/product/1").content == b"POST locked"


def test_an_included_pattern_is_reached_by_every_url_configuration_that_includes_it(
    rules: Rules, settings: Any
) -> None:
    shop = [path("<int:id>", buy, name="buy")]

    class Other:
        urlpatterns = [path("other/", include(shop))]

    client = rules([path("shop/", include(shop))])
    assert client.post("/shop/1").content == b"POST locked"
    with override_settings(ROOT_URLCONF=Other):
        assert client.post("/other/1").content == b"POST locked"
