from __future__ import annotations

import json
import logging

import pytest

from distlock import (
    BackendUnavailable,
    BatchFailed,
    ConfigurationError,
    InvalidName,
    LockLost,
    LockTimeout,
    LostInside,
    NotHeld,
    OutcomeUnknown,
    TooManyWaiters,
)
from distlock.web.answers import answer_for, log_level, prefers_html, render
from distlock.web.names.converters import Malformed

CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (LockTimeout("x"), 409, "lock_contended"),
        (TooManyWaiters("x"), 503, "lock_queue_full"),
        (BackendUnavailable("x"), 503, "lock_backend_unavailable"),
        (LockLost("x"), 503, "lock_lost"),
        (BatchFailed("x"), 503, "lock_batch_failed"),
        (OutcomeUnknown("x"), 500, "lock_outcome_unknown"),
        (LostInside("x"), 500, "lock_lost_inside"),
        (Malformed("x"), 400, "lock_name_invalid"),
    ],
)
def test_each_situation_has_its_answer(error, status: int, code: str) -> None:
    answer = answer_for(error, contended_status=409, debug=False)
    assert answer is not None
    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize("error", [ConfigurationError("x"), NotHeld("x"), InvalidName("x")])
def test_what_the_site_has_to_mend_is_no_answer(error) -> None:
    assert answer_for(error, contended_status=423, debug=False) is None


def rendered(accept: str = "*/*", debug: bool = False):
    answer = answer_for(LockTimeout("The lock 'a<b>' is held"), contended_status=423, debug=debug)
    assert answer is not None
    return render(answer, accept)


def test_programs_get_a_problem_document() -> None:
    answer = rendered()
    problem = json.loads(answer.body)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert set(problem) == {"type", "title", "status", "detail", "code", "retry_after"}
    assert (problem["status"], problem["code"], problem["retry_after"]) == (423, "lock_contended", 1)


def test_browsers_get_a_page() -> None:
    answer = rendered(CHROME)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "<h1>Locked</h1>" in answer.body


def test_an_answer_is_never_stored_and_says_when_to_come_back() -> None:
    headers = rendered().headers
    assert headers["Cache-Control"] == "no-store"
    assert int(headers["Retry-After"]) >= 1


@pytest.mark.attack("A34")
def test_the_name_is_shown_while_debugging_only_and_only_as_text() -> None:
    assert "a<b>" not in rendered().body + rendered(CHROME).body
    assert json.loads(rendered(debug=True).body)["debug"] == "The lock 'a<b>' is held"
    assert "a&lt;b&gt;" in rendered(CHROME, debug=True).body


def test_where_repeating_can_not_help_nobody_is_told_to() -> None:
    answer = answer_for(Malformed("x"), contended_status=423, debug=False)
    assert answer is not None
    assert "Retry-After" not in render(answer, "").headers


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("", False),
        ("*/*", False),
        (CHROME, True),
        ("text/html", True),
        ("application/json, text/html;q=0.9", False),
        ("application/json;q=0.5, text/html;q=0.9", True),
        ("text/html;q=0", False),
        ("text/html;q=x", False),
    ],
)
def test_html_is_for_those_who_ask_for_it_first(accept: str, page: bool) -> None:
    assert prefers_html(accept) is page


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (LockTimeout("x"), logging.INFO),
        (Malformed("x"), logging.INFO),
        (TooManyWaiters("x"), logging.DEBUG),
        (BackendUnavailable("x"), logging.WARNING),
        (LockLost("x"), logging.ERROR),
    ],
)
def test_an_outage_is_louder_in_the_log_than_a_busy_lock(error, level: int) -> None:
    assert log_level(error) == level
