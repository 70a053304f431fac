"""Exactly one order for each ``Idempotency-Key``, in Django."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from demo_shop.django_shop.models import Answer
from demo_shop.once import HEADER, REPLAYED, Asked, lock_names, read_asked
from demo_shop.sale import Refusal

View = Callable[..., HttpResponse]


def key_name(request: HttpRequest, **_: Any) -> Iterable[str]:
    return lock_names(request.headers.get(HEADER))


def once(view: View) -> View:
    """*view*, whose answer is kept for clients that ask again. Stands below the lock."""

    @functools.wraps(view)
    def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        same = (request.method or "", request.path, request.META["QUERY_STRING"], request.body)
        asked = read_asked(request.headers.get(HEADER), *same)
        if asked is None:
            return view(request, **kwargs)
        with transaction.atomic():
            # Before everything else: where no lock helps, a second one waits here for the first.
            if not claimed(asked):
                return replay(asked)
            try:
                response = view(request, **kwargs)
            except Refusal as refusal:
                response = refuse(refusal)
            if response.status_code >= 500:
                transaction.set_rollback(True)
            else:
                keep(asked, response)
            return response

    return answer


def claimed(asked: Asked) -> bool:
    """Whether the key was new."""
    try:
        with transaction.atomic():
            Answer.objects.create(
                key=asked.key, fingerprint=asked.fingerprint, status=0, body="", created_at=timezone.now()
            )
    except IntegrityError:
        return False
    return True


def keep(asked: Asked, response: HttpResponse) -> None:
    body = response.content.decode()
    Answer.objects.filter(pk=asked.key).update(status=response.status_code, body=body)


def replay(asked: Asked) -> HttpResponse:
    first = Answer.objects.get(pk=asked.key)
    asked.refuse_another(first.fingerprint)
    headers = {REPLAYED: "true"}
    return HttpResponse(first.body, status=first.status, headers=headers, content_type="application/json")


def refuse(refusal: Refusal) -> HttpResponse:
    return JsonResponse(refusal.said, status=refusal.status)
