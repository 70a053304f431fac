"""The pytest plugin, in the project of somebody else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.test_docs import ROOT

pytest_plugins = ["pytester"]

#: What is not the plugin's, and would be loaded each time.
WITHOUT = ("-p", "no:django", "-p", "no:hypothesispytest", "-p", "no:cacheprovider", "-p", "no:xdist")

SUITE = """
import distlock
import pytest

locks = distlock.connect("memory://plugin", timeout=3600)
stock = [5]


def sell():
    with locks.lock("product_1"):
        if stock[0] < 1:
            return "sold out"
        left = stock[0]
        stock[0] = left - 1
        return "sold"


def test_race(race):
    assert race(sell, times=10).statuses == {"sold": 5, "sold out": 5}


def test_contended_to_the_end(contended):
    contended("product_1")
    with pytest.raises(distlock.LockTimeout):
        sell()


def test_contended_for_a_block(contended):
    with contended("product_1"), pytest.raises(distlock.LockTimeout):
        sell()
    sell()


def test_backend_down(backend_down):
    backend_down()
    with pytest.raises(distlock.BackendUnavailable):
        sell()


def test_lose(lose, held_locks):
    lose("product_1")
    with pytest.raises(distlock.LostInside):
        sell()
    with locks.lock("product_2"):
        assert held_locks() == ["product_2"]


def test_taken_locks(taken_locks):
    sell()
    assert taken_locks == ["product_1"]


def test_nothing_is_left():
    sell()


def test_close():
    locks.close()
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[[str], pytest.RunResult]:
    def run(suite: str) -> pytest.RunResult:
        pytester.makepyfile(suite)
        return pytester.runpytest_inprocess("-q", *WITHOUT, "-p", "pytest_distlock")

    return run


def test_its_fixtures_are_over_with_the_test(run: Callable[[str], pytest.RunResult]) -> None:
    run(SUITE).assert_outcomes(passed=8)


# pytest-django's has an attribute where pytest-flask's has a method.
@pytest.mark.parametrize("url", ['"http://127.0.0.1:1/"', 'lambda self: "http://127.0.0.1:1"'])
def test_addresses_are_those_of_the_live_server(run: Callable[[str], pytest.RunResult], url: str) -> None:
    suite = f"""
    import pytest

    class LiveServer:
        url = {url}

    @pytest.fixture
    def live_server():
        return LiveServer()

    def test_race(race, monkeypatch):
        from distlock.testing import racing
        asked = []
        monkeypatch.setattr(racing, "sending", lambda url, *_, **__: lambda: asked.append(url))
        race("/products/1/reduce", times=2)
        assert asked == ["http://127.0.0.1:1/products/1/reduce"] * 2
    """
    run(suite).assert_outcomes(passed=1)


def test_a_fixture_of_the_projects_own_takes_its_place(run: Callable[[str], pytest.RunResult]) -> None:
    suite = """
    import pytest

    @pytest.fixture
    def race():
        return "the project's"

    def test_own(race):
        assert race == "the project's"
    """
    run(suite).assert_outcomes(passed=1)


def test_loading_it_loads_nothing_else() -> None:
    """pytest does so in each run, of whatever tests."""
    code = (
        "import pytest, sys; before = {*sys.modules}; import pytest_distlock; print({*sys.modules} - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "{'pytest_distlock'}\n"


def test_the_functions_load_no_framework() -> None:
    code = "import sys, distlock.testing; print({'django', 'flask', 'sqlalchemy', 'pytest'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "set()\n"
