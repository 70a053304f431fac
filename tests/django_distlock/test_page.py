"""The lines of the pages about rules and signals in Django, run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import include, path

from django_distlock import distributed_lock, locks
from django_distlock.signals import lock_refused
from tests.web.quickstart import snippets


def run(page: str, part: str, **names: Any) -> dict[str, Any]:
    """Run the first snippet of *page* that has *part*."""
    snippet = next(snippet for snippet in snippets(page) if part in snippet)
    exec(compile(snippet, page, "exec"), names)
    return names


def view(request: HttpRequest, **kwargs: object) -> HttpResponse:
    return HttpResponse(str(locks.lock("product_1").locked()))


def test_the_rules_of_the_page_lock(serve: Callable[..., Client], settings: Any) -> None:
    written = run("reference/rules.md", "DISTLOCK_RULES = [", MIDDLEWARE=[])
    settings.MIDDLEWARE, settings.DISTLOCK_RULES = written["MIDDLEWARE"], written["DISTLOCK_RULES"]
    shop = [path("<int:id>/reduce", view, name="reduce-stock")]
    admin = [path("<path:object_id>/change/", view, name="shop_product_change")]
    client = serve([path("shop/", include((shop, "shop"))), path("admin/", include((admin, "admin")))])
    assert client.post("/shop/1/reduce").content == b"True"
    assert client.post("/admin/1/change/").content == b"True"
    assert client.post("/admin/01/change/").status_code == 400


def test_the_receiver_of_the_page_counts(
    serve: Callable[..., Client], capsys: pytest.CaptureFixture[str]
) -> None:
    written = run("reference/signals.md", "lock_refused")
    client = serve(distributed_lock("product_<int:id>", timeout=0)(view))
    with locks.lock("product_1"):
        client.post("/product/1")
    lock_refused.disconnect(written["count_refusals"])
    assert "test_page.view was kept out after 0.0 seconds: The lock 'product_1'" in capsys.readouterr().out
