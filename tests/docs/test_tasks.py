"""The tasks of the page, run by Celery, RQ and a command: they are left out while their lock is taken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import distlock
from tests.redis_server import RedisServer, redis_server
from tests.web.quickstart import own_environment, snippets

__all__ = ["redis_server"]

TASK, ONCE, CELERY, RQ, DJANGO, COMMAND, SCRIPT = snippets("how-to/tasks.md")
WRITTEN = "the report of day 7 is written\n"
SETTINGS = """
INSTALLED_APPS = ["django_distlock", "shop"]
DISTLOCK = {{"default": {{"LOCATION": "{url}", "PREFIX": "shop"}}}}
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}}}
USE_TZ = True
"""
MODELS = """
from django.db import models


class Report(models.Model):
    day = models.IntegerField(unique=True)
"""
MANAGE = """
import django

django.setup()
from shop import tasks
"""
RUN_CELERY = """
from celery import Celery

app = Celery(broker="memory://", backend="cache+memory://")
app.conf.task_always_eager = True
from shop.tasks import write_report

result = write_report.delay(7)
assert result.successful(), result
"""
RUN_DJANGO = """
result = tasks.write_report.enqueue(7)
assert result.status == "SUCCESSFUL", result
assert result.return_value is None
"""
RUN_RQ = """
import redis
from rq import Queue, Worker
from shop.jobs import enqueue_report

connection = redis.Redis.from_url("{url}")
queue = Queue(connection=connection)
job = enqueue_report(queue, 7)
Worker([queue], connection=connection).work(burst=True, logging_level="ERROR")
assert job.is_finished, job.get_status()
"""


@pytest.fixture
def project(tmp_path: Path, redis_server: RedisServer) -> Path:
    """A Django project with the task of the page."""
    (tmp_path / "settings.py").write_text(SETTINGS.format(url=redis_server.url))
    for folder in ("shop", "shop/management", "shop/management/commands"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "shop/models.py").write_text(MODELS)
    (tmp_path / "shop/tasks.py").write_text(TASK)
    (tmp_path / "shop/jobs.py").write_text(RQ)
    (tmp_path / "shop/management/commands/report.py").write_text(COMMAND)
    return tmp_path


def run(project: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=project,
        env={
            **own_environment(),
            "DJANGO_SETTINGS_MODULE": "settings",
            "PYTHONPATH": ".",
            # RQ's worker leaves its child without a last word.
            "PYTHONUNBUFFERED": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_lines(project: Path, lines: str) -> str:
    return run(project, "-c", MANAGE + lines)


@pytest.fixture
def others(redis_server: RedisServer) -> Iterator[distlock.Locks]:
    """Somebody else's client of the same lock service."""
    locks = distlock.connect(redis_server.url, prefix="shop")
    yield locks
    locks.close()


@pytest.mark.parametrize("runner", ["celery", "rq", "django", "command"])
def test_a_task_runs_while_its_lock_is_free_and_is_left_out_while_it_is_not(
    project: Path, redis_server: RedisServer, others: distlock.Locks, runner: str
) -> None:
    if runner in {"celery", "django"}:
        task = {"celery": CELERY, "django": DJANGO}[runner]
        (project / "shop/tasks.py").write_text(f"{TASK.splitlines()[1]}\n{task}")

    def report() -> str:
        match runner:
            case "celery":
                return run_lines(project, RUN_CELERY)
            case "django":
                return run_lines(project, RUN_DJANGO)
            case "rq":
                return run_lines(project, RUN_RQ.format(url=redis_server.url))
            case _:
                return run(project, "-m", "django", "report", "7")

    with others.lock("report_7"):
        assert report() == ""
    assert report() == WRITTEN


def test_a_task_that_writes_down_that_it_has_run_runs_once(project: Path) -> None:
    (project / "shop/tasks.py").write_text(f"{TASK.splitlines()[1]}\n{ONCE}")
    run(project, "-m", "django", "makemigrations", "shop", "-v0")
    run(project, "-m", "django", "migrate", "-v0")
    assert run_lines(project, "tasks.write_report(7)\ntasks.write_report(7)") == WRITTEN


def test_a_script_without_a_framework(
    redis_server: RedisServer, others: distlock.Locks, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = compile(
        SCRIPT.replace("redis://localhost:6379/0", redis_server.url), "docs/how-to/tasks.md", "exec"
    )

    def report() -> str:
        seen: dict[str, distlock.Locks] = {}
        exec(lines, seen)
        seen["locks"].close()
        return capsys.readouterr().out

    with others.lock("report"):
        assert report() == ""
    assert report() == "the report is written\n"
