"""The admin's pages of locks: list the locks of an alias, show one, request its release, break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote as percent_encoded
from urllib.parse import unquote, urlencode

from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import quote
from django.contrib.admin.utils import unquote as unquoted
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.template import Context, Engine
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from distlock.errors import ConfigurationError, LockError
from distlock.locks.client import Locks
from distlock.terms import LOCK, Kind
from distlock.web.operate import pages
from distlock.web.operate.pages import break_hold, is_hold, is_kind, request_release
from distlock.web.settings.problems import DEFAULT_ALIAS
from django_distlock.conf import clients
from django_distlock.models import Lock

_PAGES = Engine(dirs=[str(pages.TEMPLATES)])
_TYPES = {".js": "text/javascript", ".css": "text/css"}

if TYPE_CHECKING:
    Base = ModelAdmin[Lock]
else:
    Base = ModelAdmin


class LockAdmin(Base):
    """The pages of locks, which ask the lock service and no table.

    To show them in an admin site of your own, write ``site.register(Lock, LockAdmin)``.

    Users need the permission ``distlock.view_lock`` to see locks, and also ``distlock.break_lock`` to request
    the release of a lock or to break it.
    """

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Lock | None = None) -> bool:
        return False

    def may_break(self, request: HttpRequest) -> bool:
        """Return whether the user of *request* may break locks and request their release."""
        user: Any = request.user
        return self.has_view_permission(request) and bool(user.has_perm("distlock.break_lock"))

    def get_urls(self) -> list[URLPattern]:
        # The views of ModelAdmin would query a table.
        views: list[tuple[str, str, Callable[..., HttpResponse]]] = [
            ("", "changelist", self.changelist_view),
            ("locks.js", "script", partial(self.file_view, "locks.js")),
            ("locks.css", "style", partial(self.file_view, "locks.css")),
            ("<path:object_id>/change/", "change", self.lock_view),
            ("<path:object_id>/ask/", "ask", self.ask_view),
            ("<path:object_id>/break/", "break", self.break_view),
        ]
        return [
            path(route, self.admin_site.admin_view(view), name=f"distlock_lock_{name}")
            for route, name, view in views
        ]

    # -- the pages -------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Show the names that are held or waited for."""
        self._refuse_unless(self.has_view_permission(request))
        alias, before = request.GET.get("alias", ""), request.GET.get("q", "")
        aliases = _aliases()
        alias = alias or aliases[0]
        shown = pages.locks_page(_client(alias), aliases, alias, before, self)
        return self._page(
            request, "change_list", pages.LOCKS_HTML, shown, title="Locks", **(extra_context or {})
        )

    def lock_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show one lock: its holder and its queue."""
        self._refuse_unless(self.has_view_permission(request))
        (alias, name), kind = _of(object_id), _kind(request)
        shown = pages.lock_page(_client(alias), alias, name, self, self.may_break(request), kind)
        if shown["can_ask"]:
            shown["ask_back"] = self._url("ask", alias, name, kind)
            shown["hidden"] = [("csrfmiddlewaretoken", get_token(request))]
        title = f"{kind.capitalize()} {name}"
        return self._page(request, "change_form", pages.LOCK_HTML, shown, title=title, name=name)

    def ask_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Request the release of the lock from its holder."""
        self._refuse_unless(self.may_break(request))
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        (alias, name), kind = _of(object_id), _kind(request)
        self._answer(request, partial(self._ask_back, request, _client(alias), alias, name, kind))
        return HttpResponseRedirect(self.lock(alias, name, kind))

    def break_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask for confirmation. For a POST, break the hold that the page has shown, and no later one."""
        self._refuse_unless(self.may_break(request))
        (alias, name), kind = _of(object_id), _kind(request)
        client = _client(alias)
        given = request.POST if request.method == "POST" else request.GET
        if not is_hold(hold := given.get("hold", "")):
            raise Http404("There is no such hold.")
        if request.method == "POST":
            self._answer(request, partial(self._break, request, client, alias, name, hold, kind))
            return HttpResponseRedirect(self.lock(alias, name, kind))
        shown = pages.break_page(client, alias, name, hold, self, kind)
        shown["action"] = self._url("break", alias, name, kind)
        shown["hidden"] = [("csrfmiddlewaretoken", get_token(request)), ("hold", hold)]
        title = f"Break the {kind} {name}?"
        return self._page(request, "break_confirmation", pages.BREAK_HTML, shown, title=title, name=name)

    def file_view(self, file: str, request: HttpRequest) -> HttpResponse:
        """Serve the script or style of the pages. It is no static file here, because Flask serves it, too."""
        self._refuse_unless(self.has_view_permission(request))
        return HttpResponse((pages.STATIC / file).read_text("utf-8"), content_type=_TYPES[Path(file).suffix])

    # --------------------------------------------------------------------------------------------

    def _answer(self, request: HttpRequest, act: Callable[[], tuple[str, int]]) -> None:
        """Call *act*, and show the user the message that it returns, at its level, or its `LockError`."""
        try:
            said, level = act()
        except LockError as error:
            said, level = str(error), messages.ERROR
        self.message_user(request, said, level)

    def _ask_back(
        self, request: HttpRequest, client: Callable[[], Locks], alias: str, name: str, kind: Kind
    ) -> tuple[str, int]:
        asked = request_release(client, name, kind, by=f"{request.user.get_username()} in the admin")
        if asked is None:
            return f"Nobody holds the {kind} {name}.", messages.WARNING
        # `request_release` inspects the lock first, so it does not know a holder that came in between.
        holder = asked.holder or "one that came just now"
        self.log_change(request, _lock(alias, name), f"Asked for the {kind}. It was held by {holder}.")
        said = f"The holder of the {kind} {name} was asked to give it back, and may go on: {holder}."
        return said, messages.INFO

    def _break(
        self, request: HttpRequest, client: Callable[[], Locks], alias: str, name: str, hold: str, kind: Kind
    ) -> tuple[str, int]:
        broken = break_hold(client, name, hold, f"{request.user.get_username()} in the admin", kind)
        if broken is None:
            said = f"Nothing was broken: the {kind} {name} has been released or has passed on meanwhile."
            return said, messages.WARNING
        self.log_change(request, _lock(alias, name), f"Broke the {kind}. It was held by {broken.holder}.")
        return f"The {kind} {name} was broken. It was held by {broken.holder}.", messages.INFO

    def _page(
        self, request: HttpRequest, template: str, page: str, shown: pages.Context, **context: Any
    ) -> TemplateResponse:
        """Return *shown*, rendered with *page* inside the admin's *template*, which a site may override."""
        request.current_app = self.admin_site.name
        content = _PAGES.get_template(page).render(Context(shown, use_l10n=False))
        context = {**self.admin_site.each_context(request), "opts": self.opts, "content": content, **context}
        templates = [f"admin/distlock/lock/{name}.html" for name in (template, "base")]
        response = TemplateResponse(request, templates, context)
        response["Cache-Control"] = "no-store"
        # This prevents clickjacking even if the site lacks Django's middleware for it.
        response["X-Frame-Options"] = "DENY"
        return response

    # -- the URLs of the pages: see `distlock.web.operate.pages.Addresses` ---------------------------

    def locks(self, alias: str, before: str) -> str:
        return f"?{urlencode({'alias': alias, 'q': before})}"

    def lock(self, alias: str, name: str, kind: Kind) -> str:
        return self._url("change", alias, name, kind)

    def confirm_break(self, alias: str, name: str, hold: str, kind: Kind) -> str:
        return self._url("break", alias, name, kind, hold=hold)

    def _url(self, page: str, alias: str, name: str, kind: Kind, **more: str) -> str:
        key = quote(_lock(alias, name).pk)
        url = reverse(f"admin:distlock_lock_{page}", args=[key], current_app=self.admin_site.name)
        more |= {} if kind == LOCK else {"kind": kind}
        return f"{url}?{urlencode(more)}" if more else url

    @staticmethod
    def _refuse_unless(may: bool) -> None:
        if not may:
            raise PermissionDenied


