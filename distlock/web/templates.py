"""Name templates: ``product_<int:id>`` and the arguments of one call make ``product_42``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from distlock.errors import ConfigurationError, InvalidName
from distlock.names import check_name
from distlock.web.converters import CONVERTERS, Converter, Malformed, Unfit, convert_plain

#: Parts of a request that a template may name in a later version.
RESERVED = ("query", "json", "form", "header", "user")

_TOKEN = re.compile(r"<([^<>]*)>|([^<>]+)|([<>])")
_PLACEHOLDER = re.compile(r"(?:(?P<converter>[^:]*):)?(?P<source>.*)", re.DOTALL)
_ARGUMENTS = re.compile(r"(?P<name>\w+)\(.*\)", re.DOTALL)
_BRACES = re.compile(r"\{(\w*)[^{}]*\}")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """One ``<converter:source>``."""

    text: str
    source: str
    converter: str | None
    convert: Converter

    def value(self, arguments: Mapping[str, object]) -> str:
        value = arguments[self.source]
        if value is None:
            raise Malformed(f"{self.text} is missing")
        try:
            return self.convert(value)
        except Malformed as error:
            raise Malformed(f"{self.text} {error}") from None


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template. `parse` makes it."""

    text: str
    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> Iterator[Placeholder]:
        return (part for part in self.parts if isinstance(part, Placeholder))

    def name(self, arguments: Mapping[str, object]) -> str:
        """The name for these arguments.

        Raises `Malformed` for client data that can't be a name, `ConfigurationError` for arguments of a type
        that the template can never take; the message has the template to write instead.
        """
        written = []
        for part in self.parts:
            if isinstance(part, str):
                written.append(part)
                continue
            try:
                written.append(part.value(arguments))
            except Unfit as error:
                raise ConfigurationError(self._unfit(part, arguments[part.source], error)) from None
        try:
            return check_name("".join(written))
        except InvalidName as error:
            raise Malformed(str(error)) from None

    def _unfit(self, placeholder: Placeholder, value: object, error: Unfit) -> str:
        problem = f"{placeholder.text} in the lock's name {self.text!r} {error}."
        if isinstance(value, str):
            # One value has many spellings as text ('1', '01', '+1'), and each would be a lock of its own.
            line = self.text.replace(placeholder.text, f"<int:{placeholder.source}>")
            return (
                f"{problem} Text can spell one value in many ways. Write {line!r}, or 'slug:', 'uuid:', "
                "or 'str:' where the spelling itself is the identity."
            )
        return f"{problem} Pass its key, for example an int, as the argument {placeholder.source!r}."


def parse(text: str) -> Template:
    """Parse a template.

    Raises `ConfigurationError` for what is not one; the message has the line to write instead.
    """
    if not isinstance(text, str):
        raise ConfigurationError(
            f"A lock's name is a str such as 'product_<int:id>' or a callable, not {type(text).__name__}."
        )
    if found := _BRACES.search(text):
        line = text.replace(found.group(), f"<int:{found.group(1) or 'id'}>")
        raise ConfigurationError(
            f"{found.group()} in the lock's name {text!r} is not filled in: write {line!r}."
        )
    parts: list[str | Placeholder] = []
    for token in _TOKEN.finditer(text):
        inside, literal, stray = token.groups()
        if stray:
            raise ConfigurationError(
                f"The lock's name {text!r} has a {stray!r} without its partner: write for example "
                "'product_<int:id>'."
            )
        parts.append(literal if literal is not None else _placeholder(text, token.group(), inside))
    try:
        # Placeholders stand for at least one character each.
        check_name("".join(part if isinstance(part, str) else "0" for part in parts))
    except InvalidName as error:
        raise ConfigurationError(str(error)) from None
    return Template(text, tuple(parts))


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
    head, dot, _ = source.partition(".")
    if dot and head in RESERVED:
        raise ConfigurationError(
            f"{written} in the lock's name {text!r} is not available in this version: a name is made from "
            "the arguments of the decorated function. Pass the value as an argument to a decorated function."
        )
    if not source.isidentifier():
        raise ConfigurationError(
            f"{written} in the lock's name {text!r} does not name an argument: write for example <int:id>."
        )
    return Placeholder(written, source, converter, CONVERTERS[converter] if converter else convert_plain)


def _unknown_converter(text: str, written: str, converter: str, source: str) -> str:
    known = ", ".join(CONVERTERS)
    # The frameworks' own words for what is `str` here.
    instead = "str" if converter in {"string", "path", "any"} else None
    close = difflib.get_close_matches(converter, CONVERTERS, n=1)
    guess = instead or (close[0] if close else "int")
    line = text.replace(written, f"<{guess}:{source}>")
    return (
        f"No converter {converter!r} is known in the lock's name {text!r} (known: {known}): write {line!r}."
    )


#: A template, or what makes names of a call's arguments.
NameSource = str | Callable[..., object]
