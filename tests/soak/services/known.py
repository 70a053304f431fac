"""The lock services that a soak knows, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.soak.services.databases import open_mysql, open_postgresql
from tests.soak.services.file import open_file
from tests.soak.services.proxy import Proxy
from tests.soak.services.redis_servers import open_redis, open_redlock
from tests.soak.services.service import Service, behind
from tests.soak.services.watched import open_cluster, open_sentinel
from tests.soak.services.zookeeper import open_ensemble_of_three, open_zookeeper

SERVICES: dict[str, Callable[[Path], AbstractContextManager[Service]]] = {
    "cluster": open_cluster,
    "ensemble": open_ensemble_of_three,
    "file": open_file,
    "mysql": open_mysql,
    "postgresql": open_postgresql,
    "redis": open_redis,
    "redlock": open_redlock,
    "sentinel": open_sentinel,
    "zookeeper": open_zookeeper,
}
#: The lock services whose clients connect to the addresses of their URL, and to no others.
BEHIND_A_PROXY = frozenset({"ensemble", "mysql", "postgresql", "redis", "redlock", "zookeeper"})


@contextmanager
def open_service(name: str, directory: Path) -> Iterator[Service]:
    """Start the lock service *name*, and a proxy before it where its clients would use one."""
    with SERVICES[name](directory) as service:
        if name in BEHIND_A_PROXY:
            with Proxy(service.url) as proxy:
                yield behind(proxy, service)
        else:
            yield service
