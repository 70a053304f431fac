"""The options of ``@distributed_lock(...)``, checked at import, and what it may not stand on.

Errors end with the site's own line: `options_here` finds it on the stack.
"""

from __future__ import annotations

import dis
import functools
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, Unpack

from distlock.errors import ConfigurationError
from distlock.numbers import LONG, check_seconds
from distlock.suggestions import refuse_unknown
from distlock.terms import PERMIT, READ
from distlock.web.guard_options import (
    EVERY,
    READING_METHODS,
    AllBut,
    Methods,
    check_batch,
    check_methods,
    check_mode,
    refuse_async,
)
from distlock.web.names.sources import HIDDEN, NO_NAME, BoundNames, Names, where_of
from distlock.web.names.templates import NameSource, Template
from distlock.web.settings.problems import DEFAULT_ALIAS

P = ParamSpec("P")
R = TypeVar("R")

#: The ``when`` of a rule. It gets the request and the view's arguments. If it returns a false value, the
#: request is not locked.
When = Callable[..., object]

ON_CONTENDED = ("respond", "raise", "skip")

#: The attribute of a decorated function that has its `Guarded`. `functools.wraps` copies it to the functions
#: above.
_MARK = "__distlock__"

#: The attribute of the decorator itself that has its options.
_TOLD = "__distlock_told__"

#: The attribute of the decorator itself that has the error for one that stands in the place of a view.
_UNUSED = "__distlock_unused__"


class Words(TypedDict, total=False):
    """The options of ``@distributed_lock`` beside its names, and of a rule beside its route."""

    #: Which lock service of ``DISTLOCK``.
    alias: str
    #: The longest wait, seconds; None: the alias's.
    timeout: float | None
    #: Lifetime without renewal, seconds; None: the alias's.
    ttl: float | None
    #: Seconds after which a holder counts as hung; None: the alias's.
    max_hold: float | None
    #: The HTTP methods that are locked; None: those that read for ``mode="shared"``, else the usual ones of
    #: the kind of view.
    methods: Iterable[str] | None
    #: The database that is fenced, True for the default one; None: as the alias is set.
    fence: bool | str | None
    #: How many waiting requests of one process may share a transaction; None: each has its own.
    batch: int | None
    #: ``"exclusive"``; ``"shared"``: readers share the lock, and keep writers out.
    mode: Literal["exclusive", "shared"]
    #: So many calls at once, as in a semaphore; None: one.
    limit: int | None
    #: ``"respond"``; ``"raise"``: a view raises `LockTimeout` instead of its answer; ``"skip"``: a function
    #: that is no view returns None instead of raising it.
    on_contended: Literal["respond", "raise", "skip"]


WORDS = tuple(Words.__annotations__)

#: The defaults of those options that are not None by default, for `help`.
USUAL = {"alias": DEFAULT_ALIAS, "mode": "exclusive", "on_contended": "respond"}


