"""The application for gunicorn: ``demo_shop.flask_shop.app:app``."""

from __future__ import annotations

from pathlib import Path

from flask import Flask, Response

from demo_shop import ledger
from demo_shop.flask_shop.rush import rush
from demo_shop.flask_shop.selling import SHOP, db
from demo_shop.flask_shop.views import article, shop
from flask_distlock import DistLock

app = Flask(__name__, template_folder=str(Path(__file__).parents[1]))
app.config["DISTLOCK"] = SHOP.distlock()
app.config["SQLALCHEMY_DATABASE_URI"] = ledger.database_url(SHOP.database)
# There are as many connections as gunicorn's threads, so that no purchase waits for a connection.
app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": 64} | ledger.isolation(SHOP.database)
db.init_app(app)
app.register_blueprint(shop)
app.register_blueprint(article)
app.register_blueprint(rush)
if SHOP.has_readers:
    from demo_shop.flask_shop.readers import readers

    app.register_blueprint(readers)
locks = DistLock(app)
with app.app_context():
    ledger.prepare_sqlite(db.engine)


@app.after_request
def name_instance(response: Response) -> Response:
    response.headers["X-Instance"] = SHOP.instance
    return response
