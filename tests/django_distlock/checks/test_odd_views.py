"""A view of somebody else's that answers to every name: the checks ask it for many, and pass it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.checks.registry import registry
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path


class Answers:
    """A view of somebody else's: whatever is asked for it has."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and name != "__closure__":
            raise AttributeError(name)
        return self.answer

    def __call__(self, request: HttpRequest, id: int) -> HttpResponse:
        return HttpResponse("sold")


@pytest.mark.parametrize(
    "answer",
    [1, "closure", (1, 2), [object()], lambda *_: None],
    ids=["number", "text", "tuple", "list", "function"],
)
def test_a_view_that_answers_to_every_name_passes_the_check(
    answer: object, serve: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve([path("product/<int:id>", Answers(answer), name="buy")])
    # Those of other apps that a test of this process has loaded may break on such a view.
    own = {check for check in registry.registered_checks if check.__module__.startswith("django_distlock")}
    monkeypatch.setattr(registry, "registered_checks", own)
    # The tests' own lock service keeps no other process out.
    assert {found.id for found in run_checks()} <= {"distlock.W002"}
    assert client.get("/product/1").content == b"sold"
