"""A site of Flask whose workers add their metrics up."""

from __future__ import annotations

import os

from flask import Flask
from prometheus_client import CollectorRegistry, generate_latest, multiprocess

from flask_distlock import DistLock, distributed_lock

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
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
