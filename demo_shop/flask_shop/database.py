"""What the views and the application share: the configuration and the database."""

from __future__ import annotations

from flask_sqlalchemy import SQLAlchemy

from demo_shop.configuration import Configuration
from demo_shop.tables import Base

SHOP = Configuration.from_environment()
db = SQLAlchemy(metadata=Base.metadata)
