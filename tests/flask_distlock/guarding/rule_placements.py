"""What a rule may stand around in Flask."""

from __future__ import annotations

from flask_distlock import distributed_lock
from tests.flask_distlock.guarding.decorations import login_required, method_view, without_wraps
from tests.flask_distlock.guarding.recorded_shop import Arrangements, RecordedShop

ruled = Arrangements()


@ruled
def a_rule(shop: RecordedShop) -> None:
    shop.route(shop.buy)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_for_an_async_view(shop: RecordedShop) -> None:
    shop.route(shop.abuy)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_for_a_class(shop: RecordedShop) -> None:
    shop.route(method_view(shop).as_view("buy"))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_for_an_async_class(shop: RecordedShop) -> None:
    shop.route(method_view(shop, is_async=True).as_view("buy"))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_above_decorators(shop: RecordedShop) -> None:
    shop.route(without_wraps(login_required(shop.buy)))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_above_a_guard_on_the_same_name(shop: RecordedShop) -> None:
    shop.route(distributed_lock("product_<id>", timeout=0)(shop.buy))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_above_an_async_class_with_a_guard(shop: RecordedShop) -> None:
    cls = method_view(shop, is_async=True)
    shop.route(distributed_lock("product_<id>", timeout=0)(cls).as_view("buy"))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@ruled
def a_rule_for_a_view_that_leaves_the_commit_to_the_teardown(shop: RecordedShop) -> None:
    shop.app.teardown_request(lambda error: shop.db.session.commit())
    shop.route(shop.sell)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]
