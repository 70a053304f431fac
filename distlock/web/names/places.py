"""Where a placeholder's value stands: ``id``, ``query.id``, ``json.lines[].sku``, ``user.pk``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

Head = Literal["argument", "query", "form", "json", "header", "user"]

#: The step of a path that goes to every element.
EACH = "[]"

KNOWN = "query.<name>, form.<name>, json.<path>, header.<name> and user.pk"

_HEADS: tuple[Head, ...] = ("query", "form", "json", "header", "user")
_FIELD = re.compile(r"(?P<name>[\w-]+)(?P<each>\[\])?")
#: The form of a path into a form: ``order.id``.
_LEVELS = re.compile(r"[\w-]+(\.[\w-]+)+(\[\])?")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_JSON = re.compile(r"json(\[\])?(\.[^.\[\]<>\s]+(\[\])?)*")
_STEP = re.compile(r"\[\]|[^.\[\]]+")
#: The words of the frameworks, or other libraries, for these parts.
_WORDS: dict[str, Head] = {
    "args": "query",
    "GET": "query",
    "get": "query",
    "params": "query",
    "POST": "form",
    "post": "form",
    "body": "json",
    "data": "json",
    "JSON": "json",
    "headers": "header",
    "current_user": "user",
}


class NoPlace(ValueError):
    """The text after the colon is no place. `instead` is what was probably meant."""

    def __init__(self, problem: str, instead: str) -> None:
        super().__init__(problem)
        self.instead = instead


@dataclass(frozen=True, slots=True)
class Place:
    """One place: in the arguments of the call, in a part of its request, or with the user."""

    text: str
    head: Head
    #: The name there; for json the steps, of which `EACH` goes to every element of a list.
    path: tuple[str, ...]
    #: The list that it goes through, as written; None where there is one value.
    each: str | None = None


def place(text: str) -> Place:
    """Read a placeholder's source. Raises `NoPlace`."""
    if text.isidentifier():
        return Place(text, "argument", (text,))
    head, _, rest = text.partition(".")
    match head:
        case "query" | "form":
            if not (field := _FIELD.fullmatch(rest)):
                if _LEVELS.fullmatch(rest) and _FIELD.fullmatch(last_step := rest.rpartition(".")[2]):
                    raise NoPlace(
                        "is a path, and only JSON bodies have those (a field with a dot in its name needs a "
                        "callable)",
                        f"{head}.{last_step}",
                    )
                raise NoPlace(f"names no field of the {head}", f"{head}.id")
            return Place(text, head, (field["name"],), text if field["each"] else None)
        case "json" | "json[]":
            if not _JSON.fullmatch(text):
                raise NoPlace("is no path into the JSON body", "json.order.id")
            path = tuple(_STEP.findall(text.removeprefix("json")))
            last = text.rfind(EACH)
            return Place(text, "json", path, text[:last] if last >= 0 else None)
        case "header":
            if not _HEADER.fullmatch(rest):
                # WSGI reads X_Shop and X-Shop as one header: only the second is what clients may send.
                raise NoPlace("names no header", f"header.{rest.replace('_', '-') or 'X-Shop'}")
            return Place(text, "header", (rest,))
        case "user":
            if rest != "pk":
                raise NoPlace("is not known of the user", "user.pk")
            return Place(text, "user", (rest,))
    raise _unknown(text)


def _unknown(text: str) -> NoPlace:
    head, _, rest = text.partition(".")
    if head in {"self", "cls"} and rest:
        return NoPlace(
            "is an attribute, and a name is made of the arguments of the call. In a method that is no view "
            f"lock inside of it, with locks.lock(f'…{{{text}}}'). In a view",
            rest if rest.isidentifier() else "id",
        )
    if head == "request" and "." in rest:
        try:
            meant_place = place(rest).text
        except NoPlace as error:
            meant_place = error.instead
        return NoPlace(f"is looked up in the request anyway (known are {KNOWN})", meant_place)
    if EACH in head:
        return NoPlace("goes through a list, and only request bodies have those", f"json.{text}")
    if not rest:
        return NoPlace("does not name an argument", head if head.isidentifier() else "id")
    close = difflib.get_close_matches(head, _HEADS, n=1)
    meant = _WORDS.get(head) or (close[0] if close else None)
    problem = f"comes from {head!r}, where nothing is looked up (known are {KNOWN})"
    if meant is None:
        return NoPlace(problem, head if head.isidentifier() else "id")
    return NoPlace(problem, "user.pk" if meant == "user" else f"{meant}.{rest}")
