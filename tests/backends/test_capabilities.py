"""What a backend declares decides: what it can't do is refused where somebody asks for it."""

from __future__ import annotations

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

import distlock
from distlock.backends.base import Capabilities
from flask_distlock import DistLock, transaction
from tests.backend_class import EXAMPLES, backend_class
from tests.flask_guard import guarded, site_locks

MemoryBackend = backend_class("memory://")

HERE = "tests.backends.test_capabilities"


class Unnumbered(MemoryBackend):
    capabilities = Capabilities(several_processes=True, lease=True)


class SaysNothing(MemoryBackend):
    capabilities = None  # type: ignore[assignment]


def alias(backend: str = "Unnumbered", **more: object) -> dict[str, object]:
    return {"BACKEND": f"{HERE}.{backend}", "LOCATION": "memory://x", **more}


def test_a_capability_that_is_not_declared_is_not_there() -> None:
    assert Capabilities() == Capabilities(several_processes=False, lease=False, fence=False)
    locks = distlock.connect("memory://x", backend=f"{HERE}.Unnumbered")
    for call in (lambda: locks.read_lock("a"), lambda: locks.inspect("a")):
        with pytest.raises(distlock.ConfigurationError, match=r"can't be had from the backend .*Unnumbered"):
            call()
    locks.close()


@pytest.mark.parametrize("scheme", EXAMPLES)
def test_ours_number_their_locks(scheme: str) -> None:
    can = backend_class(EXAMPLES[scheme]).capabilities
    assert can.fence
    assert can.several_processes == (scheme != "memory")


def test_a_backend_has_to_say_what_it_can_do() -> None:
    with pytest.raises(distlock.ConfigurationError, match=r"does not say what it can do.*Capabilities\(…\)"):
        distlock.connect("memory://x", backend=f"{HERE}.SaysNothing")


def test_a_fence_in_the_settings_is_refused() -> None:
    site_locks({"default": alias()}).close()
    refused = r"^DISTLOCK\['default'\]: FENCE can't be had from .*Unnumbered'.*Leave the fence out"
    for words in ({"FENCE": True}, {"FENCE": "shop", "ON_BACKEND_DOWN": "run"}):
        with pytest.raises(distlock.ConfigurationError, match=refused):
            site_locks({"default": alias(**words)})


def test_a_fence_of_a_decorator_is_refused() -> None:
    assert guarded(lambda: "ran", "product_1", alias()) == "ran"
    assert guarded(lambda: "ran", "product_1", alias(), fence=False) == "ran"
    refused = r'^distributed_lock\("product_1", fence=True\) can\'t be had from .*Unnumbered'
    with pytest.raises(distlock.ConfigurationError, match=refused):
        guarded(lambda: "ran", "product_1", alias(), fence=True)


@pytest.mark.parametrize("names", [["product_1"], ["product_1", "product_2"]])
def test_a_transaction_of_ones_own_is_refused(names: list[str]) -> None:
    app = Flask("own")
    app.config["DISTLOCK"] = {"default": alias()}
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite://"
    db, locks = SQLAlchemy(app), DistLock(app)
    refused = r"^transaction\(grant, session\) can't be had from .*'Unnumbered'"
    with app.app_context():
        with locks.lock(*names) as grant, pytest.raises(distlock.ConfigurationError, match=refused):
            transaction(grant, db.session).__enter__()
        locks.close()


class Alone(MemoryBackend):
    capabilities = Capabilities(lease=True, fence=True)


def test_what_keeps_no_other_process_out_is_told_also_of_a_dotted_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site_locks({"default": alias()})
    assert not caplog.messages
    site_locks({"default": alias("Alone")})
    assert "Alone backend outside of debug mode: each process has locks of its own" in caplog.text
