"""Inspects class-based views: their kind, the HTTP methods that they answer, and those that a guard locks.

Unless a guard names methods, every handler is locked, except those that only read by convention: `get`, a
`head` that is `get`, and the ``options()`` of the framework. A method without a handler gets the framework's
405 without a lock, so that a client can't hold the lock with a method that it made up. If code of the site
may answer before the handler, every method but GET is locked.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from types import CodeType
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.views import View

from distlock.errors import ConfigurationError
from distlock.terms import READ
from distlock.web.guard_marks import Guarded, When, chain, enclosed, guards_of
from distlock.web.guard_options import ALL_BUT_GET, GuardOptions, Methods, in_words
from django_distlock.private import decorators_of, is_dummy, opt_out, opted_out
from django_distlock.private_of_others import function_of_api_view, is_api_view, is_rest

#: Methods of a view that return before its handler runs.
TOO_EARLY = ("setup", "initial", "initialize_request", "check_permissions", "check_throttles")


def view_class(callback: Any) -> Any:
    """Return the view class behind *callback*, or None if ``as_view()`` did not make *callback*."""
    # Callbacks of REST framework's view sets have only the attribute `cls`.
    cls = getattr(callback, "view_class", None) or getattr(callback, "cls", None)
    return cls if isinstance(cls, type) and issubclass(cls, View) else None


def never_awaited(cls: Any, names: Iterable[str]) -> bool:
    """Return whether REST framework's dispatch() of *cls* calls async methods of *names* without await."""
    own = is_rest(cls) and inspect.unwrap(cls.dispatch).__module__.startswith("rest_framework.")
    return own and any(iscoroutinefunction(getattr(cls, name, None)) for name in names)


def guarded_callback(
    callback: Callable[..., Any], options: GuardOptions, *, methods: Methods | None, when: When | None
) -> Guarded:
    """Return a guard of *callback*. Raises `ConfigurationError` if the guard would never lock.

    *methods*: what to lock if *options* names no methods. None: all; any other value: the class's usual ones.
    """
    cls = view_class(callback)
    usual = None if methods is None else usual_methods_of(callback)

    def view(request: Any, *args: Any, **kwargs: Any) -> Any:
        # Names are bound by this signature. *callback* shows the signature of dispatch(), which it wraps.
        return callback(request, *args, **kwargs)

    # If *callback* is guarded itself, its guard opens the transactions.
    opt_out(view, opted_out(callback))
    guarded = Guarded(view, options, methods=usual, when=when)
    guarded.where = f"{cls.__module__}.{cls.__name__ if is_api_view(cls) else cls.__qualname__}"
    refuse_useless(guarded, cls, methods_of(callback))
    return guarded


def guards_below_api_view(view: Callable[..., Any]) -> list[Guarded]:
    """Return the guards that stand below ``@api_view`` on *view*, which hides them."""
    cls = view_class(view)
    if cls is None or not is_api_view(cls):
        return []
    return guards_of(function_of_api_view(cls))


def refuse_own_dispatch(guarded: Guarded, cls: Any) -> None:
    """Raise `ConfigurationError` if dispatch() of *cls*, a REST view, never calls that of REST framework.

    Only the latter calls the guarded handler.
    """
    having: list[type] = [base for base in cls.__mro__ if "dispatch" in vars(base)]
    for number, above in enumerate(having):
        dispatch = vars(above)["dispatch"]
        if inspect.unwrap(dispatch).__module__.startswith("rest_framework."):
            return
        theirs = next(base for base in having if base.__module__.startswith("rest_framework."))
        if not calls_super(dispatch, "dispatch", having[number + 1 : having.index(theirs) + 1]):
            raise ConfigurationError(
                f"{above.__module__}.{above.__qualname__} has a dispatch() that does not call that of REST "
                f"framework, after whose permissions {guarded.where} would be locked: requests would pass "
                "the lock by. Call super().dispatch() in it, or write 'with locks.lock(…):' in it instead of "
                f"@{guarded.options}."
            )


