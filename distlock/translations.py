"""What other libraries call our words: passing theirs gives an error that translates."""

from __future__ import annotations

from collections.abc import Iterable

#: Their word -> what to write.
TRANSLATIONS = {
    "blocking_timeout": "timeout= (the longest wait, in seconds)",
    "expire": "ttl= (lifetime without renewal, in seconds)",
    "auto_renewal": "nothing: every lock is renewed until it is released or max_hold is over",
    "sleep": "nothing: waiters are woken, they do not poll",
    "thread_local": "nothing: a grant may be released by any thread",
    "retry_interval": "nothing: waiters are woken, they do not poll",
    "key_prefix": "prefix=",
    "wait": "timeout= (the longest wait, in seconds)",
    "lease_time": "ttl= (lifetime without renewal, in seconds)",
}


def refuse_unknown(function: str, unknown: Iterable[str]) -> None:
    for word in unknown:
        if word in TRANSLATIONS:
            raise TypeError(f"{function}() has no {word!r}. Here that is {TRANSLATIONS[word]}.")
        raise TypeError(f"{function}() has no argument {word!r}.")
