"""One real lock for each name, shared by the threads of this process, and by nobody else."""

from __future__ import annotations

import threading
from collections import defaultdict

_making = threading.Lock()
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


def process_lock(name: str) -> threading.Lock:
    # Two threads that make the first lock of a name at once would each get their own.
    with _making:
        return _locks[name]