def methods_of(view: Callable[..., Any]) -> set[str] | None:
    """Return the HTTP methods that *view* answers; None if they are unknown, as of a function."""
    cls = view_class(view)
    if cls is None:
        return None
    known = _method_names(view, cls)
    handled = _actions(view) or [name for name in known if hasattr(cls, name)]
    return _if_known({name.upper() for name in handled if name in known})


def methods_of_view(view: View) -> set[str] | None:
    """Return the HTTP methods that the class of *view* answers; None if unknown, as of a view set."""
    if hasattr(view, "action_map"):
        return None
    return _if_known({name.upper() for name in view.http_method_names if hasattr(view, name)})


def handlers(view: View) -> dict[str, set[str]]:
    """Return the methods of *view* that answer requests: name -> HTTP methods."""
    found = {name: {name.upper()} for name in view.http_method_names if hasattr(view, name)}
    for method, action in getattr(view, "action_map", {}).items():
        found.setdefault(action, set()).add(method.upper())
    if "get" in found:
        found["get"].add("HEAD")
    return found


def answering(view: Any) -> dict[str, set[str]]:
    """Return the methods of the class of *view* that may answer requests to it: name -> HTTP methods."""
    actions = _actions(view) or {method: method.lower() for method in methods_of(view) or ()}
    found: dict[str, set[str]] = {}
    for method, name in actions.items():
        if hasattr(view_class(view), name):
            found.setdefault(name, set()).add(method.upper())
    return found


def _method_names(view: Any, cls: Any) -> Sequence[str]:
    """Return the HTTP methods, in lower case, for which *view*, made by *cls*, looks up a handler."""
    initkwargs = getattr(view, "view_initkwargs", None) or getattr(view, "initkwargs", None) or {}
    names: Sequence[str] = initkwargs.get("http_method_names", cls.http_method_names)
    return names


def _actions(view: Any) -> dict[str, str]:
    """Return the actions of a view set of REST framework, such as ``{"post": "reduce_stock"}``; else {}."""
    return getattr(view, "actions", None) or {}


def on_method(guarded: Guarded, cls: Any, name: str) -> Guarded:
    """Return *guarded*, a guard on the method *name* of *cls*, with the function that it really guards.

    `method_decorator` marks the method with a guard on a dummy function. An equal guard on the method
    replaces that one.
    """
    if not is_dummy(guarded.function):
        return guarded
    on_class = Guarded(getattr(cls, name), guarded.options)
    on_class.where = f"{cls.__module__}.{cls.__qualname__}.{name}"
    return on_class


def guards_on(cls: Any, name: str) -> Iterator[tuple[type, Guarded]]:
    """Yield the guards on the method *name* of *cls* and its bases, each with the class that defines it."""
    for base in cls.__mro__:
        if (function := vars(base).get(name)) is not None:
            for guarded in guards_of(function):
                yield base, on_method(guarded, base, name)


def refuse_useless(
    guarded: Guarded, cls: type, taken: Collection[str] | None, usual: Methods | None = None
) -> None:
    """Raise `ConfigurationError` if *guarded* locks none of the methods *taken*, which *cls* answers.

    *taken*: None: they are unknown, and nothing is raised. *usual*: the methods that *guarded* locks if it
    names none.
    """
    methods = usual if guarded.methods is None else guarded.methods
    if taken is None or methods is None:
        return
    # HEAD runs what GET runs.
    if not methods.isdisjoint(frozenset(taken) | ({"HEAD"} if "GET" in taken else frozenset())):
        return
    known = sorted(set(taken) - {"HEAD", "OPTIONS"})
    name = f"{cls.__module__}.{cls.__qualname__}"
    locked = in_words(methods)
    if guarded.options.methods is None and guarded.options.mode != READ:
        locked = "all that is not read with GET"
    problem = f"{name} is locked for {locked}, but answers only {', '.join(known)}"
    if known == ["GET"] or guarded.options.mode == READ:
        line = f"@{with_methods(guarded.options, *known)}"
    else:
        line = f"@{without_methods(guarded.options)}"
    raise ConfigurationError(f"{problem}: it would never be locked. Write {line}, or leave it out.")