def _aliases() -> Sequence[str]:
    """Return the aliases; if the settings are wrong, only the default alias, whose page shows the error."""
    try:
        return clients.aliases()
    except ConfigurationError:
        return (DEFAULT_ALIAS,)


def _client(alias: str) -> Callable[[], Locks]:
    """Return a function that returns the client of *alias*. Raise `Http404` for an unknown one."""
    if alias not in _aliases():
        raise Http404(f"DISTLOCK has no alias {alias!r}.")
    return partial(clients.__getitem__, alias)


def _lock(alias: str, name: str) -> Lock:
    """Return the model instance that stands for a lock in the admin's log and addresses."""
    return Lock(id=f"{percent_encoded(alias, safe='')}:{name}", namespace=alias, name=name)


def _kind(request: HttpRequest) -> Kind:
    """Return the kind of lock that *request* names. Raise `Http404` for an unknown one."""
    if not is_kind(kind := request.GET.get("kind", LOCK)):
        raise Http404("There is no such kind.")
    return kind


def _of(object_id: str) -> tuple[str, str]:
    """Return the alias and the name in *object_id*. Raise `Http404` if there is no name in it."""
    alias, colon, name = unquoted(object_id).partition(":")
    if not colon or not name:
        raise Http404("There is no such lock.")
    return unquote(alias), name
