"""The parts of a request that a lock's name may use, read as the view itself will read them.

The frameworks read some requests in different ways: ``?id=1&id=2`` is 2 in one and 1 in the other. Such a
request is `Malformed` here.

A `Place` says where the value of a placeholder comes from: ``id``, ``query.id``, ``json.lines[].sku``,
``user.pk``.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, Protocol
from urllib.parse import unquote_plus

from distlock.web.names.converters import Malformed

Head = Literal["argument", "query", "form", "json", "header", "user"]

#: The step of a path that stands for every element of a list.
EACH = "[]"

KNOWN = "query.<name>, form.<name>, json.<path>, header.<name> and user.pk"

_HEADS: tuple[Head, ...] = ("query", "form", "json", "header", "user")
_FIELD = re.compile(r"(?P<name>[\w-]+)(?P<each>\[\])?")
#: A path such as ``order.id``, which a form can't have.
_LEVELS = re.compile(r"[\w-]+(\.[\w-]+)+(\[\])?")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_JSON = re.compile(r"json(\[\])?(\.[^.\[\]<>\s]+(\[\])?)*")
_STEP = re.compile(r"\[\]|[^.\[\]]+")
#: The words of frameworks and other libraries for the parts of a request.
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
    """The source of a placeholder is no place. `instead` is what was probably meant."""

    def __init__(self, problem: str, instead: str) -> None:
        super().__init__(problem)
        self.instead = instead


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value comes from: an argument of the call, a part of its request, or its user."""

    text: str
    head: Head
    #: The name in that part. For JSON, the steps to the value; `EACH` stands for every element of a list.
    path: tuple[str, ...]
    #: The list whose elements are meant, as written; None: it is one value.
    each: str | None = None


def place(text: str) -> Place:
    """Return the `Place` that *text*, the source of a placeholder, describes. Raises `NoPlace`."""
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
                # WSGI can't tell X_Shop from X-Shop, and many servers drop headers with '_'.
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


_URLENCODED = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"

#: The value of a key that is given twice, because parsers differ on which one counts.
_TWICE = object()


class Request(Protocol):
    """A request of a framework. It raises the framework's errors for a body that is too large or cut off."""

    @property
    def method(self) -> str: ...

    @property
    def content_type(self) -> str:
        """The header as it was sent."""

    @property
    def query_string(self) -> bytes:
        """The raw query."""

    def body(self) -> bytes:
        """Return the raw body, and leave it readable for the view; b"" if it was parsed as a form before."""

    def query(self, name: str) -> Sequence[str]:
        """Return the values of *name* in the query, as the view finds them."""

    def form(self, name: str) -> Sequence[str]:
        """Return the values of *name* in the form, as the view finds them. A multipart body is parsed."""

    def header(self, name: str) -> str | None:
        """Return the header *name*."""

    def user(self) -> object:
        """Return the key of the authenticated user. Raises the framework's 401 or 403 if there is none."""


class Parts:
    """The parts of one request, each read once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._document: object = None
        self._parsed = False

    def values(self, place: Place) -> Iterable[object]:
        """Return the values at *place*: one, or with ``[]`` one or more. Raises `Malformed`."""
        match place.head:
            case "query":
                return self._query(place)
            case "form":
                return self._form(place)
            case "json":
                return _walk(self._json(), place.path)
            case "header":
                return [self._header(place)]
        return [self._request.user()]

    def _query(self, place: Place) -> Sequence[str]:
        (name,) = place.path
        found = _read(self._request.query_string, name)
        if not all(map(str.isascii, found)):
            # Django also reads the query with the charset of the Content-Type.
            self._media()
        if found != list(self._request.query(name)):
            raise Malformed("is read as another value by the view")
        return _counted(found, place)

    def _form(self, place: Place) -> Sequence[str]:
        request, (name,) = self._request, place.path
        if request.method != "POST":
            # Django reads forms of POST only.
            raise Malformed(
                f"is missing: a form comes with POST, not with {request.method}{self._bodiless()}"
            )
        media = self._media()
        if media not in {_URLENCODED, _MULTIPART}:
            raise Malformed(f"is missing: the body is no form, its Content-Type is not {_URLENCODED}")
        # Read the body first, because parsing the form may use it up.
        raw = request.body() if media == _URLENCODED else b""
        found = list(request.form(name))
        if raw and _read(raw, name) != found:
            raise Malformed("is read as another value by the view")
        if any("\ufffd" in value for value in found):
            raise Malformed("is not UTF-8")
        return _counted(found, place)

    def _json(self) -> object:
        if not self._parsed:
            media = self._media()
            if media != "application/json" and not (
                media.startswith("application/") and media.endswith("+json")
            ):
                raise Malformed(f"is missing: the Content-Type is not application/json{self._bodiless()}")
            self._document = _parse_json(self._request.body())
            self._parsed = True
        return self._document

    def _bodiless(self) -> str:
        """Return a remedy, for messages, if the method of the request has no body; else ""."""
        bodiless = self._request.method in {"GET", "HEAD"}
        return "; let the view take POST only, with @require_POST or @app.post" if bodiless else ""

    def _header(self, place: Place) -> str:
        value = self._request.header(place.path[0])
        if value is None:
            raise Malformed("is missing")
        if "," in value:
            # Servers join several headers of one name with commas.
            raise Malformed("is given twice, or has a comma")
        return value

    def _media(self) -> str:
        media, *parameters = self._request.content_type.lower().split(";")
        for parameter in parameters:
            word, _, value = parameter.partition("=")
            if word.strip().startswith("charset") and value.strip().strip('"') != "utf-8":
                raise Malformed("is not UTF-8, as its Content-Type says")
        return media.strip()


def _read(raw: bytes, name: str) -> list[str]:
    """Return the values of *name* in *raw*, a query or a urlencoded body. Raises `Malformed` if not UTF-8."""
    found = []
    try:
        for pair in raw.decode().split("&"):
            key, _, value = pair.partition("=")
            if unquote_plus(key) == name:
                found.append(unquote_plus(value, errors="strict"))
    except UnicodeDecodeError:
        raise Malformed("is not UTF-8") from None
    return found


def _counted(found: Sequence[str], place: Place) -> Sequence[str]:
    if not found:
        raise Malformed("is missing")
    if len(found) > 1 and place.each is None:
        raise Malformed("is given twice")
    return found


def _parse_json(body: bytes) -> object:
    """Return the document in *body*. Raises `Malformed` unless it is JSON in UTF-8, not nested too deeply."""
    try:
        # json.loads would also accept bytes in UTF-16 and UTF-32, which other parsers do not read.
        return json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError):
        raise Malformed("is missing: the body is no JSON in UTF-8") from None


def _walk(node: object, path: Sequence[str]) -> Iterator[object]:
    """Yield the values in *node* at *path*, one for each element of the lists on the way.

    Raises `Malformed`.
    """
    for number, step in enumerate(path):
        if step == EACH:
            if not isinstance(node, list):
                raise Malformed("is not there: '[]' stands where the body has no list")
            if not node:
                raise Malformed("is missing: the list is empty")
            for element in node:
                yield from _walk(element, path[number + 1 :])
            return
        if isinstance(node, list):
            raise Malformed("is missing: the body has a list where the name has no '[]'")
        if not isinstance(node, dict) or step not in node:
            raise Malformed("is missing")
        node = node[step]
        if node is _TWICE:
            raise Malformed("is given twice")
    if node is None:
        raise Malformed("is missing")
    yield node


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                made[key] = _TWICE
            seen.add(key)
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(name)
