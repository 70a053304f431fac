"""Name templates: ``product_<int:id>`` and one call make ``product_42``.

`ambiguities` warns of a template if different values may make one name, as those of ``<slug:a>_<slug:b>`` do.
"""

from __future__ import annotations

import difflib
import itertools
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from distlock.errors import ConfigurationError, InvalidName
from distlock.names import check_name
from distlock.web.names.converters import CONVERTERS, Converter, Malformed, Unfit, convert_key, convert_plain
from distlock.web.names.request import NoPlace, Parts, Place, place

_PIECE = re.compile(r"<([^<>]*)>|([^<>]+)|([<>])")
_PLACEHOLDER = re.compile(r"(?:(?P<converter>[^:]*):)?(?P<source>.*)", re.DOTALL)
_ARGUMENTS = re.compile(r"(?P<name>\w+)\(.*\)", re.DOTALL)
#: Placeholders of other template languages. A name with one would be one lock for all calls.
_FOREIGN = re.compile(r"\{(\w*)[^{}]*\}|%(?:\((\w+)\))?[sd]")

_OTHERS = "'uuid:', or 'str:' where the spelling itself is the identity."


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One ``<converter:source>``."""

    text: str
    place: Place
    converter: str | None
    convert: Converter

    @property
    def source(self) -> str:
        """Its source as written: ``id``, ``query.id``."""
        return self.place.text

    @property
    def in_request(self) -> bool:
        """Whether its value comes from the request, and not from the arguments of the call."""
        return self.place.head != "argument"

    def values(self, parts: Parts) -> Iterator[str]:
        """Yield the text for each element of its list. Raises what `as_client_error` returns."""
        try:
            for found in parts.values(self.place):
                if found is None:
                    raise Malformed("is missing")
                yield self.convert(found)
        except (Malformed, Unfit) as error:
            raise self.as_client_error(error) from None

    def as_client_error(self, error: Malformed | Unfit) -> Malformed | Unfit:
        """Return `Malformed` if the client caused *error*, as by the type of a JSON value; else *error*."""
        if isinstance(error, Malformed) or self.place.head == "json":
            return Malformed(f"{self.text} {error}")
        return error


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template: see `parse`."""

    text: str
    parts: tuple[str | Placeholder, ...]
    #: Whether it makes one name for each element of a list.
    has_list: bool = False

    @property
    def placeholders(self) -> Iterator[Placeholder]:
        return (part for part in self.parts if isinstance(part, Placeholder))

    def names(self, arguments: Mapping[str, object], parts: Parts | None = None) -> Iterable[str]:
        """Return the name for these arguments and parts of the request; of a cart, one for each element.

        The names are not checked yet. Raises `Malformed` if the client has sent a wrong value;
        `ConfigurationError`, with the remedy, for an argument of a type that this template never takes.
        """
        columns: list[Iterator[str]] = []
        for part in self.parts:
            if isinstance(part, str):
                columns.append(itertools.repeat(part))
                continue
            place = part.place
            try:
                if place.head == "argument":
                    found = arguments[place.text]
                else:
                    assert parts is not None  # `BoundNames.of_call` ensures it.
                    if place.each is not None:
                        columns.append(part.values(parts))
                        continue
                    found = next(iter(parts.values(place)))
                if found is None:
                    raise Malformed("is missing")
                columns.append(itertools.repeat(part.convert(found)))
            except (Malformed, Unfit) as error:
                shown = part.as_client_error(error)
                if isinstance(shown, Unfit):
                    raise ConfigurationError(self._remedy(part, arguments, shown)) from None
                raise shown from None
        rows = map("".join, zip(*columns, strict=False))
        return rows if self.has_list else itertools.islice(rows, 1)

    def _remedy(self, placeholder: Placeholder, arguments: Mapping[str, object], error: Unfit) -> str:
        problem = f"{placeholder.text} in the lock's name {self.text!r} {error}."
        if placeholder.in_request:
            return f"{problem} The key of a user has to be an int, a UUID or text."
        value = arguments[placeholder.source]
        if isinstance(value, str):
            # Digits are most likely a number, which has several spellings as a slug.
            first = "int" if value.isdigit() else "slug"
            return f"{problem} {_over_text(self.text, placeholder.text, placeholder.source, first)}"
        remedy = f"Pass its key, for example an int, as the argument {placeholder.source!r}."
        if hasattr(value, "is_authenticated"):
            line = self.text.replace(placeholder.text, "<user.pk>")
            remedy = f"In a view, write {line!r} for the user of the request. Elsewhere p{remedy[1:]}"
        return f"{problem} {remedy}"


