"""Under asgiref's adapter the coroutines of all requests share one event loop, which no lock may block."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import ThreadSensitiveContext
from asgiref.testing import ApplicationCommunicator
from asgiref.wsgi import WsgiToAsgi
from flask import Flask
from flask.views import MethodView

from distlock import current_grant
from flask_distlock import distributed_lock

BUYERS = 6


async def post(asgi: Any, path: str) -> tuple[int, bytes]:
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    request = ApplicationCommunicator(asgi, {**scope, "http_version": "1.1"})
    await request.send_input({"type": "http.request", "body": b""})
    start = await request.receive_output(30)
    body = await request.receive_output(30)
    await request.wait(30)
    return start["status"], body["body"]


def test_requests_of_one_loop_take_turns(app: Flask) -> None:
    inside = 0
    sell = distributed_lock("product_<id>", timeout=0)(lambda id: current_grant().names[0])

    async def buy(id: int) -> str:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        inside -= 1
        return sell(id)

    @distributed_lock("product_<id>", timeout=20)
    class Buy(MethodView):
        async def post(self, id: int) -> str:
            return await buy(id)

    app.add_url_rule("/class/<int:id>", view_func=Buy.as_view("class"))
    app.post("/function/<int:id>")(distributed_lock("product_<id>", timeout=20)(buy))
    wsgi = WsgiToAsgi(app)

    async def asgi(*connection: Any) -> None:
        # Else they have one thread for all, and never come together.
        async with ThreadSensitiveContext():
            await wsgi(*connection)

    async def rush() -> list[tuple[int, bytes]]:
        paths = ["/class/1", "/function/1"] * (BUYERS // 2)
        return await asyncio.gather(*(post(asgi, path) for path in paths))

    assert asyncio.run(rush()) == [(200, b"product_1")] * BUYERS