class GuardOptions:
    """The arguments of one decorator, checked. All calls share it.

    Raises `ConfigurationError` for options that can never work, TypeError for unknown ones.
    """

    def __init__(self, names: Sequence[NameSource], **words: Unpack[Words]) -> None:
        refuse_unknown("distributed_lock", words.keys() - WORDS, WORDS)
        alias, methods, fence = words.get("alias", DEFAULT_ALIAS), words.get("methods"), words.get("fence")
        on_contended = words.get("on_contended", "respond")
        for source in names:
            if isinstance(source, type):
                # @distributed_lock above a class, without parentheses.
                raise ConfigurationError(f"{where_of(source)}: {NO_NAME}")
        self._sources = tuple(names)
        self.names = Names(names)
        if not _is_text(alias):
            raise ConfigurationError(f"alias={alias!r} has to be a key of DISTLOCK, such as 'default'.")
        self.alias = alias
        timeout, ttl, max_hold = words.get("timeout"), words.get("ttl"), words.get("max_hold")
        self.timeout = None if timeout is None else check_seconds("timeout", timeout, zero=True, most=LONG)
        self.ttl = None if ttl is None else check_seconds("ttl", ttl)
        self.max_hold = None if max_hold is None else check_seconds("max_hold", max_hold)
        self.methods = None if methods is None else check_methods(methods)
        if fence == "" or not isinstance(fence, bool | str | None):
            raise ConfigurationError(f"fence={fence!r} has to be True, False, or the name of a database.")
        self.fence = fence
        self.batch = check_batch(words.get("batch"), self.names)
        self.limit = words.get("limit")
        self.mode = check_mode(words.get("mode", "exclusive"), self.limit, fence, self.batch)
        #: Whether the lock keeps two requests of one session apart, as far as is known: a name is of
        #: the user, the same for all, or made by a function of the site.
        self.serialises_session = self.mode != PERMIT and any(
            not isinstance(source, Template) or all(one.place.head == "user" for one in source.placeholders)
            for source in self.names.sources
        )
        if on_contended not in ON_CONTENDED:
            raise ConfigurationError(f"on_contended={on_contended!r} has to be 'respond', 'raise' or 'skip'.")
        #: Whether a view answers 423 if the lock stays taken; else it raises `LockTimeout`.
        self.responds = on_contended == "respond"
        #: Whether a function that is no view is not called, and returns None, if the lock stays taken.
        self.skips = on_contended == "skip"
        self._on_contended = on_contended

    def __str__(self) -> str:
        """Return it as the user would write it."""
        given = [_written(source) for source in self._sources]
        if self.alias != DEFAULT_ALIAS:
            given.append(f"alias={_written(self.alias)}")
        given += [
            f"{word}={value:g}"
            for word, value in (("timeout", self.timeout), ("ttl", self.ttl), ("max_hold", self.max_hold))
            if value is not None
        ]
        if self.methods is not None:
            named = [EVERY] if isinstance(self.methods, AllBut) else sorted(self.methods)
            given.append(f"methods=[{', '.join(map(_written, named))}]")
        if self.fence is not None:
            given.append(f"fence={_written(self.fence) if isinstance(self.fence, str) else self.fence}")
        if self.batch is not None:
            given.append(f"batch={self.batch}")
        if self.mode == READ:
            given.append('mode="shared"')
        if self.limit is not None:
            given.append(f"limit={self.limit}")
        if not self.responds:
            given.append(f"on_contended={_written(self._on_contended)}")
        return f"distributed_lock({', '.join(given)})"

    def locked_methods(self, usual: Methods | None) -> Methods | None:
        """Return the methods that are locked, where such a view locks *usual*; None: every HTTP method."""
        if self.methods is not None:
            return self.methods
        return READING_METHODS if self.mode == READ else usual

    @property
    def unused(self) -> str:
        """The error for a decorator without its parentheses, or without a function below it."""
        if len(self.names.sources) == 1 and not self.names.templates:
            (source,) = self._sources
            return f"{where_of(source)}: {NO_NAME}"  # type: ignore[arg-type]
        return f"@{self} guards nothing here: write it directly above a 'def'."


class Guarded:
    """One guarded function: the function, the options of its guard, and the names of its locks.

    *methods*: the methods that are locked if the options name none and the guard writes; None: every HTTP
    method, except on the ``dispatch`` of a class. *when*: see `When`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: GuardOptions,
        *,
        methods: Methods | None = None,
        when: When | None = None,
    ) -> None:
        refuse_unguardable(function)
        refuse_async(function, options.batch)
        self.function = function
        self.options = options
        self.when = when
        self.methods = options.locked_methods(methods)
        self.names: BoundNames = options.names.bind(function)
        #: Module and name of the function, for messages.
        self.where = where_of(function)
        self.wrapper: Callable[..., Any] | None = None
        #: The guard directly below, if the two form a stack: see `distlock.web.stack`.
        self.below: Guarded | None = None
        #: Whether another guard has it as `below`.
        self.is_below = False
        #: Whether it locks a request, by the view and the HTTP method. A face keeps here what it has found.
        self.locks_at: dict[tuple[object, str], bool | None] = {}
        #: The views whose streamed responses were logged.
        self.streams_told: set[str] = set()

    def locks_method(self, method: str | None) -> bool:
        """Return whether requests with this HTTP method are locked."""
        return self.methods is None or method in self.methods

    def refuse_methods(self) -> None:
        """Raise `ConfigurationError` if it has methods=: this is no call of a view, and has no method."""
        if self.options.methods is not None:
            raise ConfigurationError(
                f"{self.where} was not called as a view, so methods= would never lock: leave it out. {HIDDEN}"
            )

    def mark(self, wrapper: Callable[..., Any]) -> None:
        """Mark *wrapper* as this guard, so that `guard_at` finds it."""
        self.wrapper = wrapper
        setattr(wrapper, _MARK, self)


def guard_at(function: object) -> Guarded | None:
    """Return the guard that *function* itself is; None: it is none, though it may wrap one."""
    guard = getattr(function, _MARK, None)
    return guard if isinstance(guard, Guarded) and guard.wrapper is function else None


def chain(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield *function*, the function that it wraps, the one which that wraps, and so on."""
    seen = set()
    wrapped: Any = function
    while wrapped is not None and id(wrapped) not in seen:
        seen.add(id(wrapped))
        yield wrapped
        wrapped = _behind(wrapped)


