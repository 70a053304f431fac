from __future__ import annotations

import builtins
import logging
import threading

import pytest

from distlock.backends.memory import MemoryBackend
from distlock.errors import ConfigurationError
from distlock.testing.waits import engine_of
from distlock.web.settings.aliases import read, without_settings
from distlock.web.settings.clients import Clients


def clients_of(setting: object) -> Clients:
    return Clients(lambda: read(setting))


def test_one_alias_is_one_client_for_all_threads() -> None:
    found: list[object] = []
    site, start = clients_of("memory://services"), threading.Barrier(8)

    def look() -> None:
        start.wait()
        found.append(site["default"])

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_an_unknown_alias_is_answered_with_those_that_exist() -> None:
    with pytest.raises(ConfigurationError, match="no alias 'othr', only 'default'"):
        clients_of("memory://services")["othr"]


def test_after_a_reset_the_settings_are_read_anew() -> None:
    settings = ["memory://first", "memory://second"]
    site = Clients(lambda: read(settings.pop(0)))
    before = site["default"]
    site.reset()
    assert site["default"] is not before
    assert site.settings("default").location == "memory://second"


def test_the_settings_reach_the_client() -> None:
    site = clients_of({"default": {"BACKEND": "memory", "PREFIX": "shop", "TIMEOUT": 0.25}})
    assert (site["default"].prefix, site["default"].timeout) == ("shop", 0.25)


def test_a_client_connects_to_nothing() -> None:
    assert clients_of("redis://127.0.0.1:1")["default"] is not None


@pytest.mark.parametrize("option", [{"no_such_option": 1}, {"ttl": 3}, {"blocking_timeout": 3}])
def test_a_wrong_option_names_the_alias(option: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"DISTLOCK\['default'\]"):
        clients_of({"default": {"LOCATION": "memory://x", "OPTIONS": option}})["default"]


@pytest.mark.parametrize(
    ("option", "remedy"),
    [
        ({"ttl": 3}, "Write it as 'TTL' beside OPTIONS."),
        ({"listener": object()}, "Write it as 'METRICS' beside OPTIONS."),
        ({"epoch": 2}, "Write it as 'FENCE_EPOCH' beside OPTIONS."),
        ({"on_lost": print}, "Connect to the signal lock_lost instead."),
    ],
)
def test_an_option_that_is_a_setting_names_the_setting(option: dict[str, object], remedy: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        clients_of({"default": {"LOCATION": "memory://x", "OPTIONS": option}})["default"]
    (word,) = option
    assert (
        str(raised.value) == f"DISTLOCK['default']: {word!r} in OPTIONS is no option of a backend. {remedy}"
    )


class WithOptions(MemoryBackend):
    def __init__(self, url: str, *, options: int) -> None:
        super().__init__(url)
        self.given = options


def test_a_backend_may_have_an_option_that_is_called_options() -> None:
    backend = f"{__name__}.{WithOptions.__name__}"
    clients = clients_of({"default": {"LOCATION": "x://", "BACKEND": backend, "OPTIONS": {"options": 3}}})
    assert engine_of(clients["default"]).backend.given == 3


def test_an_unknown_scheme_names_the_alias() -> None:
    with pytest.raises(ConfigurationError, match=r"DISTLOCK\['default'\]: No lock service .* 'etcd'"):
        clients_of("etcd://host")["default"]


def test_a_missing_extra_names_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_hiredis(name: str, *args, **kwargs):
        if name.split(".")[0] == "hiredis":
            raise ModuleNotFoundError("No module named 'hiredis'", name="hiredis")
        return real(name, *args, **kwargs)

    for module in [name for name in __import__("sys").modules if name.startswith("distlock.backends.redis")]:
        monkeypatch.delitem(__import__("sys").modules, module)
    monkeypatch.setattr(builtins, "__import__", without_hiredis)
    with pytest.raises(ConfigurationError, match=r"pip install '/path/to/the/clone\[redis\]'"):
        clients_of("redis://localhost")["default"]


def test_without_settings_this_hosts_files_serve_while_debugging(
    tmp_path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with caplog.at_level(logging.WARNING, "distlock"):
        made = without_settings(debug=True)["default"]
    assert made.location == (tmp_path / "distlock").as_uri()
    assert "this host only" in caplog.text


def test_without_settings_production_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="DISTLOCK is not configured"):
        without_settings(debug=False)
