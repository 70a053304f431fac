"""What ``mode=`` and ``limit=`` can never do is refused: at import, by the checks, by the first request."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import run_checks
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path
from django.views import View as DjangoView
from flask import Flask

import django_distlock
import flask_distlock
from distlock.backends.base import Capabilities
from distlock.backends.memory import MemoryBackend
from distlock.errors import ConfigurationError
from distlock.web.guard_options import GuardOptions
from distlock.web.settings.aliases import read
from distlock.web.settings.clients import fence_for
from tests.web.test_modes import FACES, Site, site

__all__ = ["site"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"mode": "read"}, "mode='read' has to be 'exclusive' or 'shared'"),
        ({"mode": None}, "mode=None has to be"),
        ({"mode": "shared", "limit": 2}, 'mode="shared" stands beside limit=2.*leave one of both out'),
        ({"mode": "shared", "batch": 32}, 'batch=32 stands beside mode="shared".*Leave batch= out'),
        ({"limit": 2, "batch": 32}, "batch=32 stands beside limit=2"),
        ({"limit": 2, "fence": True}, "fence=True stands beside limit=2.*Leave fence= out"),
        ({"limit": 0}, "limit"),
        ({"limit": 10**400}, "limit= has to be at most 1,000,000: "),
        ({"limit": "2"}, "limit"),
        ({"limit": True}, "limit"),
    ],
)
@pytest.mark.parametrize("face", FACES)
def test_contradictions_are_errors_at_import(face: Any, words: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        face.distributed_lock("a", **words)


class Plain(MemoryBackend):
    capabilities = Capabilities(several_processes=True, lease=True, fence=True)


@pytest.mark.parametrize(
    ("backend", "words", "why"),
    [
        (f"{__name__}.Plain", {"mode": "shared"}, "no locks that readers share"),
        (f"{__name__}.Plain", {"limit": 2}, "it has no semaphores"),
        ("database", {"limit": 2}, "it has no semaphores"),
    ],
)
def test_a_backend_that_cant_do_it_is_refused(backend: str, words: dict[str, Any], why: str) -> None:
    setting = {"BACKEND": backend, **({} if backend == "database" else {"LOCATION": "memory://x"})}
    with pytest.raises(ConfigurationError, match=rf'^distributed_lock\("a", .*can\'t be had from.*{why}'):
        fence_for(read({"default": setting})["default"], GuardOptions(["a"], **words))


def test_it_is_refused_before_the_first_request(site: Site) -> None:
    site.setting |= {"BACKEND": f"{__name__}.Plain"}
    site.view("read", bool, site.locked("catalogue", mode="shared"))
    if site.face is flask_distlock:
        app = Flask(__name__)
        app.config.from_mapping(DISTLOCK={"default": site.setting}, TESTING=True)
        locks = flask_distlock.DistLock(app)
        app.add_url_rule("/read", "read", site.views["read"])
        with pytest.raises(ConfigurationError, match="no locks that readers share"):
            locks.check(app)
        return
    with site.up():
        assert any("no locks that readers share" in str(found.msg) for found in run_checks())


def test_a_fence_of_the_alias_is_not_for_semaphores() -> None:
    fenced = read({"default": {"LOCATION": "memory://x", "FENCE": True}})["default"]
    assert fence_for(fenced, GuardOptions(["a"], limit=2)) is False
    assert fence_for(fenced, GuardOptions(["a"], mode="shared")) is True


def test_it_is_said_as_it_was_written() -> None:
    assert str(GuardOptions(["a"], mode="shared")) == 'distributed_lock("a", mode="shared")'
    assert str(GuardOptions(["a"], limit=2)) == 'distributed_lock("a", limit=2)'
    assert str(GuardOptions(["a"], on_contended="raise")) == 'distributed_lock("a", on_contended="raise")'


def test_a_method_that_writes_is_not_where_readers_stand() -> None:
    class Catalogue(DjangoView):
        @django_distlock.distributed_lock("catalogue", mode="shared")
        def post(self, request: Any) -> HttpResponse:
            return HttpResponse("ok")

    useless = 'locks GET and HEAD unless it is told otherwise: write @.*mode="shared", methods=\\["POST"\\]'
    urls = type("Urls", (), {"urlpatterns": [path("catalogue", Catalogue.as_view())]})
    with override_settings(ROOT_URLCONF=urls, DISTLOCK="memory://modes_useless", DEBUG=True):
        with pytest.raises(ConfigurationError, match=useless):
            Client().post("/catalogue")
        django_distlock.locks.close_all()