def refuse_useless_method(guarded: Guarded, answers: set[str]) -> None:
    """Raise `ConfigurationError` if *guarded* locks none of the HTTP methods that its method *answers*."""
    methods = guarded.options.locked_methods(None)
    if methods is not None and methods.isdisjoint(frozenset(answers)):
        if guarded.options.methods is None:
            only = ", ".join(sorted(answers))
            raise ConfigurationError(
                f'{guarded.where} answers {only}, and mode="shared" locks GET and HEAD unless it is told '
                f"otherwise: write @{with_methods(guarded.options, *answers)}."
            )
        raise ConfigurationError(
            f"{guarded.where} answers {', '.join(sorted(answers))}: with methods= for other ones it would "
            "never lock. Leave that out."
        )


def with_methods(options: GuardOptions, *methods: str) -> str:
    """Return the guard *options* as the user would write it, with ``methods=`` for these HTTP methods."""
    named = ", ".join(f'"{method}"' for method in sorted(set(methods) - {"HEAD"}) or methods)
    return f"{without_methods(options)[:-1]}, methods=[{named}])"


def without_methods(options: GuardOptions) -> str:
    """Return the guard *options* as the user would write it, without ``methods=``."""
    return re.sub(r", methods=\[.*?\]", "", str(options))


def _if_known(methods: set[str]) -> set[str] | None:
    # A class that answers in its own `dispatch` may have no handlers.
    return methods if methods - {"OPTIONS", "HEAD"} else None


#: The packages whose code is not the site's own.
_FRAMEWORKS = (
    "django",
    "rest_framework",
    "distlock",
    "django_distlock",
    "asgiref",
    "functools",
    "contextlib",
)

#: The methods that may answer requests before a handler is looked up.
_DECIDING = ("dispatch", "http_method_not_allowed")

#: The methods that may add handlers to a view which its class does not have.
_ADDING = ("setup", "__init__", "__getattr__", "__getattribute__")


def usual_methods_of(callback: Any) -> Methods:
    """Return the methods that a guard around *callback*, made by ``as_view()``, locks if it names none."""
    cls = view_class(callback)
    handlers = {name: getattr(cls, name) for name in _method_names(callback, cls) if hasattr(cls, name)}
    handlers |= {method: getattr(cls, action, None) for method, action in _actions(callback).items()}
    return _usual(cls, handlers, shown=all(map(is_of_framework, chain(callback))))


def locks_usually(view: View, method: str) -> bool:
    """Return whether a guard on ``dispatch()`` of *view* that names no methods locks *method*."""
    name = method.lower()
    if method not in {"GET", "HEAD", "OPTIONS"} and name in view.http_method_names and hasattr(view, name):
        return True
    return method in usual_methods_in(view)


def usual_methods_in(view: View) -> Methods:
    """Return the methods that a guard on ``dispatch()`` of *view* locks, if the guard names none."""
    names = view.http_method_names
    return _usual(type(view), {name: getattr(view, name) for name in names if hasattr(view, name)})


def overriding(cls: type, names: Iterable[str]) -> list[type]:
    """Return the classes of the MRO of *cls* that define one of *names* with code of the site."""
    bases = cls.__mro__[:-1]
    return [
        base
        for number, base in enumerate(bases)
        if any(name in vars(base) and not _is_of_framework_at(bases[number:], name) for name in names)
    ]


def _is_of_framework_at(bases: Sequence[type], name: str) -> bool:
    """Return whether the method *name* of the first of *bases* adds no code of the site to its base's."""
    inherited = [vars(base).get(name) for base in bases[1:]]
    member = vars(bases[0])[name]
    return callable(member) and all(
        map(is_of_framework, takewhile(lambda one: one not in inherited, chain(member)))
    )


def is_of_framework_in(member: object) -> bool:
    """Return whether *member*, a method, and all functions that it wraps are code of `_FRAMEWORKS`."""
    return callable(member) and all(map(is_of_framework, chain(member)))


