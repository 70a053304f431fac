from __future__ import annotations

import pytest

import distlock
from distlock.errors import ConfigurationError
from distlock.web.guard_options import GuardOptions
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import fence_for
from distlock.web.settings.problems import find_problems


def alias(**given: object) -> dict[str, dict[str, object]]:
    return {"default": {"BACKEND": "database", **given}}


def told(**words: object) -> GuardOptions:
    return GuardOptions(["product_<int:id>"], **words)  # type: ignore[arg-type]


@pytest.mark.parametrize(("location", "fence"), [({}, True), ({"LOCATION": "orders"}, "orders")])
def test_the_fence_goes_without_saying(location: dict[str, object], fence: object) -> None:
    settings = read(alias(PREFIX="shop", TIMEOUT=3, **location))["default"]
    assert (settings.scheme, settings.fence, settings.timeout) == ("database", fence, 3)
    for words in ({}, {"fence": True}, {"fence": fence}):
        assert fence_for(settings, told(**words)) == fence


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"TTL": 10}, r"has TTL, and the backend 'database' has not\. Leave it out: a row has no lifetime"),
        ({"MAX_HOLD": 60}, "let the database end transactions that hang"),
        ({"ON_BACKEND_DOWN": "refuse"}, "without its database no view can run"),
        ({"OPTIONS": {"a": 1}}, "it has none"),
        ({"FENCE": "other"}, "Leave FENCE out: the fence's row is the lock"),
        ({"FENCE": False}, "Leave FENCE out"),
        ({"LOCATION": "redis://localhost"}, 'Write "BACKEND": "database", and as LOCATION the name'),
    ],
)
def test_what_a_row_does_not_have_is_refused(given: dict[str, object], words: str) -> None:
    (problem,) = find_problems(alias(**given))
    assert problem.kind == "backend"
    with pytest.raises(ConfigurationError, match=words):
        read(alias(**given))


def test_a_url_does_not_name_it() -> None:
    """It would be a lock without its fence, which keeps nobody out."""
    for setting in ("database://", {"default": {"LOCATION": "database://orders"}}):
        with pytest.raises(ConfigurationError, match='Write "BACKEND": "database"'):
            read(setting)


def test_nobody_can_connect_to_it() -> None:
    for connect in (
        lambda: distlock.connect("database://"),
        lambda: distlock.connect("orders", backend="database"),
    ):
        with pytest.raises(ConfigurationError, match=r"can't be connected to: its lock is a row.*BACKEND"):
            connect()


def test_a_guard_can_t_ask_for_what_a_row_does_not_have() -> None:
    settings = read(alias())["default"]
    with pytest.raises(ConfigurationError, match=r"ttl=3\): .* where a lock has no ttl"):
        fence_for(settings, told(ttl=3))
    for fence in (False, "orders"):
        with pytest.raises(ConfigurationError, match=r"the fence's row is the lock: leave fence= out"):
            fence_for(settings, told(fence=fence))


def test_other_backends_are_fenced_as_they_were_told() -> None:
    settings = read({"default": {"LOCATION": "memory://", "FENCE": "orders"}})["default"]
    assert fence_for(settings, told()) == "orders"
    assert fence_for(settings, told(fence=False)) is False
    assert fence_for(settings, told(fence=True, ttl=3)) is True
