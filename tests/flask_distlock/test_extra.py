from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT_SQLALCHEMY = """
import sys
sys.modules["sqlalchemy"] = sys.modules["flask_sqlalchemy"] = None
from flask import Flask
from flask_distlock import DistLock, distributed_lock
app = Flask(__name__)
app.config["DISTLOCK"] = "memory://"
locks = DistLock(app)
app.post("/<int:id>")(distributed_lock("product_<id>")(lambda id: "sold"))

@app.post("/block/<int:id>")
def block(id):
    with locks.lock(f"product_{id}"):
        return "sold"

@app.post("/fenced/<int:id>")
@distributed_lock("product_<id>", fence=True)
def fenced(id):
    return "sold"

print(*(app.test_client().post(path).text for path in ("/1", "/block/1")))
app.testing = True
app.test_client().post("/fenced/1")
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_without_flask_the_command_to_run_is_named() -> None:
    done = run("import sys; sys.modules['flask'] = None; import flask_distlock")
    assert "Run: pip install '/path/to/the/clone[flask]'" in done.stderr


def test_sqlalchemy_is_not_needed() -> None:
    done = run(WITHOUT_SQLALCHEMY)
    assert done.stdout == "sold sold\n"
    assert "has a fence, which needs the db.session of Flask-SQLAlchemy" in done.stderr.splitlines()[-1]


SITE = """
import sys
sys.modules["kazoo"] = None
from flask import Flask
from flask_distlock import DistLock, distributed_lock
app = Flask("shop")
app.config["DISTLOCK"] = SETTING
app.debug = DEBUG
locks = DistLock(app)
app.get("/<int:id>")(distributed_lock("product_<id>")(lambda id: "sold"))
"""
CHECKED = SITE + "locks.check(app)\n"
ASKED = SITE + "app.test_client().get('/1')\n"


def test_a_missing_extra_is_found_by_check() -> None:
    done = run(CHECKED.replace("SETTING", '"zookeeper://localhost:2181"').replace("DEBUG", "False"))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "ConfigurationError: DISTLOCK['default']: The zookeeper backend needs" in last
    assert "[zookeeper]" in last


def test_a_missing_extra_is_one_line_of_the_log_at_the_first_request() -> None:
    done = run(ASKED.replace("SETTING", '"zookeeper://localhost:2181"').replace("DEBUG", "False"))
    (line,) = [line for line in done.stderr.splitlines() if "shop answers no request: " in line]
    assert "The zookeeper backend needs" in line


@pytest.mark.parametrize(("debug", "lines"), [(False, 1), (True, 0)])
def test_memory_outside_of_debug_mode_is_told_by_the_log(debug: bool, lines: int) -> None:
    done = run(ASKED.replace("SETTING", '"memory://"').replace("DEBUG", str(debug)))
    assert done.returncode == 0, done.stderr
    told = (
        "DISTLOCK['default'] uses the memory backend outside of debug mode: each process has locks of its own"
    )
    assert done.stderr.count(told) == lines, done.stderr
