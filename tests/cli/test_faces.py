"""``manage.py distlock`` and ``flask distlock``: the same commands, with the settings of the site."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from flask import Flask
from flask_sqlalchemy import SQLAlchemy

import distlock
from django_distlock.conf import clients as django_clients
from flask_distlock import DistLock
from flask_distlock.commands import command_of
from tests.cli.conftest import PATIENCE, until
from tests.databases import Databases

Command = Callable[..., tuple[int, str]]

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[2]


@pytest.fixture
def setting() -> dict[str, Any]:
    url = f"memory://{secrets.token_hex(4)}"
    first = {"LOCATION": url, "PREFIX": "shop", "MAX_WAITERS": 10, "FENCE": True}
    others = {"other": {"LOCATION": url, "PREFIX": "other"}, "rows": {"BACKEND": "database"}}
    return {"default": first, **others, "none": {"BACKEND": "dummy"}}


@pytest.fixture
def django(settings: Any, setting: dict[str, Any]) -> Command:
    settings.DISTLOCK = setting

    def command(*words: str) -> tuple[int, str]:
        out = StringIO()
        try:
            call_command("distlock", *words, stdout=out)
        except CommandError as error:
            return error.returncode, out.getvalue() + str(error)
        except SystemExit as error:
            return int(error.code or 0), out.getvalue()
        return 0, out.getvalue()

    return command


@pytest.fixture
def flask(setting: dict[str, Any], tmp_path: Path) -> Iterator[Command]:
    app = Flask(__name__)
    app.config.from_mapping(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db", DISTLOCK=setting)
    database = SQLAlchemy(app)
    locks = DistLock(app)

    def command(*words: str) -> tuple[int, str]:
        result = app.test_cli_runner().invoke(args=["distlock", *words])
        return result.exit_code, result.output

    command("create-table")
    yield command
    with app.app_context():
        database.engine.dispose()
        locks.close()


@pytest.fixture(params=["django", "flask"])
def command(request: pytest.FixtureRequest) -> Command:
    made: Command = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def grant(setting: dict[str, Any]) -> Iterator[distlock.Grant]:
    """What another process of the site holds."""
    locks = distlock.connect(setting["default"]["LOCATION"], prefix="shop")
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    yield grant
    locks.close()


def test_the_settings_say_where_the_locks_are(command: Command, grant: distlock.Grant) -> None:
    code, said = command("show", "product_1")
    assert code == 0
    assert "product_1 is held by process" in said
    assert f"distlock break --fence 1:{grant.fence.number} product_1\n" in said
    assert command("show", "product_1", "--alias", "other") == (0, "product_1 is free.\n")
    assert command("show", "product_1", "--prefix", "other") == (0, "product_1 is free.\n")
    assert command("show", "a", "--url", "memory://elsewhere", "--prefix", "shop") == (0, "a is free.\n")


def test_the_line_to_type_names_the_app(tmp_path: Path) -> None:
    (tmp_path / "shop app.py").write_text(
        "from flask import Flask\n"
        "from flask_distlock import DistLock\n"
        "app = Flask(__name__)\n"
        f"app.config['DISTLOCK'] = 'file://{tmp_path}/locks'\n"
        "locks = DistLock(app)\n"
    )
    with closing(distlock.connect(f"file://{tmp_path}/locks")) as locks, locks.lock("product_1"):
        done = subprocess.run(
            [sys.executable, "-m", "flask", "--app", "shop app.py", "distlock", "show", "product_1"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert "To break it: flask --app 'shop app.py' distlock break --fence 1:" in done.stdout, done.stderr


def test_the_line_to_type_of_manage_py_has_its_settings(tmp_path: Path) -> None:
    with closing(distlock.connect(tmp_path.as_uri(), prefix="two")) as locks, locks.lock("-x"):
        words = ("show", "--url", tmp_path.as_uri(), "--prefix", "two", "--", "-x")
        at_url = manage(*words).stdout
    assert re.search(
        rf"\nTo break it: distlock break --url {tmp_path.as_uri()} --prefix two --fence 1:\d+ -- -x\n", at_url
    )


def test_a_stuck_lock_is_freed_in_one_command(command: Command, grant: distlock.Grant) -> None:
    assert command("break", "product_1", "--yes")[0] == 0
    assert command("show", "product_1") == (0, "product_1 is free.\n")
    assert command("break", "product_1", "--yes")[0] == 1


@pytest.mark.parametrize("debug", [True, False])
def test_in_debug_mode_the_423_names_the_holder_and_the_line_to_type(tmp_path: Path, debug: bool) -> None:
    app = Flask(__name__)
    app.config.from_mapping(DISTLOCK=tmp_path.as_uri())
    app.debug = debug
    locks = DistLock(app)

    @app.post("/reduce/<int:id>")
    @locks.distributed_lock("product_<id>", timeout=0)
    def reduce(id: int) -> str:
        return "sold"

    held, end = threading.Event(), threading.Event()

    def slow_import() -> None:
        with app.app_context(), locks.lock("product_1"):
            held.set()
            end.wait(PATIENCE)

    holder = threading.Thread(target=slow_import)
    holder.start()
    assert held.wait(PATIENCE)
    with app.app_context():
        until(lambda: bool(list(locks["default"].list())))
    answer = app.test_client().post("/reduce/1")
    assert answer.status_code == 423
    line = f"see how to break it: flask --app {__name__} distlock show product_1"
    for part in (".slow_import (test_faces.py:", line):
        assert (part in answer.text) is debug
    end.set()
    holder.join(PATIENCE)
    with app.app_context():
        locks.close()


@pytest.mark.parametrize(
    ("import_name", "environment", "typed"),
    [
        ("app", None, "flask distlock"),
        ("wsgi", None, "flask distlock"),
        ("__main__", None, "flask distlock"),
        ("shop", "shop:make()", "flask distlock"),
        ("shop", None, "flask --app shop distlock"),
    ],
)
def test_flask_is_told_of_an_app_that_it_does_not_find(
    monkeypatch: pytest.MonkeyPatch, import_name: str, environment: str | None, typed: str
) -> None:
    monkeypatch.delenv("FLASK_APP", raising=False)
    if environment:
        monkeypatch.setenv("FLASK_APP", environment)
    assert command_of(Flask(import_name, root_path="/")) == typed


def test_the_line_to_type_of_a_time_out_is_that_of_the_site(settings: Any, tmp_path: Path) -> None:
    settings.DISTLOCK = {alias: {"LOCATION": tmp_path.as_uri()} for alias in ("default", "other")}
    lines = [django_clients[alias].namespace.typed for alias in ("default", "other")]
    assert [line and line.line("show", "-x y") for line in lines] == [
        "python manage.py distlock show -- '-x y'",
        "python manage.py distlock show --alias other -- '-x y'",
    ]


def test_exit_codes_and_errors_come_through(command: Command) -> None:
    assert command("run", "a", "--", "sh", "-c", "exit 3")[0] == 3
    code, said = command("show", "a", "--alias", "nowhere")
    assert code == 2
    assert "DISTLOCK has no alias 'nowhere'" in said
    assert command("nonsense")[0] == 2
    assert "--threads" in command("doctor", "--help")[1]


def test_no_line_of_the_list_of_commands_is_cut_short(flask: Command) -> None:
    code, said = flask("--help")
    assert code == 0
    lines = said.partition("\nCommands:\n")[2].splitlines()
    assert "list" in [line.split()[0] for line in lines]
    assert [line for line in lines if line.endswith("...")] == []


def test_the_doctor_looks_at_the_settings_and_the_table_of_the_fence(command: Command) -> None:
    code, said = command("doctor", "--json", "--threads", "16")
    assert code == 0, said
    found = {one["about"]: one for one in json.loads(said)}
    assert found["threads"]["said"] == "10 of 16 threads of a process may wait for one name."
    assert found["fence table"]["said"].startswith("It has 0 rows, 0 of names ")
    found = {one["about"]: one for one in json.loads(command("doctor", "--json", "--threads", "8")[1])}
    assert found["threads"]["level"] == "warning"
    assert "MAX_WAITERS to 6" in found["threads"]["remedy"]


def test_rows_that_are_locks_have_no_lock_service(command: Command) -> None:
    code, said = command("doctor", "--alias", "rows")
    assert code == 0, said
    assert "There is no lock service: the locks are rows of the site's database." in said
    code, said = command("show", "product_1", "--alias", "rows")
    assert code == 2
    assert "sqlite" in said.lower()
    code, said = command("run", "--alias", "rows", "a", "--", "true")
    assert code == 2
    assert "'distlock run' needs a lock service" in said


def test_rows_without_their_table_are_told_with_what_makes_it(
    databases: Databases, setting: dict[str, Any]
) -> None:
    app = Flask(__name__)
    url = databases("postgresql", "no_rows_yet").replace("postgresql:", "postgresql+psycopg:")
    app.config.from_mapping(SQLALCHEMY_DATABASE_URI=url, DISTLOCK=setting)
    database = SQLAlchemy(app)
    DistLock(app)
    for words in (["show", "product_1"], ["list"]):
        result = app.test_cli_runner().invoke(args=["distlock", *words, "--alias", "rows"])
        assert result.exit_code == 2
        assert "'flask distlock create-table'" in result.output
        assert "SELECT" not in result.output
    with app.app_context():
        database.engine.dispose()


def test_the_doctor_says_that_nothing_is_locked(command: Command) -> None:
    code, said = command("doctor", "--alias", "none")
    assert code == 1
    assert "error    locks        This backend locks nothing." in said


def test_the_doctor_finds_that_the_table_is_missing(setting: dict[str, Any], tmp_path: Path) -> None:
    app = Flask(__name__)
    app.config.from_mapping(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db", DISTLOCK=setting)
    database = SQLAlchemy(app)
    DistLock(app)
    result = app.test_cli_runner().invoke(args=["distlock", "doctor"])
    assert result.exit_code == 1
    assert "-> Run: flask distlock create-table" in result.output
    with app.app_context():
        database.engine.dispose()


def manage(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from django.core.management import execute_from_command_line as run; import sys; run(sys.argv)"
    return subprocess.run(
        [sys.executable, "-c", code, "distlock", *words],
        env={"DJANGO_SETTINGS_MODULE": "tests.django_distlock.settings", "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_the_options_of_manage_py_stand_where_they_always_may() -> None:
    done = manage("show", "product_1", "--settings=tests.django_distlock.settings", "--no-color")
    assert (done.returncode, done.stdout) == (0, "product_1 is free.\n")
    done = manage("show", "--", "--settings")
    assert (done.returncode, done.stdout) == (0, "--settings is free.\n")
    done = manage("run", "a", "--", "echo", "--settings")
    assert (done.returncode, done.stdout) == (0, "--settings\n")
    done = manage("help")
    assert done.returncode == 0
    assert {"prune", "doctor", "break"} <= set(done.stdout.split())
    done = manage("show", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("CommandError: A lock's name is empty.")


def test_without_click_it_is_said_what_to_install() -> None:
    hide = "import sys; sys.modules['click'] = None\n"
    for code in (
        "from distlock.__main__ import main; main()",
        "from django.core.management import execute_from_command_line as run; run(['', 'distlock', 'list'])",
    ):
        done = subprocess.run(
            [sys.executable, "-c", hide + code],
            env={"DJANGO_SETTINGS_MODULE": "tests.django_distlock.settings", "PATH": "/usr/bin:/bin"},
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "needs click. Run: pip install '/path/to/the/clone[cli]'" in done.stderr
