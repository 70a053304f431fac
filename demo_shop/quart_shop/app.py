"""The application for uvicorn: ``demo_shop.quart_shop.app:app``."""

from __future__ import annotations

from pathlib import Path

from quart import Quart, Response

from demo_shop.quart_shop.selling import SHOP
from demo_shop.quart_shop.views import refuse, shop
from demo_shop.sale import Refusal

app = Quart(__name__, template_folder=str(Path(__file__).parents[1]))
app.register_blueprint(shop)


@app.errorhandler(Refusal)
async def answer(refusal: Refusal) -> Response:
    return refuse(refusal)


@app.after_request
async def name_instance(response: Response) -> Response:
    response.headers["X-Instance"] = SHOP.instance
    return response
