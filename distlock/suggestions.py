"""Suggestions in errors: what to install, where a name is to be imported from, which word was meant."""

from __future__ import annotations

import difflib
import dis
import sys
from collections.abc import Collection, Iterable, Sequence
from types import FrameType

#: Names that users may import from the wrong one of our packages, and the line that imports each.
_LINES = {
    "DistLock": "from flask_distlock import DistLock",
    "atomic": "from django_distlock import atomic (in Flask: from flask_distlock import transaction)",
    "distributed_lock": "from django_distlock import distributed_lock (or flask_distlock)",
    "transaction": "from flask_distlock import transaction (in Django: from django_distlock import atomic)",
}

#: The arguments of other libraries, and what to write instead.
ARGUMENTS_OF_OTHER_LIBRARIES = {
    "blocking_timeout": "timeout= (the longest wait, in seconds)",
    "blocking": "timeout=0 for blocking=False (leave it out to wait)",
    "expire": "ttl= (lifetime without renewal, in seconds)",
    "auto_renewal": "nothing: every lock is renewed until it is released or max_hold is over",
    "sleep": "nothing: waiters are woken, they do not poll",
    "thread_local": "nothing: a grant may be released by any thread",
    "retry_interval": "nothing: waiters are woken, they do not poll",
    "key_prefix": "prefix=",
    "wait": "timeout= (the longest wait, in seconds)",
    "lease_time": "ttl= (lifetime without renewal, in seconds)",
}


def install_hint(extra: str) -> str:
    """Return the sentence that names the command which installs *extra*."""
    # This package is on no package index, so pip would not find its bare name.
    return f"Run: pip install '/path/to/the/clone[{extra}]', or the same with the path of the wheel."


def unknown_name(package: str, name: str, core: Sequence[str] = ()) -> ImportError | AttributeError:
    """Return the error for a module-level `__getattr__`: *package* has no *name*.

    *core* are the public names of `distlock`. The error is an ImportError for a name of another one of our
    packages, and for a misspelt name in ``from package import name``, where Python would replace the text of
    an AttributeError.
    """
    module = sys.modules[package]
    if line := f"from distlock import {name}" if name in core else _LINES.get(name):
        return ImportError(f"{name} is not in {package}. Write: {line}", name=name)
    # Elsewhere, as in hasattr(), the error has to be an AttributeError. Python itself suggests a name then.
    if _imports(sys._getframe(2)):
        if meant := _meant(name, getattr(module, "__all__", ())):
            line = f"from {package} import {meant}"
        elif meant := _meant(name, (*core, *_LINES)):
            line = _LINES.get(meant, f"from distlock import {meant}")
        if meant:
            return ImportError(f"{name} is not in {package}. Did you mean: {line}", name=name)
    return AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)


def _imports(frame: FrameType) -> bool:
    """Return whether *frame* is in the middle of ``from … import …``."""
    return frame.f_code.co_code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def _meant(name: str, words: Sequence[str]) -> str | None:
    """Return the one of *words* that *name* most likely means; None if no word is close."""
    by_form = {word.casefold(): word for word in words}
    close = difflib.get_close_matches(name.casefold(), by_form, n=1, cutoff=0.75)
    return by_form[close[0]] if close else None


def refuse_unknown(function: str, unknown: Iterable[str], known: Collection[str] = ()) -> None:
    """Raise TypeError for the first of *unknown*, if any: arguments that *function* does not take.

    The message suggests one of *known*, or says what to write for an argument of another library.
    """
    for word in unknown:
        if word in ARGUMENTS_OF_OTHER_LIBRARIES:
            raise TypeError(
                f"{function}() has no {word!r}. Here that is {ARGUMENTS_OF_OTHER_LIBRARIES[word]}."
            )
        # Ignore the case, as for settings: 'TIMEOUT' is close to 'timeout'.
        close = difflib.get_close_matches(word.lower(), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{function}() has no argument {word!r}.{hint}")
