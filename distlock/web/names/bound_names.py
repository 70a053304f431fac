"""Makes the names of locks for one call of a decorated function."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence

from distlock.errors import ConfigurationError, InvalidName
from distlock.names import check_name
from distlock.web.names.converters import Malformed
from distlock.web.names.request import Parts, Request
from distlock.web.names.templates import NameSource, Placeholder, Template, parse

#: The remedy, in errors, for a function that was not called as a view.
HIDDEN = "If it is one, a decorator above it hides it: write @functools.wraps there."

NO_NAME = "A lock needs a name: write @distributed_lock('product_<int:id>')."


def where_of(function: Callable[..., object]) -> str:
    """Return the module and name of *function*, for messages."""
    function = inspect.unwrap(function)
    name = getattr(function, "__qualname__", None) or repr(function)
    return f"{getattr(function, '__module__', '?')}.{name}"


class Names:
    """The parsed names of one decorator, shared by all calls."""

    def __init__(self, sources: Sequence[NameSource]) -> None:
        if not sources:
            raise ConfigurationError(NO_NAME)
        self.sources: list[Template | Callable[..., object]] = [
            source if callable(source) else parse(source) for source in sources
        ]
        self.templates = [source for source in self.sources if isinstance(source, Template)]

    def bind(self, function: Callable[..., object]) -> BoundNames:
        """Return the names for the calls of *function*.

        Raises `ConfigurationError` if a template names an argument that *function* does not have.
        """
        return BoundNames(self, function)


class BoundNames:
    """The names of one decorated function."""

    def __init__(self, names: Names, function: Callable[..., object]) -> None:
        self.sources = names.sources
        self.templates = names.templates
        self._where = where_of(function)
        found = [(template, p) for template in self.templates for p in template.placeholders]
        self._from_arguments = [(template, p) for template, p in found if not p.in_request]
        self._wanted = frozenset(p.source for _, p in self._from_arguments)
        self._from_request = [(template, p) for template, p in found if p.in_request]
        heads = {p.place.head for _, p in self._from_request}
        #: Whether a name uses the request.
        self.needs_request = bool(heads)
        #: Whether a name uses the user. The guard of an async view has to load the user first.
        self.needs_user = "user" in heads
        #: Whether a name uses the body of the request.
        self.needs_body = not heads.isdisjoint({"form", "json"})
        # A partial made by Django's method_decorator claims to wrap the method, which has one more argument.
        follow = not isinstance(function, functools.partial)
        try:
            self._signature = inspect.signature(function, follow_wrapped=follow)
        except ValueError:
            raise ConfigurationError(
                f"{self._where} does not tell its arguments, as some functions written in C: decorate a "
                "'def' that calls it."
            ) from None
        parameters = self._signature.parameters.values()
        self._open = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._named = [p.name for p in parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
        self._defaults = {p.name for p in parameters if p.default is not p.empty}
        if self._open is None:
            self._refuse_unknown()

    def required(self) -> list[tuple[Template, str]]:
        """Return a template and an argument, for each argument without a default that a template names."""
        return [
            (template, placeholder.source)
            for template, placeholder in self._from_arguments
            if placeholder.source not in self._defaults
        ]

    def of_call(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        maximum: int,
        *,
        request: Request | None = None,
        first: tuple[object, ...] = (),
        is_method: bool = False,
    ) -> list[str]:
        """Return the names for this call, each once.

        *request*: the request of a view's call. *first*: what callables get before the arguments of the call.
        *is_method*: the first of *args* is the instance, which callables don't get.
        Raises `Malformed` for client data that gives no name, or more than *maximum* names;
        `ConfigurationError` for arguments that the template never takes; TypeError for a wrong call.
        """
        parts = self._parts(request) if self.needs_request else None
        arguments = kwargs
        # Views get all arguments by keyword, which saves the binding.
        if self.templates and not self._wanted <= kwargs.keys():
            arguments = self._bound(args, kwargs)
        found: dict[str, None] = {}
        for source in self.sources:
            made = None if isinstance(source, Template) else source(*first, *args[is_method:], **kwargs)
            try:
                if isinstance(source, Template):
                    names = source.names(arguments, parts)
                elif isinstance(made, str):
                    names = (made,)
                elif isinstance(made, Iterable):
                    names = made
                else:
                    raise ConfigurationError(
                        f"A callable for a lock's name returns a str or several, not {type(made).__name__}."
                    )
                for name in names:
                    found[check_name(name)] = None
                    if len(found) > maximum:
                        raise Malformed(f"one call asks for more than {maximum} locks")
            except Malformed:
                raise
            except InvalidName as error:
                # The client's data made the name invalid, for example too long.
                raise Malformed(str(error)) from None
            except ConfigurationError as error:
                # This is a bug of the site, so the error names the function.
                raise ConfigurationError(f"{self._where}: {error}") from None
        if not found:
            raise Malformed("nothing was named to lock")
        return list(found)

    def _bound(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Mapping[str, object]:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        if self._open is not None:
            arguments |= arguments.pop(self._open)
        for template, placeholder in self._from_arguments:
            if placeholder.source not in arguments:
                raise ConfigurationError(f"{self._where}: {_unknown(template, placeholder, arguments)}")
        return arguments

    def _parts(self, request: Request | None) -> Parts:
        if request is not None:
            return Parts(request)
        # A function that a view calls gets no request, either.
        template, placeholder = self._from_request[0]
        raise ConfigurationError(
            f"{placeholder.text} in the lock's name {template.text!r} needs a request, and {self._where} "
            f"was not called as a view: pass the value as an argument, and write '<int:id>'. {HIDDEN}"
        )

    def _refuse_unknown(self) -> None:
        for template, placeholder in self._from_arguments:
            if placeholder.source not in self._named:
                unknown = _unknown(template, placeholder, self._named)
                raise ConfigurationError(f"{self._where}: {unknown}")


def _unknown(template: Template, placeholder: Placeholder, known: Iterable[str]) -> str:
    known, source = list(known), placeholder.source
    # In lower case, or 'ID' would not be close to 'id'.
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(source.lower(), folded, n=1)
    if close:
        line = template.text.replace(placeholder.text, placeholder.text.replace(source, folded[close[0]]))
        remedy = f"Did you mean {line!r}?"
    elif source in {"user", "current_user"}:
        line = template.text.replace(placeholder.text, "<user.pk>")
        remedy = f"Did you mean {line!r}, the user of the request?"
    else:
        remedy = f"It has: {', '.join(known) or 'none'}."
    return (
        f"{placeholder.text} in the lock's name {template.text!r} is no argument of this function. {remedy}"
    )
