"""Each guard keeps a Django and a Flask instance from overselling, on every database that has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from demo_shop.configuration import Configuration
from loadtest import run
from loadtest.run import SaleRun, run_scenario
from loadtest.scenario import CART, VISITS, BuyerCrowd, Scenario, story
from loadtest.servers.databases import DATABASES
from loadtest.verdict import Conclusion
from tests.databases import Databases
from tests.loadtest.buyers import check_out

#: So many carts that all is sold in the end: what is left of one product fits into few of them. And so much
#: stock that both instances sell some.
CROWD, STOCK = BuyerCrowd(users=20, purchases=10), 10
#: So many sales are held before one that says nothing is a failure.
SALES = 3
GUARDS = ("for-update", "conditional", "optimistic", "unique-row")
Sell = Callable[[str, Scenario], SaleRun]


@pytest.fixture(scope="module")
def sell(databases: Databases) -> Iterator[Sell]:
    """Hold a sale of carts; each control is run once."""
    shop = VISITS[CART].furnish(Configuration(), STOCK, None)
    with pytest.MonkeyPatch.context() as patched:
        # Locust takes longer to start than these sales take.
        patched.setattr(run, "load", check_out)

        @cache
        def sell(database: str, scenario: Scenario) -> SaleRun:
            control = sell(database, story("mixed")[-2]).conclusion if scenario.control else None
            url = databases(database, "guards")
            # SQLite may keep one instance waiting for as long as the other sells all: that says nothing.
            for _ in range(SALES):
                done = run_scenario(scenario, VISITS[CART], shop, CROWD, "file", url, control)
                if done.conclusion is not Conclusion.INCONCLUSIVE:
                    break
            return done

        yield sell


# SQLite has no SELECT … FOR UPDATE: test_matrix.py shows that it is refused.
@pytest.mark.parametrize(
    ("database", "guard"),
    [(one, guard) for one in DATABASES for guard in GUARDS if (one, guard) != ("sqlite", "for-update")],
)
def test_a_guard_of_the_database_sells_carts_exactly(database: str, guard: str, sell: Sell) -> None:
    done = sell(database, story("mixed", guard)[-1])
    assert done.scenario.guard == guard
    assert done.conclusion is Conclusion.SHOWN, done.verdict
