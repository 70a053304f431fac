"""The layers: arrows point down only. Lazy imports and ``importlib`` count, and imports for types too."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.imports import ANY, Import, circles, read

ROOT = Path(__file__).parents[1]
FACES = ("django_distlock", "flask_distlock")
EXPERIMENT = ("demo_shop", "loadtest", "bench")

GROUND = {
    "distlock.clock",
    "distlock.errors",
    "distlock.suggestions",
    "distlock.names",
    "distlock.numbers",
    "distlock.signal_safety",
    "distlock.terms",
}
CORE = {*GROUND, "distlock", "distlock.backends", "distlock.engine", "distlock.operate"}
SHARED = {*CORE, "distlock.fence", "distlock.metrics", "distlock.web"}
#: Each layer, and what of ours it may import. A module is in the longest one that its name begins with.
LAYERS: dict[str, set[str]] = {
    **dict.fromkeys(GROUND, GROUND),
    "distlock.backends": {*GROUND, "distlock.backends"},
    # Holds make grants, and who waits has an owner: what a caller sees of the engine.
    "distlock.engine": {
        *GROUND,
        "distlock.backends.base",
        "distlock.backends.inspectable",
        "distlock.backends.protocols",
        "distlock.engine",
        "distlock.grants.grant",
        "distlock.owner",
    },
    "distlock": CORE,
    "distlock.operate": CORE,
    "distlock.metrics": {*CORE, "distlock.metrics"},
    "distlock.fence": {*CORE, "distlock.fence"},
    # A race turns the detectors of stale writes on.
    "distlock.testing": {*CORE, "distlock.testing", "distlock.web.stale_writes"},
    "pytest_distlock": {"distlock", "distlock.testing"},
    "distlock.web": SHARED,
    "distlock.cli": {*SHARED, "distlock.cli"},
    "distlock.__main__": {*GROUND, "distlock.cli"},
    "django_distlock": {*SHARED, "distlock.cli", "django_distlock"},
    "flask_distlock": {*SHARED, "distlock.cli", "flask_distlock"},
    **{package: {*SHARED, *FACES, *EXPERIMENT} for package in EXPERIMENT},
}
#: What a layer may import that is neither ours nor Python's.
THIRD_PARTIES = {
    "distlock.backends.redis": {"hiredis"},
    "distlock.backends.sql.mysql": {"pymysql"},
    "distlock.backends.sql.mysql_connection": {"pymysql"},
    "distlock.backends.sql.postgresql": {"psycopg"},
    "distlock.backends.sql.postgresql_connection": {"psycopg"},
    "distlock.backends.zookeeper": {"kazoo"},
    "distlock.cli": {"click", "rich"},
    "distlock.metrics": {"opentelemetry", "prometheus_client"},
    "distlock.testing": {"pytest"},
    # Where the site has it loaded already.
    "distlock.testing.race_frameworks": {"django", "sqlalchemy"},
    "pytest_distlock": {"pytest"},
    "django_distlock": {"asgiref", "click", "django", "rest_framework"},
    # Where the site has it.
    "django_distlock.operate.toolbar": {"debug_toolbar", "django"},
    "flask_distlock": {"blinker", "click", "flask", "flask_login", "sqlalchemy", "werkzeug"},
}
#: These import what a site's settings name.
NAMED_IN_SETTINGS = {"distlock.backends.factory", "distlock.web.settings.problems"}


def layer_of(module: str, layers: Iterable[str] = LAYERS) -> str:
    """The one of *layers* that *module* is in: the longest; empty where there is none."""
    return max((layer for layer in layers if f"{module}.".startswith(f"{layer}.")), key=len, default="")


def is_fine(each: Import) -> bool:
    if each.imported == ANY:
        return each.importer in NAMED_IN_SETTINGS
    if layer := layer_of(each.imported):
        return not LAYERS[layer_of(each.importer)].isdisjoint({layer, each.imported})
    top = each.imported.partition(".")[0]
    if top in sys.stdlib_module_names or (top == "_typeshed" and each.for_types):
        return True
    return top in THIRD_PARTIES.get(layer_of(each.importer, THIRD_PARTIES), ())


def offences(root: Path, *packages: str) -> list[str]:
    return [str(each) for imports in read(root, *packages).values() for each in imports if not is_fine(each)]


def circles_in(root: Path, package: str, for_types: bool) -> list[list[str]]:
    """*package*: a folder. *for_types*: whether imports for types alone count."""
    return circles(
        {
            module: [each.imported for each in imports if for_types or not each.for_types]
            for module, imports in read(root, package).items()
        }
    )


def test_arrows_point_down_only() -> None:
    assert not offences(ROOT, "distlock", *FACES, "pytest_distlock")


@pytest.mark.parametrize("package", [*FACES, "distlock/web"])
def test_no_module_comes_back_to_itself(package: str) -> None:
    assert not circles_in(ROOT, package, for_types=True)


@pytest.mark.parametrize("package", ["distlock", *EXPERIMENT])
def test_circles_elsewhere_are_of_types_only(package: str) -> None:
    assert not circles_in(ROOT, package, for_types=False)


PLANTED = {
    "up": ("distlock/locks/lock.py", "from distlock.web.guard import Guard"),
    "up, in a function": ("distlock/fence/stamps.py", "def late():\n    import distlock.web.guard"),
    "up, for types": (
        "distlock/grants/grant.py",
        "if TYPE_CHECKING:\n    from django_distlock.conf import settings",
    ),
    "up, by importlib": ("distlock/grants/grant.py", "importlib.import_module('django_distlock.conf')"),
    "up, as somebody says": ("distlock/grants/grant.py", "importlib.import_module(module)"),
    "sideways": ("flask_distlock/rules.py", "from django_distlock.rules import applying"),
    "past the protocol": ("distlock/engine/hold.py", "from distlock.backends.memory import MemoryBackend"),
    "a framework": ("distlock/web/guard.py", "from django.db import connections"),
    "a client of another service": ("distlock/backends/redis/pool.py", "import kazoo.client"),
    "relative": ("distlock/locks/lock.py", "from .grant import Grant"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_arrow_is_found(planted: str, tmp_path: Path) -> None:
    file, line = PLANTED[planted]
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"import math\n{line}\n")
    assert len(offences(tmp_path, file.partition("/")[0])) == 1


@pytest.mark.parametrize("how", ["from package.one import it", "def late():\n    from package import one"])
def test_a_planted_circle_is_found(how: str, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/one.py").write_text("import package.two")
    (tmp_path / "package/two.py").write_text(how)
    assert circles_in(tmp_path, "package", for_types=False) == [["package.one", "package.two"]]


def test_a_circle_of_types_is_told_from_others(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/one.py").write_text("import package.two")
    (tmp_path / "package/two.py").write_text("if TYPE_CHECKING:\n    import package.one")
    assert circles_in(tmp_path, "package", for_types=True)
    assert not circles_in(tmp_path, "package", for_types=False)
