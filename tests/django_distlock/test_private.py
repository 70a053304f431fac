"""The names of others that `django_distlock.private` leans on are there, and mean what they did.

Where one of these fails with a new version of Django, its message says what to look at. What leans on it may
fail in silence: a lock that is let go before COMMIT.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.handlers.base import BaseHandler
from django.db import connections, transaction
from django.db.models.signals import post_init
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import SimpleTemplateResponse
from django.test import AsyncRequestFactory, RequestFactory
from django.urls import ResolverMatch, URLPattern, URLResolver, path
from django.urls.resolvers import RegexPattern
from django.utils.decorators import method_decorator
from django.utils.log import log_response
from django.views import View
from django.views.decorators.http import require_http_methods, require_POST

import django_distlock
from django_distlock import distributed_lock, private
from tests.django_distlock.leaning import leaning_on

PACKAGE = Path(django_distlock.__file__).parent


def view(request: HttpRequest, **kwargs: object) -> HttpResponse:
    return HttpResponse("sold")


def other(request: HttpRequest) -> HttpResponse:
    return HttpResponse("other")


def test_a_message_says_what_to_look_at() -> None:
    message = r"_mark is gone.*look at there.*django_distlock/private\.py"
    with pytest.raises(AssertionError, match=message), leaning_on("_mark", "there"):
        raise AttributeError("_mark")


NAMES = (
    "_non_atomic_requests",
    "django.utils.decorators\"",
    "ContextDecorator",
    "getclosurevars",
    ".resolve = ",
    "_has_been_logged",
    "file_to_stream",
    "_post_render_callbacks",
    "atomic_blocks",
    "_from_testcase",
    "savepoint_ids",
    "commit_on_exit",
    "needs_rollback",
    "closed_in_transaction",
    "run_on_commit",
    "execute_wrappers",
    '"_wrapped"',
    '"_cached_user"',
    '"_acached_user"',
    '"_user"',
    "_session_cache",
    "._session_key",
    "_meta.concrete_fields",
    ".fields_cache",
    "get_cached_value",
    "is_cached(",
    ".save_base =",
    ".set_autocommit =",
    '"_commit"',
    '"_rollback"',
    ".set_rollback =",
    ".on_exception =",
    "run_and_clear_commit_hooks",
    "WrappedAPIView",
    ".handle_exception =",
    ".dispatch =",
    "\"_request\"",
    '"_ninja_operation"',
    "thread_sensitive_context",
    "context_to_thread_executor",
    "AsyncToSync",
    "_work_thread",
    "_read_started",
    "LimitedStream",
    "refresh_from_db.__code__",
    "main_event_loop",
    "task_context",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_leans_on_it(name: str) -> None:
    using = [file.name for file in PACKAGE.rglob("*.py") if name in file.read_text()]
    assert set(using) <= {"private.py", "private_of_others.py"}
    assert using or name == "ContextDecorator", f"nothing leans on {name} any more: leave it out here"


def test_django_opens_no_transaction_around_a_view_that_opted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)

    def opted(request: HttpRequest) -> HttpResponse: ...

    with leaning_on("_non_atomic_requests", "make_view_atomic of django/core/handlers/base.py"):
        assert private.opted_out(transaction.non_atomic_requests(opted)) == {"default"}
        make_view_atomic = BaseHandler().make_view_atomic

        def marked(request: HttpRequest) -> HttpResponse: ...

        assert make_view_atomic(marked) is not marked
        private.opt_out(marked, {"default"})
        assert make_view_atomic(marked) is marked


def test_require_http_methods_is_recognised() -> None:
    async def aview(request: HttpRequest) -> None: ...

    with leaning_on("the closure of require_http_methods", "django/views/decorators/http.py"):
        assert private.required_methods(require_http_methods(["GET", "PUT"])(view)) == {"GET", "PUT"}
        assert private.required_methods(require_http_methods(["PUT"])(aview)) == {"PUT"}
        assert private.required_methods(require_POST(view)) == {"POST"}
        assert private.required_methods(view) is None


def test_method_decorator_tries_a_dummy_and_then_binds_the_method() -> None:
    given: list[Any] = []

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        given.append(function)
        return function

    class Buy:
        @method_decorator(decorate)
        def post(self) -> str:
            return "sold"

    with leaning_on("the dummy of method_decorator", "_multi_decorate of django/utils/decorators.py"):
        assert Buy().post() == "sold"
        assert [private.is_dummy(function) for function in given] == [True, False]
        assert [private.is_bound_by_method_decorator(function) for function in given] == [False, True]
        assert isinstance(given[1].func.__self__, Buy)


class Another(ContextDecorator):
    def __enter__(self) -> None: ...

    def __exit__(self, *exc_info: object) -> None: ...


def test_what_atomic_makes_of_a_function_is_told_from_other_wrappers() -> None:
    with leaning_on("the wrapper of @transaction.atomic", "ContextDecorator.__call__ of contextlib.py"):
        for opens in (
            transaction.atomic,
            transaction.atomic(using="default"),
            transaction.atomic(durable=True),
        ):
            [decorator] = private.decorators_of(opens(view))
            assert isinstance(decorator, transaction.Atomic)
        assert not isinstance(private.decorators_of(Another()(view))[0], transaction.Atomic)
        assert private.decorators_of(functools.wraps(transaction.atomic(view))(lambda: None)) == []
        assert private.decorators_of(view) == []


def test_method_decorator_keeps_its_decorators_with_the_innermost_first() -> None:
    class Buy(View):
        def post(self, request: HttpRequest) -> HttpResponse: ...

    decorators: list[Any] = [transaction.atomic, distributed_lock("product_<int:id>")]
    with leaning_on("the closure of method_decorator", "_multi_decorate of django/utils/decorators.py"):
        assert private.decorators_of(method_decorator(decorators)(Buy.post)) == decorators
        assert private.decorators_of(method_decorator(decorators[0])(Buy.post)) == decorators[:1]


def test_a_match_may_be_changed_where_a_pattern_resolves() -> None:
    calls: list[URLPattern] = []
    pattern = path("buy", view)

    def change(pattern: URLPattern, match: ResolverMatch) -> None:
        calls.append(pattern)
        match.func = other

    with leaning_on("URLPattern.resolve", "URLResolver.resolve of django/urls/resolvers.py"):
        private.resolve_through(pattern, change)
        private.resolve_through(pattern, change)
        assert URLResolver(RegexPattern(r"^/"), [pattern]).resolve("/buy").func is other
        assert calls == [pattern]


def test_django_logs_no_response_that_says_it_was_logged(caplog: pytest.LogCaptureFixture) -> None:
    with leaning_on("_has_been_logged", "log_response of django/utils/log.py"):
        for leave in (lambda response: None, private.leave_unlogged):
            response = HttpResponse(status=503)
            leave(response)
            log_response("Unavailable", response=response, request=HttpRequest())
        assert len(caplog.records) == 1


def test_a_file_is_told_from_a_stream_that_the_site_makes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("sold")
    with leaning_on("file_to_stream", "FileResponse of django/http/response.py"):
        with (tmp_path / "file").open("rb") as file:
            assert not private.makes_content_later(FileResponse(file))
        assert private.makes_content_later(StreamingHttpResponse(iter([b"sold"])))
        assert not private.makes_content_later(HttpResponse())


def test_what_runs_when_a_response_is_rendered_is_known() -> None:
    with leaning_on("_post_render_callbacks", "SimpleTemplateResponse of django/template/response.py"):
        response = SimpleTemplateResponse("sold.html")
        assert private.post_render_callbacks(response) == []
        response.add_post_render_callback(other)
        assert private.post_render_callbacks(response) == [other]
        response.content = b"sold"
        assert private.post_render_callbacks(response) == []
        assert private.post_render_callbacks(HttpResponse()) == []


def test_the_stream_of_a_body_can_be_replaced_until_somebody_begins_to_read_it() -> None:
    request = RequestFactory().post("/", b"ordered", content_type="text/plain")
    with leaning_on("_stream and _read_started", "WSGIRequest and HttpRequest.read of Django"):
        stream = private.unread_stream(request)
        assert stream is not None
        assert stream.read() == b"ordered"
        private.put_stream(request, BytesIO(b"put back"), 8)
        # What was put there is not read once more.
        assert private.unread_stream(request) is None
        assert (request.read(4), request.read()) == (b"put ", b"back")
    begun = RequestFactory().post("/", b"ordered", content_type="text/plain")
    begun.read(1)
    with_body = RequestFactory().post("/", b"ordered", content_type="text/plain")
    _ = with_body.body
    by_asgi = AsyncRequestFactory().post("/", b"ordered", content_type="text/plain")
    for read in (begun, with_body, by_asgi):
        assert private.unread_stream(read) is None


@pytest.mark.django_db
def test_an_instance_knows_whether_it_is_loaded_or_refreshes_another() -> None:
    seen: list[tuple[bool, object]] = []

    def note(**kwargs: object) -> None:
        seen.append(private.how_made())

    post_init.connect(note, sender=Group)
    try:
        with leaning_on("refresh_from_db", "django/db/models/base.py"):
            made = Group.objects.create(name="buyers")
            loaded = Group.objects.get()
            loaded.refresh_from_db()
            assert Group.objects.only("id").get().name == "buyers"
    finally:
        post_init.disconnect(note, sender=Group)
    assert made.pk
    assert [is_loaded for is_loaded, _ in seen] == [False, True, True, True, True]
    assert [refreshed is not None for _, refreshed in seen] == [False, False, True, False, True]
    assert seen[2][1] is loaded
