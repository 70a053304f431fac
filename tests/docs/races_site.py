"""Runs both versions of each example of docs/how-to/races.md, called by many threads at once.

Run as ``python -m tests.docs.races_site POSTGRESQL REDIS FOLDER``. Prints a line of JSON for each example:
its heading, and whether the books agree after the code that goes wrong and after the code that does not.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "races.md"
THREADS = 8
#: Writes take a moment, as on a busy server, so all threads read before the first one has written.
SLOW = """
CREATE FUNCTION wait_a_moment() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN PERFORM pg_sleep(0.1); RETURN NEW; END'
"""


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def examples(page: str) -> dict[str, list[str]]:
    """Return the code that goes wrong and the code that does not, by their heading."""
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {heading: python_blocks(text) for heading, text in sections}


def at_once(call: Callable[[int], object]) -> None:
    """Make *call* in all threads at once."""
    from django.db import connections

    start = threading.Barrier(THREADS)

    def one(number: int) -> None:
        start.wait()
        try:
            call(number)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one, args=[number]) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def configure(postgresql: str, redis: str, folder: Path) -> ModuleType:
    """Set Django up, with an app ``shop`` that has the page's models. Return the module of its URLs."""
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    (folder / "shop" / "models.py").write_text(python_blocks(PAGE.read_text("utf-8"))[0])
    sys.path.insert(0, str(folder))
    urls = ModuleType("urls")
    sys.modules["urls"] = urls
    urls.urlpatterns = []  # type: ignore[attr-defined]
    database = urlsplit(postgresql)
    own = {"NAME": database.path[1:], "HOST": database.hostname, "PORT": database.port}
    engine = {"ENGINE": "django.db.backends.postgresql", "USER": database.username}
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": own | engine},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DISTLOCK={"default": {"LOCATION": redis, "PREFIX": "races", "TIMEOUT": 60}},
        INSTALLED_APPS=[
            *(f"django.contrib.{app}" for app in ("contenttypes", "auth", "sessions")),
            "django_distlock",
            "shop",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        ROOT_URLCONF="urls",
        SECRET_KEY="tests only",
    )
    django.setup()
    from django.core.management import call_command
    from django.db import connection

    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        for kind in django.apps.apps.get_app_config("shop").get_models():
            editor.create_model(kind)
    with connection.cursor() as cursor:
        cursor.execute(SLOW)
        for kind in django.apps.apps.get_app_config("shop").get_models():
            slow = f"CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON {kind._meta.db_table} FOR EACH ROW"
            cursor.execute(f"{slow} EXECUTE FUNCTION wait_a_moment()")
    return urls


def is_a_list_of(text: str, length: int) -> bool:
    """Return whether *text* is a JSON list of *length*. Two writers at once may leave no JSON at all."""
    try:
        return len(json.loads(text)) == length
    except json.JSONDecodeError:
        return False


def main() -> None:
    postgresql, redis, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    urls: Any = configure(postgresql, redis, folder)
    import shop.models as shop  # type: ignore[import-not-found]
    from django.contrib.auth.models import User
    from django.http import HttpResponse
    from django.test import Client
    from django.urls import clear_url_caches, path

    from django_distlock import distributed_lock, locks

    login = Client()
    user = User.objects.create(username="ann")
    login.force_login(user)
    visits = folder / "visits.json"

    def post(where: str, **words: Any) -> str:
        client = Client(raise_request_exception=False)
        client.cookies = login.cookies
        return str(client.post(where, **words).content, "utf-8")

    def form(where: str, **fields: str) -> Callable[[int], str]:
        return lambda number: post(where, data={name: f"{value}{number}" for name, value in fields.items()})

    #: The function, its route, what one thread does, and whether the books agree after the threads.
    runs: dict[str, tuple[str, str, Callable[[int], object], Callable[[list[object]], bool]]] = {
        "Points of a user": (
            "spend",
            "it",
            lambda _: post("/it"),
            lambda said: (said.count("spent"), shop.Wallet.objects.get().points) == (5, 0),
        ),
        "get_or_create that makes two": (
            "subscribe",
            "it",
            lambda _: post("/it", data={"name": "ann"}),
            lambda _: shop.Subscriber.objects.count() == 1,
        ),
        "A seat or a slot": (
            "take_seat",
            "it/<int:id>",
            form("/it/1", guest="guest"),
            lambda said: said.count("yours") == 1,
        ),
        "A coupon": (
            "redeem",
            "it",
            lambda _: post("/it", data={"code": "xmas"}),
            lambda said: (said.count("redeemed"), shop.Coupon.objects.get().used) == (5, 5),
        ),
        "A counter in JSON": (
            "view_page",
            "it/<int:id>",
            lambda _: post("/it/1"),
            lambda _: shop.Page.objects.get().counts == {"views": THREADS},
        ),
        "A file that two workers write": (
            "note_visit",
            "it",
            lambda number: [post("/it", data={"visitor": f"{number}"}) for _ in range(20)],
            lambda _: is_a_list_of(visits.read_text(), THREADS * 20),
        ),
        "A cron job on two hosts": (
            "write_report",
            "",
            lambda _: names["write_report"](7),
            lambda _: shop.Report.objects.count() == 1,
        ),
        "A webhook that comes twice": (
            "paid",
            "it",
            lambda _: post("/it", data='{"id": "e1"}', content_type="application/json"),
            lambda _: shop.Event.objects.count() == 1,
        ),
    }
    names: dict[str, Any] = {}
    for heading, blocks in examples(PAGE.read_text("utf-8")).items():
        function, route, call, books_agree = runs[heading]
        agreed = []
        for block in blocks:
            for kind in django.apps.apps.get_app_config("shop").get_models():
                kind.objects.all().delete()
            shop.Wallet.objects.create(user=user)
            shop.Seat.objects.create(id=1)
            shop.Coupon.objects.create(code="xmas")
            shop.Page.objects.create(id=1)
            visits.write_text("[]")
            names = vars(shop) | {"HttpResponse": HttpResponse, "json": json, "BASE_DIR": folder}
            names |= {"distributed_lock": distributed_lock, "locks": locks, "__name__": "shop.views"}
            exec(compile(block, heading, "exec"), names)
            urls.urlpatterns[:] = [path(route, names[function])] if route else []
            clear_url_caches()
            said: list[object] = []
            at_once(lambda number, said=said, call=call: said.append(call(number)))  # type: ignore[misc]
            agreed.append(books_agree(said))
        print(json.dumps([heading, agreed]), flush=True)


if __name__ == "__main__":
    main()
