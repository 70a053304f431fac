from __future__ import annotations

import subprocess
import sys

WITHOUT_SQLALCHEMY = """
import sys
sys.modules["sqlalchemy"] = sys.modules["flask_sqlalchemy"] = None
from flask import Flask
from flask_distlock import DistLock, distributed_lock
app = Flask(__name__)
app.config["DISTLOCK"] = "memory://"
DistLock(app)
app.post("/<int:id>")(distributed_lock("product_<id>")(lambda id: "sold"))
print(app.test_client().post("/1").text)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_without_flask_the_command_to_run_is_named() -> None:
    done = run("import sys; sys.modules['flask'] = None; import flask_distlock")
    assert "Run: pip install '/path/to/the/clone[flask]'" in done.stderr


def test_sqlalchemy_is_not_needed() -> None:
    assert run(WITHOUT_SQLALCHEMY).stdout == "sold\n"
