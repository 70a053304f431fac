"""Pictures of the page of locks: the shop has buyers, and the admin of a Django project shows its locks."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from demo_shop.configuration import Configuration
from loadtest.servers.processes import ChildProcess, free_port, run_once
from loadtest.stack import ROOT, Stack
from tests.demo_shop.browser import Browser, Page

SETTINGS = """
INSTALLED_APPS += ["django_distlock"]
DISTLOCK = {{"default": {{"LOCATION": "{lock}", "PREFIX": "shop"}}}}
"""


def take_locks(chromium: Browser, folder: Path) -> None:
    """Photograph the admin's page of locks, and the page of one lock, while the shop has buyers."""
    with socket.create_server(("127.0.0.1", 0)) as gateway, contextlib.ExitStack() as stop:
        # A purchase takes a minute, a report two, and the gateway for payments never answers.
        shop = Configuration(pause=60, products=2, gateway=f"http://127.0.0.1:{gateway.getsockname()[1]}/")
        stack = stop.enter_context(Stack(("django", "django"), shop, "redis"))
        url = stop.enter_context(open_admin(stack.shop.lock, folder))
        page = stop.enter_context(chromium.tab())
        log_in(page, url)
        visits = {"/products/1/reduce/distributed": 4, "/readers/report/shared": 2, "/readers/pay/limited": 3}
        for path, visitors in visits.items():
            for _ in range(visitors):
                threading.Thread(target=keep_asking, args=(stack.front.port, path), daemon=True).start()
        page.open(f"{url}/admin/distlock/lock/")
        rows = "[...document.querySelectorAll('#distlock-live td:last-child')]"
        page.wait_for(f"{rows}.length === 3 && {rows}.some(waiting => waiting.innerText)")
        photograph_admin(page, folder / "locks.png")
        page.open(f"{url}/admin/distlock/lock/default_3Aproduct_5F1/change/")
        photograph_admin(page, folder / "lock.png")


@contextlib.contextmanager
def open_admin(lock: str, folder: Path) -> Iterator[str]:
    """Open a new Django project whose admin shows the locks of the shop, and yield its address."""
    site, log, port = folder / "site", folder / "site.log", free_port()
    site.mkdir()
    manage = [sys.executable, str(site / "manage.py")]
    os.environ |= {"PYTHONPATH": str(ROOT), "DJANGO_SUPERUSER_PASSWORD": "ann"}
    run_once("django-admin", [sys.executable, "-m", "django", "startproject", "shop", str(site)], log)
    with (site / "shop/settings.py").open("a") as settings:
        settings.write(SETTINGS.format(lock=lock))
    run_once("manage.py", [*manage, "migrate"], log)
    person = "createsuperuser --noinput --username ann --email ann@example.com"
    run_once("manage.py", [*manage, *person.split()], log)
    child = ChildProcess("The admin", [*manage, "runserver", "--noreload", f"127.0.0.1:{port}"], log)
    try:
        child.wait_until(lambda: "Quit the server" in log.read_text())
        yield f"http://127.0.0.1:{port}"
    finally:
        child.stop()


def log_in(page: Page, url: str) -> None:
    page.open(f"{url}/admin/login/?next=/admin/")
    page.evaluate("for (const field of ['username', 'password']) document.forms[0][field].value = 'ann'")
    page.evaluate("document.querySelector('[type=submit]').click()")
    page.wait_for("document.querySelector('#logout-form') !== null")
    page.evaluate("localStorage['django.admin.navSidebarIsOpen'] = 'false'")


def photograph_admin(page: Page, file: Path) -> None:
    """Write a picture of a page of locks. This machine is called web1 in it."""
    box = "document.querySelector('#distlock-refresh').checked"
    page.evaluate(f"{box} = false")
    live, name = "document.querySelector('#distlock-live')", f"/\\b{socket.gethostname()}\\b/g"
    page.evaluate(f"{live}.innerHTML = {live}.innerHTML.replace({name}, 'web1'); {box} = true")
    page.photograph(file, "#header", "#content-main")


def keep_asking(port: int, path: str) -> None:
    """Visit a page of the shop again and again, until the shop is gone."""
    method = "GET" if "report" in path else "POST"
    with contextlib.suppress(OSError, http.client.HTTPException):
        while True:
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as shop:
                shop.request(method, path)
                shop.getresponse().read()
