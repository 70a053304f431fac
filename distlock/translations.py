"""What other libraries call our words: passing theirs gives an error that translates."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

#: Their word -> what to write.
TRANSLATIONS = {
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


def refuse_unknown(function: str, unknown: Iterable[str], known: Collection[str] = ()) -> None:
    """Raise TypeError for the first of *unknown*, words that *function* does not have.

    The message has the one of *known* that was most likely meant.
    """
    for word in unknown:
        if word in TRANSLATIONS:
            raise TypeError(f"{function}() has no {word!r}. Here that is {TRANSLATIONS[word]}.")
        # As the keys of the settings are compared: 'time_out' and 'TIMEOUT' are 'timeout'.
        close = difflib.get_close_matches(word.lower(), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{function}() has no argument {word!r}.{hint}")