def parse(text: str) -> Template:
    """Return the parsed *text*.

    Raises `ConfigurationError` with the line to write, if it is no template.
    """
    if not isinstance(text, str):
        raise ConfigurationError(
            f"A lock's name is a str such as 'product_<int:id>' or a callable, not {type(text).__name__}."
        )
    if found := _FOREIGN.search(text):
        line = text.replace(found.group(), f"<int:{found.group(1) or found.group(2) or 'id'}>")
        raise ConfigurationError(
            f"{found.group()} in the lock's name {text!r} is not filled in: write {line!r}."
        )
    parts: list[str | Placeholder] = []
    for piece in _PIECE.finditer(text):
        inside, literal, stray = piece.groups()
        if stray:
            raise ConfigurationError(
                f"The lock's name {text!r} has a {stray!r} without its partner: write for example "
                "'product_<int:id>'."
            )
        parts.append(literal if literal is not None else _placeholder(text, piece.group(), inside))
    try:
        # Check the shortest name: the value of a placeholder has at least one character.
        check_name("".join(part if isinstance(part, str) else "0" for part in parts))
    except InvalidName as error:
        raise ConfigurationError(str(error)) from None
    has_list = _check_lists(text, [part for part in parts if isinstance(part, Placeholder)])
    return Template(text, tuple(parts), has_list)


def _placeholder(text: str, written: str, inside: str) -> Placeholder:
    match = _PLACEHOLDER.fullmatch(inside)
    assert match is not None  # The expression matches anything.
    converter, source = match["converter"], match["source"]
    if converter is not None and (call := _ARGUMENTS.fullmatch(converter)):
        line = text.replace(written, f"<{call['name']}:{source}>")
        raise ConfigurationError(
            f"Converters take no arguments in a lock's name: instead of {text!r} write {line!r}."
        )
    if converter is not None and converter not in CONVERTERS:
        raise ConfigurationError(_unknown_converter(text, written, converter, source))
    try:
        where = place(source)
    except NoPlace as error:
        line = text.replace(written, _typed(error.instead, converter))
        raise ConfigurationError(f"{written} in the lock's name {text!r} {error}: write {line!r}.") from None
    if converter is not None:
        return Placeholder(written, where, converter, CONVERTERS[converter])
    if where.head == "user":
        return Placeholder(written, where, None, convert_key)
    if where.head != "argument":
        raise ConfigurationError(
            f"{written} in the lock's name {text!r} is what a client sends. "
            f"{_over_text(text, written, source)}"
        )
    return Placeholder(written, where, None, convert_plain)


def _typed(source: str, converter: str | None) -> str:
    if converter is None and source == "user.pk":
        return f"<{source}>"
    return f"<{converter or 'int'}:{source}>"


def _over_text(text: str, written: str, source: str, first: str = "int") -> str:
    # As text one value has many spellings ('1', '01', '+1'), and each would be another lock.
    line = text.replace(written, f"<{first}:{source}>")
    second = "slug" if first == "int" else "int"
    return f"Text can spell one value in many ways. Write {line!r}, or '{second}:', {_OTHERS}"


