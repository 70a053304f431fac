from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from flask import Flask

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock


def test_the_extension_keeps_nothing_on_itself(locks: DistLock, make_app: Callable[..., Flask]) -> None:
    make_app()
    assert vars(locks) == vars(DistLock())


def test_several_apps_of_one_process_have_locks_of_their_own(
    locks: DistLock, make_app: Callable[..., Flask]
) -> None:
    one, two = make_app(), make_app()
    with one.app_context(), locks.lock("product_1"), two.app_context():
        assert not locks.lock("product_1").locked()


def test_apps_over_one_lock_service_exclude_one_another(
    locks: DistLock, make_app: Callable[..., Flask]
) -> None:
    one, two = make_app(DISTLOCK="memory://shared"), make_app(DISTLOCK="memory://shared")
    with one.app_context(), locks.lock("product_1"), two.app_context():
        assert locks.lock("product_1").locked()


def test_one_view_serves_the_apps_of_a_factory(locks: DistLock, make_app: Callable[..., Flask]) -> None:
    @distributed_lock("product_<id>", timeout=0)
    def buy(id: int) -> str:
        return "sold"

    one, two = make_app(), make_app()
    for app in (one, two):
        app.add_url_rule("/<int:id>", view_func=buy)
    with one.app_context(), locks.lock("product_1"):
        assert one.test_client().get("/1").status_code == 423
        assert two.test_client().get("/1").status_code == 200


def test_the_config_may_come_after_the_extension(locks: DistLock) -> None:
    app = Flask(__name__)
    locks.init_app(app)
    app.config["DISTLOCK"] = "memory://late"
    with app.app_context(), locks.lock("product_1"):
        assert locks["default"].lock("product_1").locked()


def test_other_aliases_and_reentrant_locks_are_there(locks: DistLock, make_app: Callable[..., Flask]) -> None:
    app = make_app(DISTLOCK={"default": {"BACKEND": "memory"}, "other": {"LOCATION": "memory://other"}})
    with app.app_context():
        lock = locks.rlock("product_1")
        with lock, lock:
            assert locks.lock("product_1").locked()
            assert not locks["other"].lock("product_1").locked()


def test_an_app_is_served_once(app: Flask) -> None:
    with pytest.raises(ConfigurationError, match=r"serves the app .* already"):
        DistLock(app)


def test_a_guard_without_the_extension_says_what_to_write() -> None:
    app = Flask(__name__)
    with (
        app.app_context(),
        pytest.raises(ConfigurationError, match=r"has no DistLock: write 'DistLock\(app\)'"),
    ):
        distributed_lock("stock")(lambda: None)()


def test_a_view_without_the_extension_ends_in_that_error_and_no_other() -> None:
    app = Flask("noinit")
    app.testing = True
    app.add_url_rule("/<int:id>", "buy", distributed_lock("product_<id>")(lambda id: "sold"))
    with pytest.raises(ConfigurationError, match="The app 'noinit' has no DistLock") as caught:
        app.test_client().get("/1")
    assert caught.value.__context__ is None


WRONG = {"default": {"LOCATION": "memory://", "TTLL": 1}}


def test_wrong_settings_are_told_at_once(make_app: Callable[..., Flask]) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'TTL'"):
        make_app(DISTLOCK=WRONG)


def test_wrong_settings_that_come_later_are_told_at_first_use(locks: DistLock, app: Flask) -> None:
    app.config["DISTLOCK"] = WRONG
    with app.app_context(), pytest.raises(ConfigurationError, match="Did you mean 'TTL'"):
        locks.lock("product_1")


def test_a_setting_that_is_almost_ours_is_told_at_every_request(make_app: Callable[..., Flask]) -> None:
    client = make_app(DISTLOCK_RULE=[]).test_client()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=r"DISTLOCK_RULE is not read\. .*DISTLOCK_RULES"):
            client.get("/")


def test_a_wrong_status_is_told_at_every_request(make_app: Callable[..., Flask]) -> None:
    client = make_app(DISTLOCK_CONTENDED_STATUS=200).test_client()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="Allowed are 423"):
            client.get("/")


def test_the_dummy_backend_switches_locking_off(locks: DistLock, make_app: Callable[..., Flask]) -> None:
    with make_app(DISTLOCK="dummy://").app_context(), locks.lock("product_1"), locks.lock("product_1"):
        pass


def test_without_settings_production_is_refused(locks: DistLock, make_app: Callable[..., Flask]) -> None:
    app = make_app(DISTLOCK=None)
    with app.app_context(), pytest.raises(ConfigurationError, match="DISTLOCK is not configured"):
        locks.lock("product_1")


def test_without_settings_files_serve_this_host_while_debugging(
    locks: DistLock, make_app: Callable[..., Flask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    app = make_app(DISTLOCK=None)
    app.debug = True
    with app.app_context(), locks.lock("product_1"):
        assert locks.lock("product_1").locked()
    assert (tmp_path / "distlock").is_dir()


def test_the_check_looks_at_a_lock_directory(
    locks: DistLock, make_app: Callable[..., Flask], tmp_path: Path
) -> None:
    directory = tmp_path / "locks"
    app = make_app(DISTLOCK=f"file://{directory}")
    locks.check(app)
    assert not directory.exists()
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(ConfigurationError, match=r"DISTLOCK.*may be written by everybody.*install -d"):
        locks.check(app)


class OfAnotherFramework:
    """As an app of Quart it has much of what Flask's have, and no ``wsgi_app``."""

    def __init__(self) -> None:
        self.name, self.config, self.extensions = "shop", dict[str, object](), dict[str, object]()


def test_an_app_of_another_framework_is_refused_with_what_to_write_there() -> None:
    app = OfAnotherFramework()
    with pytest.raises(ConfigurationError, match=r"OfAnotherFramework\. .*async with locks\.lock"):
        DistLock(cast(Flask, app))
    assert app.extensions == {}