def _behind(wrapper: Any) -> Any:
    if (wrapped := getattr(wrapper, "__wrapped__", None)) is not None:
        return wrapped
    if isinstance(wrapper, functools.partial | functools.partialmethod):
        return wrapper.func
    if type(wrapper).__module__ == "asgiref.sync":
        return getattr(wrapper, "awaitable", None)
    # A call of an instance calls ``__call__`` of its class.
    call = getattr(type(wrapper), "__call__", None)  # noqa: B004
    return call if inspect.isfunction(call) else None


def outermost(function: Callable[..., Any]) -> Guarded | None:
    """Return the outermost guard of *function*, if all decorators above it use `functools.wraps`."""
    guard = getattr(function, _MARK, None)
    return guard if isinstance(guard, Guarded) else None


def guards_of(function: Callable[..., Any]) -> list[Guarded]:
    """Return the guards through which a call of *function* passes, the outermost first."""
    found: list[Guarded] = []
    for one in chain(function):
        guard = getattr(one, _MARK, None)
        if isinstance(guard, Guarded) and guard not in found:
            found.append(guard)
    return found


def around(function: Callable[..., Any], guarded: Guarded) -> list[Callable[..., Any]]:
    """Return the functions through which a call of *function* passes, from the outermost to *guarded*."""
    passed = list(chain(function))
    marked = [index for index, one in enumerate(passed) if getattr(one, _MARK, None) is guarded]
    return passed[: marked[-1] + 1] if marked else []


