"""The private names of Django's sessions that `django_distlock.private` leans on."""

from __future__ import annotations

import asyncio

import pytest
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.cache import SessionStore

from django_distlock import private
from tests.django_distlock.leaning import leaning_on

BASE = "SessionBase of django/contrib/sessions/backends/base.py"


@pytest.fixture
def key() -> str:
    """That of a stored session."""
    session = SessionStore()
    session["vouchers"] = 5
    session.save()
    assert session.session_key
    return str(session.session_key)


def test_what_a_session_has_loaded_is_a_dict_that_can_be_changed_and_set(key: str) -> None:
    with leaning_on("_session_cache", BASE):
        session = SessionStore(key)
        assert private.session_content(session) is None
        assert not session.accessed
        assert session["vouchers"] == 5
        content = private.session_content(session)
        assert content == {"vouchers": 5}
        assert content is not None
        content["vouchers"] = 4
        assert session["vouchers"] == 4
        assert not session.modified
        private.put_session_content(session, {"vouchers": 3})
        assert session["vouchers"] == 3
        session.save()
        assert SessionStore(key)["vouchers"] == 3


def test_a_session_without_its_key_is_a_new_one(key: str) -> None:
    with leaning_on("_session_key", BASE):
        session = SessionStore(key)
        private.forget_session_key(session)
        assert session.session_key is None
        assert "vouchers" not in session


def test_a_session_that_is_gone_is_not_saved(key: str) -> None:
    with leaning_on("UpdateError", BASE):
        session = SessionStore(key)
        assert session["vouchers"] == 5
        SessionStore(key).delete()
        assert private.session_update_error() is UpdateError
        with pytest.raises(private.session_update_error()):
            session.save()


def test_a_class_of_sessions_keeps_a_copy_of_what_they_load(key: str) -> None:
    class Store(SessionStore):
        cache_key_prefix = SessionStore.cache_key_prefix

    with leaning_on("load() and aload()", BASE):
        assert Store(key)["vouchers"] == 5
        private.stamp_sessions(Store)
        load = Store.load
        private.stamp_sessions(Store)
        assert Store.load is load
        session, other = Store(key), Store(key)
        session["vouchers"] = 4
        assert private.session_as_loaded(session) == {"vouchers": 5}
        asyncio.run(other.aset("vouchers", 4))
        assert private.session_as_loaded(other) == {"vouchers": 5}
        assert private.session_as_loaded(Store(key)) is None
