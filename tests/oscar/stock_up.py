"""Make the shop's tables, its one product and its users. Prints the key of a session for each user.

Run as ``python -m tests.oscar.stock_up STOCK USERS``.
"""

from __future__ import annotations

import json
import os
import sys
from collections import UserDict
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command


class _NoMigrations(UserDict[str, Any]):
    """Tables are made as the models are now, in a tenth of the time."""

    def __contains__(self, label: object) -> bool:
        return True

    def __getitem__(self, label: str) -> None:
        return None


def main() -> None:
    stock, users = map(int, sys.argv[1:])
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.oscar.settings"
    settings.MIGRATION_MODULES = _NoMigrations()
    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)

    from oscar.core.loading import get_model

    # What is downloaded is not shipped, so no buyer has to type an address.
    kind = get_model("catalogue", "ProductClass").objects.create(name="Song", requires_shipping=False)
    product = get_model("catalogue", "Product").objects.create(title="A song", product_class=kind)
    partner = get_model("partner", "Partner").objects.create(name="A label")
    get_model("partner", "StockRecord").objects.create(
        product=product, partner=partner, partner_sku="song", price="0.99", num_in_stock=stock
    )
    print(json.dumps([_session(number) for number in range(users)]))


def _session(number: int) -> str:
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore

    user = get_user_model()(username=f"user{number}", email=f"user{number}@example.org")
    user.set_unusable_password()
    user.save()
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    return str(session.session_key)


if __name__ == "__main__":
    main()
