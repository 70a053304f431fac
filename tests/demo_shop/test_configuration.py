from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from demo_shop.configuration import TTL, Configuration
from tests.flask_guard import site_locks

ROOT = Path(__file__).resolve().parents[2]


def test_what_one_process_tells_another_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Configuration(fence=True, commit_pause=0.5, stall="django-1:read:8000")
    for name, text in told.to_environment().items():
        monkeypatch.setenv(name, text)
    assert Configuration.from_environment() == told


@pytest.mark.parametrize(
    ("text", "fence"), [("1", True), ("yes", True), ("True", True), ("0", False), ("off", False), ("", False)]
)
def test_the_fence_is_switched_as_people_write_it(
    text: str, fence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_FENCE", text)
    assert Configuration.from_environment().distlock()["default"].get("FENCE", False) is fence


def test_a_switch_that_is_neither_on_nor_off_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_FENCE", "maybe")
    with pytest.raises(SystemExit, match="'maybe' is neither on nor off: write 1 or 0"):
        Configuration.from_environment()


SETTINGS = {
    "django": "from demo_shop.django_shop.settings import DISTLOCK",
    "flask": "from demo_shop.flask_shop.app import app; DISTLOCK = app.config['DISTLOCK']",
}


def effective(framework: str, **environment: str) -> dict[str, dict[str, object]]:
    """What the shop's own process has as ``DISTLOCK``."""
    done = subprocess.run(
        [sys.executable, "-c", f"{SETTINGS[framework]}; import json; print(json.dumps(DISTLOCK))"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


#: Where a reader meets the settings of each framework first.
FIRST_SETTINGS = {
    "django": ("README.md", r"^DISTLOCK = (\{.*\})$"),
    "flask": ("docs/start/flask.md", r"""^app\.config\["DISTLOCK"\] = (\{.*\})$"""),
}


def first_settings(framework: str, folder: str) -> dict[str, dict[str, object]]:
    page, line = FIRST_SETTINGS[framework]
    found = re.search(line, (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert found is not None, f"{page} has no settings"
    settings: dict[str, dict[str, object]] = eval(
        found[1], {"BASE_DIR": folder, "app": SimpleNamespace(instance_path=folder)}
    )
    return settings


@pytest.mark.parametrize("framework", SETTINGS)
def test_the_shop_sets_what_the_readme_sets_and_nothing_else(framework: str, tmp_path: Path) -> None:
    in_django, in_flask = (first_settings(each, str(tmp_path)) for each in SETTINGS)
    assert in_django == in_flask
    # As the load test starts an instance: every field of the configuration is told.
    shop = Configuration(
        lock=f"file://{tmp_path}/locks", guard="distributed", database=f"sqlite:///{tmp_path / 'shop'}"
    )
    assert effective(framework, **shop.to_environment()) == in_django


def test_the_lifetime_of_a_lock_is_that_of_the_readme() -> None:
    usual = site_locks("redis://localhost").namespace.terms
    assert (usual.ttl, Configuration().lock_ttl) == (TTL, TTL)


def test_the_django_shop_loads_nothing_of_the_flask_shop() -> None:
    """An instance is started hundreds of times in a test run: each library takes a quarter of a second."""
    script = (
        "import sys, demo_shop.django_shop.wsgi; print({'flask', 'sqlalchemy', 'redis'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stdout + done.stderr