def _check_lists(text: str, placeholders: Sequence[Placeholder]) -> bool:
    """Return whether *text* has a list in it. Raises `ConfigurationError` if it has two different ones."""
    lists = [placeholder for placeholder in placeholders if placeholder.place.each is not None]
    if len({placeholder.place.each for placeholder in lists}) > 1:
        prefix = text.partition("<")[0]
        lines = ", ".join(repr(f"{prefix}{placeholder.text}") for placeholder in lists)
        raise ConfigurationError(
            f"The lock's name {text!r} goes through two lists, and which elements belong together is not "
            f"known: write a name for each, @distributed_lock({lines}), or a callable."
        )
    return bool(lists)


def _unknown_converter(text: str, written: str, converter: str, source: str) -> str:
    known = ", ".join(CONVERTERS)
    # These are the frameworks' words for `str`.
    instead = "str" if converter in {"string", "path", "any"} else None
    close = difflib.get_close_matches(converter, CONVERTERS, n=1)
    guess = instead or (close[0] if close else "int")
    line = text.replace(written, f"<{guess}:{source}>")
    return (
        f"No converter {converter!r} is known in the lock's name {text!r} (known: {known}): write {line!r}."
    )


#: A template, or a function that returns the name or names for a call.
NameSource = str | Callable[..., object]


_DIGITS = frozenset(string.digits)
_SLUG = _DIGITS | frozenset(string.ascii_letters + "-_")


class _Everything(frozenset[str]):
    def __contains__(self, character: object) -> bool:
        return True


#: The characters that a value may have in any place, by converter; None: a placeholder without one. An int
#: has '-' only in front. A UUID is not here, because its length is fixed.
_INSIDE: dict[str | None, frozenset[str]] = {
    "int": _DIGITS,
    None: _DIGITS,
    "slug": _SLUG,
    "str": _Everything(),
}


def ambiguities(templates: Iterable[Template]) -> Iterator[str]:
    """Yield an error, with the line to write, for each of *templates* in which two values run together."""
    for template in templates:
        if (found := _pair(template)) is None:
            continue
        first, last = found
        line = _separated(template)
        helps = _pair(parse(line)) is None
        write = f"Write {line!r}." if helps else "Write 'slug:' or 'int:', and ':' between."
        yield (
            f"{first.text} and {last.text} run together in the lock's name {template.text!r}: two different "
            f"pairs of values may make one name, and wait for each other. {write}"
        )


def _pair(template: Template) -> tuple[Placeholder, Placeholder] | None:
    """Return two placeholders whose values run together in *template*; None: there are none."""
    parts = template.parts
    for (start, first), (end, last) in itertools.combinations(enumerate(parts), 2):
        if isinstance(first, Placeholder) and isinstance(last, Placeholder):
            between = parts[start + 1 : end]
            if _may_contain(first, between) and (_may_contain(last, between) or _is_sign(last, between)):
                return first, last
    return None


def _may_contain(placeholder: Placeholder, between: tuple[str | Placeholder, ...]) -> bool:
    """Return whether *between* may be part of a value of *placeholder*."""
    inside = _INSIDE.get(placeholder.converter)
    if inside is None:
        return False
    for part in between:
        if not isinstance(part, Placeholder):
            if not all(character in inside for character in part):
                return False
        elif part.converter == "uuid" and inside is _DIGITS:
            return False
    return True


def _is_sign(last: Placeholder, between: tuple[str | Placeholder, ...]) -> bool:
    """Return whether *between* could be read as the sign of *last*, a number that a client may make negative.

    Routes of Django and Flask take no negative numbers.
    """
    sent = last.in_request and last.place.head != "user"
    dashes = all(isinstance(part, str) and set(part) == {"-"} for part in between)
    return sent and last.converter == "int" and dashes


def _separated(template: Template) -> str:
    """Return *template* with ':' between its placeholders, which no int, slug or UUID contains."""
    written, inner = "", ""
    for part in template.parts:
        if isinstance(part, str):
            inner += part
            continue
        if written and ":" not in inner:
            word = inner.strip("-_")
            inner = f":{word}:" if word else ":"
        written += f"{inner}{part.text}"
        inner = ""
    return written + inner