def is_of_framework(function: Any) -> bool:
    """Return whether *function* itself, apart from what it wraps, is code of `_FRAMEWORKS`."""
    # functools.wraps() copies __module__, but not the globals.
    code = getattr(function, "__globals__", None)
    module = type(function).__module__ if code is None else code.get("__name__", "")
    if not is_framework(module):
        return False
    return all(map(is_of_framework, decorators_of(function)))


def is_framework(module: str) -> bool:
    """Return whether *module* is in one of `_FRAMEWORKS`."""
    return module.partition(".")[0] in _FRAMEWORKS


def _usual(cls: Any, handlers: Mapping[str, object], *, shown: bool = True) -> Methods:
    """Return the methods that a guard locks if it names none.

    *handlers*: the handler of each method. *shown*: whether no code of the site wraps the view.
    """
    if not shown or overriding(cls, (*_DECIDING, *_ADDING)):
        return ALL_BUT_GET
    exempt = {"GET"}
    head, get = (getattr(one, "__func__", one) for one in (handlers.get("head"), handlers.get("get")))
    # The function under @api_view may treat HEAD and GET differently.
    if head in (None, get) and not is_api_view(cls):
        exempt.add("HEAD")
    if is_of_framework_in(handlers.get("options")):
        exempt.add("OPTIONS")
    return frozenset(name.upper() for name in handlers) - exempt


_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")


def overridden(cls: type, name: str) -> Iterator[tuple[type, type, Guarded]]:
    """Yield the guards on the method *name* of bases of *cls* that an override does not call.

    Each comes with the class whose override does not call the next method, and the class that has the guard.
    """
    mro = cls.__mro__
    above: list[int] = []
    for number, base in enumerate(mro):
        if name not in vars(base):
            continue
        if guards := guards_of(vars(base)[name]):
            for one in above:
                if not calls_super(vars(mro[one])[name], name, mro[one + 1 : number + 1]):
                    yield from ((mro[one], base, guarded) for guarded in guards)
                    return
            # This guard overrides the guards of further bases, on purpose.
            return
        above.append(number)


def calls_super(function: Any, name: str, bases: Sequence[type]) -> bool:
    """Return whether *function* seems to call the method *name* of one of *bases*, a slice of the MRO.

    ``super().render()`` does not call ``post``. ``super(Last, self)``, where ``Last`` is the last of *bases*,
    skips all of them.
    """
    codes = list(_codes(function, set()))
    # Without bytecode, as in a compiled module, assume that it does.
    if not any(code.co_code for code in codes):
        return True
    known = {word for code in codes for word in code.co_names}
    return any(_calls(code, name, bases, name in known) for code in codes)


def _codes(function: Callable[..., Any], seen: set[int]) -> Iterator[CodeType]:
    """Yield the code of *function*, of all that it wraps or encloses, and of the functions inside."""
    for one in chain(function):
        code = getattr(one, "__code__", None)
        if not isinstance(code, CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        yield from _within(code)
        for inner in enclosed(one):
            yield from _codes(inner, seen)


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)


def _calls(code: CodeType, name: str, bases: Sequence[type], later: bool) -> bool:
    names = [base.__name__ for base in bases]
    # If a class has the same name as its base, ``super(Name, self)`` names the class.
    last = names[-1] if f".{names[-1]}." not in f".{code.co_qualname}" else None
    # Whether the next attribute is looked up on a base, and whether that is by ``super``.
    of_base = of_super = False
    for step in dis.get_instructions(code):
        word = step.argval
        if step.opname.startswith(_ATTRIBUTE):
            if of_base and word == name:
                return True
            of_base = word in names and not (of_super and word == last)
            of_super = of_super and of_base
        elif step.opname.startswith("STORE_"):
            if of_base and later:
                # This may be `parent = super()`, with `parent.post()` later.
                return True
            of_base = of_super = False
        elif step.opname == "LOAD_CONST":
            if of_super and word == name:
                # This is `getattr(super(), "post")`.
                return True
        elif step.opname.startswith("LOAD_") and isinstance(word, str):
            if word == "super":
                of_base = of_super = True
            elif word in names:
                of_base = not (of_super and word == last)
            elif not of_super:
                of_base = False
    return False
