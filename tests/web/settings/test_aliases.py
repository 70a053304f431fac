from __future__ import annotations

import pytest

from distlock.errors import ConfigurationError
from distlock.web.settings.aliases import AliasSettings, contended_status, read
from distlock.web.settings.clients import make_client
from distlock.web.settings.dummy import DummyLocks
from distlock.web.settings.problems import find_problems

REDIS = "redis://localhost:6379/0"


def test_a_url_is_short_for_the_default_alias() -> None:
    assert read(REDIS) == {"default": AliasSettings("default", REDIS)}


def test_every_key_arrives() -> None:
    given = {
        "BACKEND": "redis", "LOCATION": REDIS, "PREFIX": "shop", "FENCE_EPOCH": 2, "TTL": 8, "TIMEOUT": 0.5,
        "MAX_HOLD": 30, "MAX_NAMES": 4, "MAX_WAITERS": 5, "MAX_WAITERS_TOTAL": 6, "TURN": 0,
        "ON_BACKEND_DOWN": "run", "FENCE": "orders", "OPTIONS": {"socket_timeout": 1},
        "METRICS": "prometheus",
    }  # fmt: skip
    settings = read({"default": REDIS and given})["default"]
    assert settings == AliasSettings(
        "default",
        REDIS,
        None,
        "shop",
        2,
        8,
        0.5,
        30,
        4,
        5,
        6,
        0,
        "run",
        "orders",
        {"socket_timeout": 1},
        "prometheus",
    )


def test_waiters_are_not_counted_unless_told() -> None:
    plain = read({"default": {"LOCATION": REDIS}})["default"]
    assert (plain.max_waiters, plain.max_waiters_total) == (None, None)
    one = read({"default": {"LOCATION": REDIS, "MAX_WAITERS": 8}})["default"]
    assert (one.max_waiters, one.max_waiters_total) == (8, None)
    off = read({"default": {"LOCATION": REDIS, "MAX_WAITERS": None, "MAX_WAITERS_TOTAL": 12}})["default"]
    assert (off.max_waiters, off.max_waiters_total) == (None, 12)


def test_a_dotted_path_names_a_backend() -> None:
    settings = read({"default": {"BACKEND": "shop.locks.Backend", "LOCATION": "shop://x"}})["default"]
    assert settings.backend == settings.scheme == "shop.locks.Backend"


@pytest.mark.parametrize("backend", ["dummy", "memory"])
def test_a_backend_of_the_process_needs_no_location(backend: str) -> None:
    assert read({"default": {"BACKEND": backend}})["default"].scheme == backend


def test_one_key_switches_locking_off_whatever_stands_beside_it() -> None:
    given = {"BACKEND": "dummy", "LOCATION": REDIS, "PREFIX": "shop", "OPTIONS": {"socket_timeout": 1}}
    settings = read({"default": given})["default"]
    assert settings.scheme == "dummy"
    assert isinstance(make_client(settings), DummyLocks)


def test_the_scheme_of_the_location_knows_more_than_the_backend() -> None:
    given = {"BACKEND": "redis", "LOCATION": "rediss://localhost"}
    assert read({"default": given})["default"].scheme == "rediss"


