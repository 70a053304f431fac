"""A backend of another distribution is found by its entry point, and a broken one says which it is."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import distlock
from distlock.testing import conformance
from distlock.testing.waits import engine_of
from tests.flask_guard import site_locks

MODULE = """
from distlock.backends.base import Capabilities
from distlock.backends.memory import MemoryBackend

class Backend(MemoryBackend):
    def __init__(self, url: str, *, dial_timeout: float = 1.0) -> None:
        super().__init__(url)

not_a_backend = 1
"""
Install = Callable[..., str]
#: What one test has imported must not be what the next one finds.
_numbers = itertools.count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution that offers *scheme*. Returns the name of its module."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(scheme: str = "etcd", offers: str = "{module}:Backend", module: str = MODULE) -> str:
        name = f"locks_of_test_{next(_numbers)}"
        (tmp_path / f"{name}.py").write_text(module, encoding="utf-8")
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
        entry = f"[distlock.backends]\n{scheme} = {offers.format(module=name)}\n"
        (metadata / "entry_points.txt").write_text(entry, encoding="utf-8")
        return name

    return install


def refusal(url: str = "etcd://localhost") -> str:
    with pytest.raises(distlock.ConfigurationError) as caught:
        distlock.connect(url)
    return str(caught.value)


class TestProtocol(
    conformance.ProtocolConformance,
    conformance.NumberConformance,
    conformance.LeaseConformance,
    conformance.HandingConformance,
    conformance.ReadConformance,
    conformance.ReadLeaseConformance,
    conformance.PermitConformance,
    conformance.PermitLeaseConformance,
):
    @pytest.fixture
    def url(self, install: Install) -> str:
        install()
        return "etcd://localhost"


def test_what_it_lacks_is_refused_by_its_scheme(install: Install) -> None:
    install(module=MODULE.replace("not_a_backend = 1", "Backend.capabilities = Capabilities()"))
    locks = distlock.connect("etcd://localhost")
    with pytest.raises(distlock.ConfigurationError, match="from the backend 'etcd'"):
        locks.semaphore("a", limit=1)
    locks.close()


def test_its_scheme_connects(install: Install) -> None:
    module = install()
    locks = distlock.connect("etcd://localhost", dial_timeout=3)
    with locks.lock("product_1"):
        assert type(engine_of(locks).backend).__module__ == module
    locks.close()


def test_capital_letters_of_a_scheme_do_not_count(install: Install) -> None:
    install()
    distlock.connect("ETCD://localhost").close()


def test_its_options_are_checked(install: Install) -> None:
    install()
    with pytest.raises(
        distlock.ConfigurationError, match=r"no option 'dial_timeouts'.*Did you mean 'dial_timeout'"
    ):
        distlock.connect("etcd://localhost", dial_timeouts=3)


@pytest.mark.parametrize(
    "setting",
    [
        "etcd://localhost",
        {"default": {"LOCATION": "etcd://localhost"}},
        {"default": {"BACKEND": "etcd", "LOCATION": "etcd://localhost", "OPTIONS": {"dial_timeout": 3}}},
    ],
)
def test_the_settings_of_a_site_find_it(install: Install, setting: object) -> None:
    module = install()
    client = site_locks(setting)
    assert type(engine_of(client).backend).__module__ == module
    client.close()


def test_it_is_named_where_another_word_is_unknown(install: Install) -> None:
    install()
    assert "etcd://" in refusal("consul://localhost")
    with pytest.raises(distlock.ConfigurationError, match="Did you mean 'etcd'"):
        site_locks({"default": {"BACKEND": "etc", "LOCATION": "etcd://localhost"}})


def test_a_location_of_another_backend_is_seen(install: Install) -> None:
    install()
    with pytest.raises(distlock.ConfigurationError, match="LOCATION that starts with 'redis://'"):
        site_locks({"default": {"BACKEND": "etcd", "LOCATION": "redis://localhost"}})


def test_without_a_location_it_says_what_to_write(install: Install) -> None:
    install()
    with pytest.raises(distlock.ConfigurationError, match='"LOCATION": "etcd://localhost"'):
        site_locks({"default": {"BACKEND": "etcd"}})


def test_nobody_takes_a_scheme_of_ours(install: Install) -> None:
    module = install(scheme="memory")
    locks = distlock.connect("memory://x")
    assert type(engine_of(locks).backend).__module__ != module
    locks.close()


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"offers": "no_such_module_at_all:Backend"}, "needs no_such_module_at_all"),
        ({"offers": "{module}:Missing"}, "has no 'Missing'"),
        ({"offers": "{module}"}, "has no ''"),
        ({"module": "import no_such_module_at_all"}, "needs no_such_module_at_all"),
        ({"module": "raise RuntimeError('no licence')"}, "RuntimeError('no licence')"),
        ({"module": "1 +"}, "SyntaxError"),
    ],
)
def test_a_broken_one_is_named_with_its_distribution(
    install: Install, broken: dict[str, str], says: str
) -> None:
    name = install(**broken)
    told = refusal()
    assert says in told
    assert f"distribution {name!r}" in told
    assert "repair or uninstall" in told


def test_something_else_than_a_backend_is_refused(install: Install) -> None:
    install(offers="{module}:not_a_backend")
    assert "is no backend of distlock" in refusal()


def test_a_list_that_cannot_be_read_is_told(install: Install, tmp_path: Path) -> None:
    name = install()
    (tmp_path / f"{name}-1.0.dist-info" / "entry_points.txt").write_bytes(
        b"[distlock.backends]\netcd = \xff\n"
    )
    told = refusal()
    assert "entry_points.txt is broken" in told
    assert "UnicodeDecodeError" in told


def test_two_that_offer_one_scheme_are_refused(install: Install) -> None:
    names = sorted([install(), install()])
    told = refusal()
    assert " and ".join(names) in told
    assert "dotted path" in told
    with pytest.raises(distlock.ConfigurationError, match="Several installed distributions"):
        site_locks({"default": {"BACKEND": "etcd", "LOCATION": "etcd://localhost"}})
    # The class of the right one may still be named.
    distlock.connect("etcd://localhost", backend=f"{names[0]}.Backend").close()


def test_only_an_unknown_scheme_looks_for_distributions() -> None:
    script = """
import importlib.metadata

def entry_points(**which):
    raise OSError("looked")

importlib.metadata.entry_points = entry_points
import distlock
from tests.flask_guard import site_locks

for url in ("memory://x", "redis://localhost", "zookeeper://localhost", "file:///var/lib/shop/locks"):
    distlock.connect(url).close()
    site_locks(url).close()
distlock.connect("mine://x", backend="distlock.backends.memory.MemoryBackend").close()
try:
    distlock.connect("etcd://localhost")
except distlock.ConfigurationError as error:
    assert "looked" in str(error), error
else:
    raise AssertionError("nobody looked")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)
