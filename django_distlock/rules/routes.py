"""The site's routes, and whether the names of a guard can be made there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from django.urls import URLPattern, URLResolver
from django.urls.converters import SlugConverter, StringConverter, UUIDConverter

from distlock.web.decorator import Guarded

#: Name -> converter, or None where that is not known.
Arguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Route:
    """One URL pattern at one place of the URLconf. An included pattern may stand at several."""

    pattern: URLPattern
    #: As `reverse` takes it, namespaces included: ``shop:reduce-stock``.
    name: str | None
    #: As written in the URLconf, for messages.
    path: str
    #: The view's arguments besides the request, by name.
    arguments: Arguments
    #: Whether it gets the groups of a regular expression by their order, and nothing by name.
    unnamed: bool = False


@dataclass(frozen=True, slots=True)
class Misfit:
    """One name that can't be made at one route: what, and what to do."""

    kind: Literal["missing", "text"]
    message: str
    hint: str


def routes(
    patterns: Sequence[URLPattern | URLResolver],
    prefix: str = "",
    arguments: Arguments | None = None,
    namespaces: tuple[str, ...] = (),
    unnamed: bool = False,
) -> Iterator[Route]:
    """The routes of *patterns* and of what they include."""
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        own = {**(arguments or {}), **_arguments(pattern)}
        groups = unnamed or _has_groups(pattern)
        if isinstance(pattern, URLResolver):
            inside = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from routes(pattern.url_patterns, path, own, inside, groups)
        elif pattern.callback is not None:
            name = ":".join((*namespaces, pattern.name)) if pattern.name else None
            yield Route(pattern, name, path, own, unnamed=groups and not own)


def misfits(guarded: Guarded, route: Route, written: str = "@distributed_lock({})") -> Iterator[Misfit]:
    """Yield the errors in the names of *guarded* at *route*.

    *written* is how a name is given to the guard.
    """
    for template, source in guarded.names.required():
        if source not in route.arguments and not route.unnamed:
            yield Misfit(
                "missing",
                f"{guarded.where} is locked on {template.text!r}, but the route '{route.path}' has no "
                f"{source!r}.",
                f"The route has: {', '.join(route.arguments) or 'none'}.{_elsewhere(route)}",
            )
    for template in guarded.names.templates:
        for placeholder in template.placeholders:
            converter = route.arguments.get(placeholder.source)
            if placeholder.converter is None and _gives_text(converter):
                slug = isinstance(converter, SlugConverter)
                line = template.text.replace(
                    placeholder.text, f"<{'slug' if slug else 'int'}:{placeholder.source}>"
                )
                others = "" if slug else ", or 'slug:', 'uuid:' or 'str:'"
                yield Misfit(
                    "text",
                    f"{guarded.where} is locked on {template.text!r}, and the route '{route.path}' gives "
                    f"text for {placeholder.source!r}: one value could have several locks.",
                    f"Write {written.format(repr(line))}{others}.",
                )


def _elsewhere(route: Route) -> str:
    """Return what to write for a view set of which only one of two routes has the argument."""
    if not hasattr(route.pattern.callback, "actions"):
        return ""
    return (
        " Of a view set lock the routes that have it: write the decorator on its methods, "
        'or a rule, such as {"route": "product-detail", "lock": "product_<int:pk>"}.'
    )


def _arguments(pattern: URLPattern | URLResolver) -> Arguments:
    given = pattern.default_kwargs if isinstance(pattern, URLResolver) else pattern.default_args
    # The named groups of re_path are text.
    groups = getattr(getattr(pattern.pattern, "regex", None), "groupindex", ())
    text = StringConverter()
    return {**dict.fromkeys(groups, text), **pattern.pattern.converters, **dict.fromkeys(given)}


def _has_groups(pattern: URLPattern | URLResolver) -> bool:
    regex = getattr(pattern.pattern, "regex", None)
    return regex is not None and regex.groups > 0


def _gives_text(converter: object) -> bool:
    # Subclasses convert as they like; SlugConverter and PathConverter don't.
    inherits = getattr(type(converter), "to_python", None) is StringConverter.to_python
    return inherits and not isinstance(converter, UUIDConverter)