@pytest.mark.parametrize(
    ("setting", "kind", "words"),
    [
        (None, "shape", "is a NoneType, not a dict"),
        ("", "shape", "is empty"),
        ([REDIS], "shape", "is a list, not a dict"),
        ({}, "shape", "no alias 'default'"),
        ({"other": {"LOCATION": REDIS}}, "shape", "no alias 'default'"),
        ({"LOCATION": REDIS}, "shape", "one level deeper"),
        ({"default": REDIS}, "shape", r"DISTLOCK\['default'\] is a str, not a dict"),
        ({"default": {"LOCATION": REDIS}, 3: {}}, "shape", "has the alias 3"),
        ({"default": {}}, "backend", "does not say which lock service"),
        ({"default": {"BACKEND": "redis"}}, "backend", "has no LOCATION.*redis://localhost"),
        ({"default": {"BACKEND": "file"}}, "backend", "has no LOCATION.*file:///var/lib/shop/locks"),
        ("localhost:6379", "backend", "is no URL"),
        ({"default": {"BACKEND": "file", "LOCATION": REDIS}}, "backend", "Leave BACKEND out"),
        ({"default": {"LOCATION": REDIS, "TIMEOUTT": 1}}, "key", "'TIMEOUTT'. Did you mean 'TIMEOUT'"),
        ({"default": {"LOCATION": REDIS, "ttl": 1}}, "key", "Did you mean 'TTL'"),
        ({"default": {"LOCATION": REDIS, "KEY_PREFIX": "x"}}, "key", "Did you mean 'PREFIX'"),
        ({"default": {"LOCATION": REDIS, "WAIT": 1}}, "key", "Did you mean 'TIMEOUT'"),
        ({"default": {"LOCATION": REDIS, "zzz": 1}}, "key", "belongs into OPTIONS"),
        ({"default": {"LOCATION": REDIS, 5: 1}}, "key", "unknown key 5"),
        ({"default": {"LOCATION": REDIS, "TTL": 0}}, "value", r"\['TTL'\] is 0. .* more than 0"),
        ({"default": {"LOCATION": REDIS, "TTL": True}}, "value", "is True"),
        ({"default": {"LOCATION": REDIS, "TTL": "10"}}, "value", "is '10'"),
        ({"default": {"LOCATION": REDIS, "TTL": float("inf")}}, "value", "is inf"),
        ({"default": {"LOCATION": REDIS, "TIMEOUT": -1}}, "value", "is -1. .* 0 or more"),
        ({"default": {"LOCATION": REDIS, "MAX_HOLD": float("nan")}}, "value", "is nan"),
        ({"default": {"LOCATION": REDIS, "MAX_WAITERS": 1.5}}, "value", "whole number"),
        ({"default": {"LOCATION": REDIS, "FENCE_EPOCH": 0}}, "value", "whole number"),
        ({"default": {"LOCATION": REDIS, "PREFIX": "a:b"}}, "value", "letters, digits"),
        ({"default": {"LOCATION": REDIS, "ON_BACKEND_DOWN": "run"}}, "value", 'FENCE": True'),
        ({"default": {"LOCATION": REDIS, "ON_BACKEND_DOWN": "ignore"}}, "value", "no lock, no view"),
        ({"default": {"LOCATION": REDIS, "FENCE": 1}}, "value", "True, False, or the name of the database"),
        ({"default": {"LOCATION": REDIS, "OPTIONS": ["x"]}}, "value", "dict of the backend's own"),
        ({"default": {"BACKEND": "rediss", "LOCATION": ""}}, "value", "has to be a URL"),
        ({"default": {"BACKEND": "redsi", "LOCATION": REDIS}}, "value", "Did you mean 'redis'"),
        ({"default": {"BACKEND": REDIS}}, "value", "belongs into LOCATION"),
        (
            {"default": {"BACKEND": "etcd://h"}},
            "value",
            "as 'etcd'. Known are dummy, database, memory, file, ",
        ),
        (
            {"default": {"BACKEND": "etcd"}},
            "value",
            "No lock service is known as 'etcd'. Known are",
        ),
        ({"default": {"BACKEND": "redsi://h"}}, "value", "Did you mean 'redis'"),
        (
            {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS}},
            "value",
            "Django's backends keep caches or data, no locks. Known are dummy, database, memory",
        ),
        ("redis://u:hunter2@[::1/0", "value", "stands in brackets"),
        ({"default": {"LOCATION": "redis://u:hunter2@[::1/0"}}, "value", "stands in brackets"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(setting: object, kind: str, words: str) -> None:
    (problem,) = find_problems(setting)
    assert problem.kind == kind
    with pytest.raises(ConfigurationError, match=words):
        read(setting)


def test_all_that_is_wrong_is_found() -> None:
    setting = {"default": {"LOCATION": REDIS, "TTL": 0, "x": 1}, "other": {"LOCATION": "nowhere"}}
    assert [problem.kind for problem in find_problems(setting)] == ["key", "value", "backend"]


@pytest.mark.attack("A37")
@pytest.mark.parametrize(
    "setting",
    [
        {"default": {"BACKEND": "redis://:hunter2@host/0"}},
        {"default": {"BACKEND": "zookeeper://:hunter2@host/0"}},
        {"default": {"BACKEND": "user:hunter2@host"}},
        {"default": {"BACKEND": "file", "LOCATION": "redis://:hunter2@host/0"}},
        {"default": {"LOCATION": "user:hunter2@host"}},
        {"default": {"LOCATION": ["hunter2"]}},
        {"default": {"LOCATION": "redis://u:hunter2@[::1/0"}},
        {"default": {"BACKEND": "file", "LOCATION": "redis://u:hunter2@[::1/0"}},
        {"default": {"LOCATION": REDIS, "OPTIONS": "hunter2"}},
        {"default": {"LOCATION": REDIS, "TTL": {"password": "hunter2"}}},
        ["redis://:hunter2@host/0"],
        {"default": "redis://:hunter2@host/0"},
    ],
)
def test_secrets_never_appear_in_messages(setting: object) -> None:
    for problem in find_problems(setting):
        assert "hunter2" not in str(problem)


def test_secrets_never_appear_in_the_repr_of_a_service() -> None:
    given = {"LOCATION": "redis://:hunter2@host", "OPTIONS": {"password": "hunter2"}}
    assert "hunter2" not in repr(read({"default": given})["default"])


def test_a_contended_request_is_answered_with_one_of_four_statuses() -> None:
    assert [contended_status(status) for status in (423, 409, 429, 503)] == [423, 409, 429, 503]
    for wrong in (200, True, "423", None, 500):
        with pytest.raises(ConfigurationError, match="Allowed are 423, 409, 429, 503"):
            contended_status(wrong)
