from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from loadtest.servers.lock_services import open_lock_service

#: Where a lock service is: ``redis`` or ``zookeeper``.
Services = Callable[[str], str]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Servers that nobody else uses, each started when first asked for: exhibits leave things behind."""
    with ExitStack() as running:

        @cache
        def start(service: str) -> str:
            directory: Path = tmp_path_factory.mktemp(service)
            return running.enter_context(open_lock_service(service, directory))

        yield start
