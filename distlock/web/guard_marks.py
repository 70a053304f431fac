"""Marks the functions that ``@distributed_lock(...)`` decorates, finds the marks, and refuses misuse.

Tracebacks of errors in its arguments end with the site's own line: `options_here` finds it on the stack.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack
from weakref import WeakKeyDictionary

from distlock.errors import ConfigurationError
from distlock.web.guard_options import GuardKeywords, GuardOptions, Methods, refuse_async
from distlock.web.names.bound_names import HIDDEN, BoundNames, where_of
from distlock.web.names.templates import NameSource

P = ParamSpec("P")
R = TypeVar("R")

#: The ``when`` of a rule. It gets the request and the view's arguments. If it returns a false value, the
#: request is not locked.
When = Callable[..., object]

#: The attribute of a decorated function that has its `Guarded`. `functools.wraps` copies it to the functions
#: that decorators above return.
_MARK = "__distlock__"

#: The attribute of the decorator itself that has its options.
_OPTIONS = "__distlock_options__"

#: The attribute of the decorator itself that has the text of the error if it takes the place of a view.
_UNUSED = "__distlock_unused__"


class Guarded:
    """One guarded function: the function, the options of its guard, and the names of its locks.

    *methods*: the HTTP methods that a guard for writing locks if its options name none; None: all, or on a
    whole view class its usual ones. *when*: see `When`.
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
        #: The guard directly below, if the two form a stack: see `distlock.web.guard_stack`.
        self.below: Guarded | None = None
        #: Whether another guard has it as `below`.
        self.is_below = False
        #: Whether it locks a request, by view and then by HTTP method: the cache of `flask_distlock`.
        self.locks_at: WeakKeyDictionary[Any, dict[str, bool | None]] = WeakKeyDictionary()
        #: The views whose streamed responses were logged.
        self.streams_logged: set[str] = set()

    def locks_method(self, method: str | None) -> bool:
        """Return whether requests with this HTTP method are locked."""
        return self.methods is None or method in self.methods

    def refuse_methods(self) -> None:
        """Raise `ConfigurationError` if it has methods=, because this call is no request to a view."""
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


def outermost_guard(function: Callable[..., Any]) -> Guarded | None:
    """Return the outermost guard of *function*; None: there is none, or a decorator above hides it."""
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
    """Yield the functions in the closure of *function*. A decorator keeps there what it decorates."""
    cells = getattr(function, "__closure__", None)
    # *function* may be a test's stand-in for a view, whose attributes may have any type.
    for cell in cells if isinstance(cells, tuple) else ():
        try:
            content = cell.cell_contents
        except (AttributeError, ValueError):
            continue
        if inspect.isfunction(content) or isinstance(content, functools.partial):
            yield content


def refuse_hidden(guarded: Guarded, view: Callable[..., Any]) -> None:
    """Raise `ConfigurationError` if a decorator without `functools.wraps` hides *guarded* in *view*.

    Only functions that `passes_on` accepts are searched, because decorators return them. Another function may
    be a view that calls a guarded helper.
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
    """Return whether *function*, which may be a bound method, has ``*args`` or ``**kwargs``.

    Its code decides, because a decorator may show another signature.
    """
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return bool(flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))


def refusing_as_view(
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
                raise with_traceback_at(sys._getframe(1), error) from None
        raise ConfigurationError(options.unused)

    if not options.names.templates:
        # Flask names the endpoint after it, and would complain about two endpoints of one name.
        only_functions.__name__ = getattr(options.names.sources[0], "__name__", only_functions.__name__)
    setattr(only_functions, _OPTIONS, options)
    setattr(only_functions, _UNUSED, options.unused)
    return only_functions


def with_traceback_at(line: FrameType, error: Exception) -> Exception:
    """Return *error* with a traceback that ends at the site's own *line*, which Python then prints last."""
    return error.with_traceback(TracebackType(None, line, line.f_lasti, line.f_lineno))


def options_of(decorator: object) -> GuardOptions | None:
    """Return the options of *decorator*, if ``distributed_lock(...)`` made it."""
    options = getattr(decorator, _OPTIONS, None)
    return options if isinstance(options, GuardOptions) else None


def unused(view: object) -> str | None:
    """Return the text of the error for a *view* that is only a decorator; None: it is not."""
    problem = getattr(view, _UNUSED, None)
    return problem if isinstance(problem, str) else None


def refuse_unguardable(function: Any) -> None:
    """Raise `ConfigurationError` for a ``staticmethod``, a ``classmethod``, or a generator function."""
    if isinstance(function, staticmethod | classmethod):
        word, where = type(function).__name__, where_of(function.__func__)
        raise ConfigurationError(f"@distributed_lock is above @{word} on {where}: write @{word} above it.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"{where_of(function)} is a generator: its body would run after the lock is released. Decorate a "
            "function that does the work and returns."
        )


#: The packages whose frames `this_code` skips.
_BETWEEN = frozenset({"distlock", "django_distlock", "flask_distlock", *sys.stdlib_module_names})


def this_code() -> str:
    """Return, for messages, the line of code that has called distlock, if it is on this thread's stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame = frame.f_back
    return "This code" if frame is None else f"{frame.f_code.co_filename}, line {frame.f_lineno}: this code"


def options_here(names: Sequence[NameSource], **words: Unpack[GuardKeywords]) -> GuardOptions:
    """Return the options of a decorator. Errors name the line of the caller's caller, where it is written."""
    line = sys._getframe(2)
    try:
        return GuardOptions(names, **words)
    except ConfigurationError as error:
        place = f"{line.f_globals.get('__name__', '?')}, line {line.f_lineno}"
        raise with_traceback_at(line, ConfigurationError(f"{place}: {error}")) from None
    except TypeError as error:
        raise with_traceback_at(line, error) from None


def reached(cls: type, name: str) -> set[str]:
    """Return the methods of *cls* that a call of its method *name* may call, including *name*."""
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
                break  # It does not call super(), so the method of the next class does not run.
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
        # Between ``super`` and the attribute that is read from it stand only its arguments and its call.
        of_super = of_super or step.argval == "super"
        last = step.argval[-1] if isinstance(step.argval, tuple) and step.argval else step.argval
        of_self = bool(own) and step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and last == own
