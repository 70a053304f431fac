from __future__ import annotations

import pytest

from distlock.errors import ConfigurationError
from distlock.web.rules import read_rules, unknown_route


def rule(**given: object) -> dict[str, object]:
    return {"route": "shop:reduce-stock", "lock": "product_<id>", **given}


def test_a_rule_is_told_what_a_decorator_is_told() -> None:
    (one,) = read_rules([rule(methods=["POST"], alias="other", timeout=2, ttl=20)])
    assert one.route == "shop:reduce-stock"
    assert str(one.options) == (
        'distributed_lock("product_<id>", alias="other", timeout=2, ttl=20, methods=["POST"])'
    )


@pytest.mark.parametrize(
    ("reads", "writes", "moves"),
    [
        ("catalogue", "catalogue", True),
        ("product_<id>", ["all", "product_<int:id>"], True),
        ("product_<id>", "product_<slug>_<id>", True),
        (len, "catalogue", True),
        ("catalogue", len, True),
        ("catalogue", "prices", False),
        ("catalogue_<id>", "prices_<id>", False),
        ("catalogue", "catalogue_<id>", False),
    ],
)
def test_a_reader_moves_behind_a_writer_that_may_write_its_lock(
    reads: object, writes: object, moves: bool
) -> None:
    given = [rule(lock=reads, mode="shared"), rule(lock="all"), rule(lock=writes)]
    modes = [one.options.mode for one in read_rules(given)]
    assert modes.index("read") == (2 if moves else 0)


def test_a_reader_stays_before_the_writers_of_other_routes() -> None:
    rules = read_rules([rule(mode="shared"), rule(route="shop:other")])
    assert [one.options.mode for one in rules] == ["read", "exclusive"]


def test_a_rule_takes_several_names_and_callables() -> None:
    (one,) = read_rules([rule(lock=["product_<id>", len])])
    assert str(one.options) == 'distributed_lock("product_<id>", len)'
    (one,) = read_rules([rule(lock=len)])
    assert str(one.options) == "distributed_lock(len)"


def test_a_predicate_is_a_callable_or_a_dotted_path() -> None:
    assert read_rules([rule(when="os.path.exists")])[0].when is __import__("os").path.exists
    assert read_rules([rule(when=len)])[0].when is len
    assert read_rules([rule()])[0].when is None


def test_no_rules_are_no_rules() -> None:
    assert read_rules(None) == read_rules([]) == read_rules(()) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("product_<id>", r"DISTLOCK_RULES is a str, not a list\. Write DISTLOCK_RULES = \[\{"),
        (rule(), "DISTLOCK_RULES is a dict, not a list"),
        (7, "DISTLOCK_RULES is a int, not a list"),
        (["product_<id>"], r"DISTLOCK_RULES\[0\] is a str, not a dict"),
        ([rule(), {"lock": "a"}], r"DISTLOCK_RULES\[1\]: 'route' is missing"),
        ([{"route": "a"}], "'lock' is missing"),
        ([rule(route=7)], "'route' is a int, not the name of a route"),
        ([rule(metods=["POST"])], "unknown key 'metods'. Did you mean 'methods'?"),
        ([rule(colour="red")], "unknown key 'colour'. Known are route, lock"),
        ([rule(methods=["PSOT"])], r"DISTLOCK_RULES\[0\]: 'PSOT' in methods= is no HTTP method"),
        ([rule(timeout=-1)], r"DISTLOCK_RULES\[0\]: timeout=-1 has to be"),
        ([rule(lock="product_{id}")], "write 'product_<int:id>'"),
        (
            [rule(lock="shop.locks.name_of")],
            "the function itself. If it is a name, write 'shop_locks_name_of'",
        ),
        ([rule(lock=["product_<id>", "shop.export"])], "'lock' is 'shop.export', which would be one name"),
        ([rule(blocking=False)], "unknown key 'blocking'. Here that is timeout=0 for blocking=False"),
        ([rule(lock=7)], "'lock' is a int"),
        ([rule(when=7)], "'when' is a int: write a dotted path or a callable"),
        ([rule(when="no.such.thing")], "'when' is 'no.such.thing', which can't be imported"),
        ([rule(when="thing")], "'when' is 'thing', which can't be imported"),
        ([rule(when="asyncio.sleep")], "'when' is 'asyncio.sleep', which is async"),
        ([rule(when="os.sep")], "'when' is 'os.sep', which is a str and no callable"),
    ],
)
def test_what_is_wrong_with_a_rule_is_named(setting: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_rules(setting)


def test_a_route_that_does_not_exist_is_named_with_one_that_does() -> None:
    (one,) = read_rules([rule(route="shop:reduce_stock")])
    assert "Did you mean 'shop:reduce-stock'?" in str(unknown_route(one, ["shop:reduce-stock", "a"]))
    assert "Known are a." in str(unknown_route(one, ["a"]))