def enclosed(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield the functions in the closure of *function*, as a decorator without `functools.wraps` has one."""
    cells = getattr(function, "__closure__", None)
    # A stand-in for a view may have any attribute, of any type.
    for cell in cells if isinstance(cells, tuple) else ():
        try:
            content = cell.cell_contents
        except (AttributeError, ValueError):
            continue
        if inspect.isfunction(content) or isinstance(content, functools.partial):
            yield content


def refuse_hidden(guarded: Guarded, view: Callable[..., Any]) -> None:
    """Raise `ConfigurationError` if a decorator without `functools.wraps` hides *guarded* in *view*.

    Only functions that take any arguments are searched, for those are decorators. Another function may be a
    view that calls a guarded helper.
    """
    left, seen = list(chain(view)), set[int]()
    while left:
        function = left.pop()
        if id(function) in seen or not passes_on(function):
            continue
        seen.add(id(function))
        for inner in enclosed(function):
            if guarded in guards_of(inner):
                raise ConfigurationError(
                    f"A decorator above @{guarded.options} on {guarded.where} hides it, so that requests are "
                    "not answered as those of a locked view: write @functools.wraps in that decorator, or "
                    "the lock above it."
                )
            left += chain(inner)


def passes_on(function: object) -> bool:
    """Return whether *function*, which may be a bound method, takes any arguments.

    Its code decides, because a decorator may show another signature.
    """
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return bool(flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))


def explaining(
    options: GuardOptions, decorate: Callable[[Callable[P, R]], Callable[P, R]]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return *decorate*, with a clear error if it is called as a view.

    That happens after ``@distributed_lock`` without parentheses: the framework takes the decorator for the
    view.
    """

    def only_functions(*args: Any, **kwargs: Any) -> Callable[P, R]:
        if len(args) == 1 and not kwargs and (callable(args[0]) or isinstance(args[0], classmethod)):
            try:
                return decorate(args[0])
            except ConfigurationError as error:
                raise told_at(sys._getframe(1), error) from None
        raise ConfigurationError(options.unused)

    if not options.names.templates:
        # Flask names the endpoint after it, and would complain about two endpoints of one name.
        only_functions.__name__ = getattr(options.names.sources[0], "__name__", only_functions.__name__)
    setattr(only_functions, _TOLD, options)
    setattr(only_functions, _UNUSED, options.unused)
    return only_functions


def told_at(line: FrameType, error: Exception) -> Exception:
    """Return *error* with a traceback that ends at the site's own *line*, which Python then prints last."""
    return error.with_traceback(TracebackType(None, line, line.f_lasti, line.f_lineno))


def options_of(decorator: object) -> GuardOptions | None:
    """Return the options of *decorator*, if ``distributed_lock(...)`` made it."""
    options = getattr(decorator, _TOLD, None)
    return options if isinstance(options, GuardOptions) else None


def unused(view: object) -> str | None:
    """Return the error for a *view* that is a decorator without a function; None: it is none."""
    problem = getattr(view, _UNUSED, None)
    return problem if isinstance(problem, str) else None


def refuse_unguardable(function: Any) -> None:
    """Raise `ConfigurationError` for a function that can't be called, or runs after it has returned."""
    if isinstance(function, staticmethod | classmethod):
        word, where = type(function).__name__, where_of(function.__func__)
        raise ConfigurationError(f"@distributed_lock is above @{word} on {where}: write @{word} above it.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{where_of(function)} is a generator: its body would run after the lock is released. Decorate a "
            "function that does the work and returns."
        )


def _written(source: NameSource) -> str:
    if isinstance(source, str):
        return json.dumps(source, ensure_ascii=False)
    return getattr(source, "__name__", repr(source))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


#: The packages that may stand between a line of the site and the raise.
_BETWEEN = frozenset({"distlock", "django_distlock", "flask_distlock", *sys.stdlib_module_names})


def this_code() -> str:
    """Return, for messages, the line of code that has called distlock, if it is on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return "This code" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno}: this code"


def options_here(names: Sequence[NameSource], **words: Unpack[Words]) -> GuardOptions:
    """Return the options of a decorator. Errors say the line of the caller's caller, which wrote it."""
    line = sys._getframe(2)
    try:
        return GuardOptions(names, **words)
    except ConfigurationError as error:
        place = f"{line.f_globals.get('__name__', '?')}, line {line.f_lineno}"
        raise told_at(line, ConfigurationError(f"{place}: {error}")) from None
    except TypeError as error:
        raise told_at(line, error) from None


#: The instructions that may stand between ``super`` and the attribute that is read from it.
_CALLING = ("PUSH_NULL", "PRECALL", "CALL", "CACHE", "LOAD_DEREF", "LOAD_FAST")


def reached(cls: type, name: str) -> set[str]:
    """Return the methods of *cls* that a call of the method *name* may call, with *name*."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.add(one)
        for member in (vars(base)[one] for base in cls.__mro__ if one in vars(base)):
            calls = set(_calls(member))
            waiting += [each for each in calls if callable(getattr(cls, each, None))]
            if one not in calls:
                break  # It does not call the method of the next class.
    return found


def _calls(function: Callable[..., Any]) -> Iterator[str]:
    for one in chain(function):
        if isinstance(code := getattr(one, "__code__", None), CodeType):
            yield from _of_self(code)


def _of_self(code: CodeType) -> Iterator[str]:
    """Yield the names of the attributes that *code* reads from its first argument or from ``super()``."""
    own = code.co_varnames[0] if code.co_argcount else ""
    of_self = of_super = False
    for step in dis.get_instructions(code):
        if step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")):
            if of_self or of_super or step.opname.startswith("LOAD_SUPER"):
                yield str(step.argval)
            of_self = of_super = False
            continue
        of_super = step.argval == "super" or (of_super and step.opname.startswith(_CALLING))
        last = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
        of_self = bool(own) and step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and last == own
