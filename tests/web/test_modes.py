"""``mode="shared"`` and ``limit=`` of guards and rules, in both frameworks."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path
from django.views import View as DjangoView
from flask import Flask
from flask.views import MethodView

import django_distlock
import flask_distlock
from distlock.errors import ConfigurationError
from distlock.grants.current import current_grants
from distlock.web.guard_options import METHODS
from django_distlock.conf import MIDDLEWARE

PATIENCE = 5.0
numbers = itertools.count()
FACES: list[Any] = [django_distlock, flask_distlock]


class Site:
    """Views at ``/<name>``, served by *face*, with locks of its own."""

    def __init__(self, face: Any) -> None:
        self.face = face
        self.views: dict[str, Any] = {}
        self.rules: list[dict[str, Any]] = []
        self.setting = {"LOCATION": f"memory://modes{next(numbers)}", "TIMEOUT": PATIENCE}
        self._flask_locks: flask_distlock.DistLock | None = None
        #: What the views held.
        self.held: list[list[tuple[str, str]]] = []

    def view(self, name: str, body: Callable[[], object] = bool, *guards: Callable[..., Any]) -> None:
        """*guards*: the innermost first."""

        def view(*request: Any) -> Any:
            self.held.append([(name, one.grant.mode) for one in current_grants() for name in one.grant.names])
            body()
            return HttpResponse("ok") if request else "ok"

        for guard in guards:
            view = guard(view)
        self.views[name] = view

    def locked(self, *names: Any, **words: Any) -> Callable[..., Any]:
        guard: Callable[..., Any] = self.face.distributed_lock(*names, **words)
        return guard

    def locks(self) -> Any:
        """Those of the site, in a view."""
        return django_distlock.locks if self._flask_locks is None else self._flask_locks

    @contextmanager
    def up(self) -> Iterator[Callable[..., int]]:
        """Gives what sends a request to a view, and returns the status of its answer."""
        if self.face is flask_distlock:
            app = Flask(__name__)
            app.config.from_mapping(
                DISTLOCK={"default": self.setting}, DISTLOCK_RULES=self.rules, TESTING=True
            )
            locks = self._flask_locks = flask_distlock.DistLock(app)
            for name, view in self.views.items():
                app.add_url_rule(f"/{name}", name, view, methods=METHODS[:-2])
            yield lambda name, method="GET": app.test_client().open(f"/{name}", method=method).status_code
            with app.app_context():
                locks.close()
            return
        urls = [path(name, view, name=name) for name, view in self.views.items()]
        words = {
            "DISTLOCK": {"default": self.setting},
            "DISTLOCK_RULES": self.rules,
            "MIDDLEWARE": [MIDDLEWARE],
        }
        with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": urls}), **words):
            yield lambda name, method="GET": Client().generic(method, f"/{name}").status_code
            django_distlock.locks.close_all()


@pytest.fixture(params=FACES, ids=["django", "flask"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(request.param)


@contextmanager
def crowd(send: Callable[..., int], view: str, callers: int, inside: threading.Barrier) -> Iterator[None]:
    """So many are inside of *view* in the block."""
    with ThreadPoolExecutor(callers) as pool:
        answers = [pool.submit(send, view) for _ in range(callers)]
        inside.wait(PATIENCE)
        yield
        inside.wait(PATIENCE)
        assert [answer.result() for answer in answers] == [200] * callers


def meeting(callers: int) -> tuple[threading.Barrier, Callable[[], object]]:
    """A barrier for them and the test, and the body of a view in which they are all at once."""
    inside = threading.Barrier(callers + 1)
    return inside, lambda: (inside.wait(PATIENCE), inside.wait(PATIENCE))


def test_readers_are_inside_together_and_keep_writers_out(site: Site) -> None:
    inside, body = meeting(2)
    site.view("read", body, site.locked("catalogue", mode="shared"))
    site.view("write", bool, site.locked("catalogue", timeout=0))
    with site.up() as send:
        with crowd(send, "read", 2, inside):
            assert send("write", "POST") == 423
        assert send("write", "POST") == 200
    assert site.held == [[("catalogue", "read")]] * 2 + [[("catalogue", "exclusive")]]


def test_a_writer_keeps_readers_out(site: Site) -> None:
    inside, body = meeting(1)
    site.view("read", bool, site.locked("catalogue", mode="shared", timeout=0))
    site.view("write", body, site.locked("catalogue"))
    with site.up() as send:
        with crowd(send, "write", 1, inside):
            assert send("read") == 423
        assert send("read") == 200


def test_so_many_are_inside_as_the_limit_says(site: Site) -> None:
    inside, body = meeting(2)
    site.view("pay", body, site.locked("gateway", limit=2))
    site.view("pay_too", bool, site.locked("gateway", limit=2, timeout=0))
    site.view("other", bool, site.locked("gateway"))
    with site.up() as send, crowd(send, "pay", 2, inside):
        assert send("pay_too") == 423
        # A lock of that name has nothing to do with it.
        assert send("other") == 200


def test_one_permit_of_each_name_is_taken(site: Site) -> None:
    inside, body = meeting(1)
    site.view("pay", body, site.locked("gateway", "bank", limit=1))
    site.view("transfer", bool, site.locked("bank", limit=1, timeout=0))
    with site.up() as send:
        with crowd(send, "pay", 1, inside):
            assert send("transfer") == 423
        assert send("transfer") == 200
    assert site.held[0] == [("bank", "permit"), ("gateway", "permit")]


def test_shared_is_for_what_reads_unless_it_says_otherwise(site: Site) -> None:
    site.view("usual", bool, site.locked("catalogue", mode="shared"))
    site.view("told", bool, site.locked("catalogue", mode="shared", methods=["POST"]))
    with site.up() as send:
        for view, method in itertools.product(["usual", "told"], ["GET", "HEAD", "POST", "DELETE"]):
            assert send(view, method) == 200
    locked, not_locked = [("catalogue", "read")], list[tuple[str, str]]()
    assert site.held[:4] == [locked, locked, not_locked, not_locked]
    assert site.held[4:] == [not_locked, not_locked, locked, not_locked]


def test_a_plain_function_reads_whatever_the_method_is(site: Site) -> None:
    @site.locked("catalogue", mode="shared")
    def report() -> None:
        site.held.append([(name, one.grant.mode) for one in current_grants() for name in one.grant.names])

    site.view("write", report)
    with site.up() as send:
        send("write", "POST")
    assert site.held == [[], [("catalogue", "read")]]


def test_a_class_is_locked_where_it_reads(site: Site) -> None:
    def answer(*_: Any) -> Any:
        site.held.append([(name, one.grant.mode) for one in current_grants() for name in one.grant.names])
        return HttpResponse("ok") if site.face is django_distlock else "ok"

    base: type = DjangoView if site.face is django_distlock else MethodView
    both = {"get": answer, "post": answer}
    shared = site.locked("catalogue", mode="shared")(type("Catalogue", (base,), both))
    site.views["catalogue"] = shared.as_view() if base is DjangoView else shared.as_view("catalogue")
    with site.up() as send:
        assert send("catalogue") == send("catalogue", "POST") == 200
    assert site.held == [[("catalogue", "read")], []]


def test_a_rule_may_read_and_have_a_limit(site: Site) -> None:
    site.view("read")
    site.view("pay")
    site.rules = [
        {"route": "read", "lock": "catalogue", "mode": "shared"},
        {"route": "pay", "lock": "gateway", "limit": 2},
    ]
    with site.up() as send:
        for view, method in itertools.product(["read", "pay"], ["GET", "POST"]):
            assert send(view, method) == 200
    assert site.held == [[("catalogue", "read")], [], [], [("gateway", "permit")]]


@pytest.mark.parametrize("methods", [{}, {"methods": ["GET"]}], ids=["usual", "told"])
def test_a_rule_that_reads_stands_inside_one_that_writes(site: Site, methods: dict[str, Any]) -> None:
    site.view("catalogue")
    site.rules = [
        {"route": "catalogue", "lock": "catalogue", "mode": "shared", **methods},
        {"route": "catalogue", "lock": "catalogue"},
    ]
    with site.up() as send:
        assert [send("catalogue", method) for method in ("GET", "HEAD", "POST")] == [200] * 3
    modes = ["read", "exclusive", "exclusive"]
    assert site.held == [[("catalogue", mode)] for mode in modes]


def test_rules_with_other_names_lock_in_the_order_of_the_list(site: Site) -> None:
    site.view("catalogue")
    site.rules = [
        {"route": "catalogue", "lock": "catalogue", "mode": "shared", "methods": ["POST"], "when": bool},
        {"route": "catalogue", "lock": "prices", "when": bool},
    ]
    with site.up() as send:
        assert send("catalogue", "POST") == 200
    assert site.held == [[("catalogue", "read"), ("prices", "exclusive")]]


# -- guards inside guards ------------------------------------------------------------------------


def test_a_reader_inside_a_guard_on_its_name_enters_without_asking(site: Site) -> None:
    reads = site.locked("catalogue", mode="shared")
    site.view("under_write", bool, reads, site.locked("catalogue"))
    site.view("under_read", bool, reads, reads)
    with site.up() as send:
        assert send("under_write") == send("under_read") == 200
    assert site.held == [[("catalogue", "exclusive")], [("catalogue", "read")]]


def test_a_writer_inside_a_reader_is_refused_at_once(site: Site) -> None:
    refused: list[str] = []

    @site.locked("catalogue", timeout=5)
    def write() -> None: ...

    def body() -> None:
        try:
            write()
        except ConfigurationError as error:
            refused.append(str(error))

    site.view("read", body, site.locked("catalogue", mode="shared"))
    with site.up() as send:
        assert send("read") == 200
    assert len(refused) == 1
    assert "'catalogue' can't be taken to write: this very thread or task reads" in refused[0]


def test_a_permit_is_no_lock_of_its_name(site: Site) -> None:
    permit = site.locked("gateway", limit=1)
    # The permit that the request has is enough for all of it.
    site.view("pay", bool, permit, site.locked("gateway"), permit)
    with site.up() as send:
        assert send("pay") == 200
    assert site.held == [[("gateway", "permit"), ("gateway", "exclusive")]]
