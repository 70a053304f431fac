"""A site of Flask whose workers add their metrics up."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask

from flask_distlock import DistLock, distributed_lock
from tests.metrics.page import block

app = Flask(__name__)
app.config["DISTLOCK"] = {"default": {"LOCATION": os.environ["LOCATION"], "METRICS": "prometheus"}}
locks = DistLock(app)


@app.post("/buy/<int:number>")
@distributed_lock("product_<number>")
def buy(number: int) -> str:
    return "bought"


@app.post("/keep")
def keep() -> str:
    assert locks.lock("kept").acquire()
    return str(os.getpid())


@app.get("/metrics")
def shown() -> bytes:
    from_page: dict[str, Any] = {}
    exec(block("def metrics_of_all"), from_page)
    answer: bytes = from_page["metrics_of_all"]()
    return answer
