from __future__ import annotations

from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from django.views.generic import FormView

from distlock.web.guard_options import GuardOptions
from django_distlock.guarding.views import guard_view
from tests.django_distlock.guarding.placements.table import ATOMIC, LOCKED, lock, placement, rule
from tests.django_distlock.watching import Events

CLASS_LINE = r'Write @distributed_lock\((?!.*methods=).*"shelf_<int:id>".*\) above the class Buy\.'


def buy(events: Events) -> type[View]:
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Buy


@placement()
def on_a_class(events: Events) -> Any:
    return lock(events)(buy(events)).as_view()


@placement()
def on_the_base_of_a_class(events: Events) -> Any:
    class Sub(lock(events)(buy(events))):
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Sub.as_view()


@placement()
def on_the_base_of_a_class_with_a_dispatch_of_its_own(events: Events) -> Any:
    class Sub(lock(events)(buy(events))):
        def dispatch(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Sub.as_view()


@placement(autocommit=["names", "lock", "setup", "view", "release"],
           atomic=["names", "lock", "BEGIN", "setup", "view", "COMMIT", "release"])  # fmt: skip
def on_a_class_that_reads_in_setup(events: Events) -> Any:
    @lock(events)
    class Buy(buy(events)):
        def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
            events.append("setup")
            super().setup(request, *args, **kwargs)

    return Buy.as_view()


@placement()
def around_as_view(events: Events) -> Any:
    return lock(events)(buy(events).as_view())


@placement()
def around_decorated_as_view(events: Events) -> Any:
    return lock(events)(never_cache(csrf_exempt(buy(events).as_view())))


@placement()
def by_a_rule_on_as_view(events: Events) -> Any:
    return rule(events, buy(events).as_view())


@placement(autocommit=["lock", "names", "view", "release"],
           atomic=["lock", "BEGIN", "names", "view", "COMMIT", "release"])  # fmt: skip
def inside_another_guard_of_the_names(events: Events) -> Any:
    both = GuardOptions(["product_<int:id>", "shelf_<int:id>"])
    return guard_view(lock(events)(buy(events)).as_view(), both)


@placement()
def on_dispatch(events: Events) -> Any:
    class Buy(buy(events)):
        @lock(events)
        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(request, *args, **kwargs)

    return Buy.as_view()


@placement()
def on_dispatch_by_name(events: Events) -> Any:
    return method_decorator(lock(events), name="dispatch")(buy(events)).as_view()


@placement()
def on_dispatch_by_method_decorator(events: Events) -> Any:
    class Buy(buy(events)):
        @method_decorator(lock(events))
        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(request, *args, **kwargs)

    return Buy.as_view()


@placement()
def on_dispatch_below_other_decorators(events: Events) -> Any:
    decorators = [csrf_exempt, never_cache, lock(events), require_POST]
    return method_decorator(decorators, name="dispatch")(buy(events)).as_view()


@placement(atomic=LOCKED)
def on_dispatch_below_non_atomic_requests(events: Events) -> Any:
    locked = method_decorator(lock(events), name="dispatch")(buy(events))
    return method_decorator(transaction.non_atomic_requests, name="dispatch")(locked).as_view()


@placement(atomic=LOCKED)
def on_dispatch_above_non_atomic_requests(events: Events) -> Any:
    opted_out = method_decorator(transaction.non_atomic_requests, name="dispatch")(buy(events))
    return method_decorator(lock(events), name="dispatch")(opted_out).as_view()


@placement(atomic=r'Write @distributed_lock\(.*"shelf_<int:id>"\) above the class Sub\.')
def on_dispatch_of_the_base_of_a_class(events: Events) -> Any:
    class Sub(method_decorator(lock(events), name="dispatch")(buy(events))):
        def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            return super().dispatch(request, *args, **kwargs)

    return Sub.as_view()


@placement(atomic=CLASS_LINE)
def on_post(events: Events) -> Any:
    class Buy(View):
        @lock(events)
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Buy.as_view()


@placement(atomic=LOCKED)
def on_post_of_a_class_without_atomic_requests(events: Events) -> Any:
    @method_decorator(transaction.non_atomic_requests, name="dispatch")
    class Buy(View):
        @lock(events)
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Buy.as_view()


@placement(autocommit=ATOMIC, atomic=CLASS_LINE)
def on_post_above_transaction_atomic(events: Events) -> Any:
    class Buy(View):
        @lock(events)
        @transaction.atomic
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Buy.as_view()


@placement(atomic=CLASS_LINE)
def on_post_by_method_decorator(events: Events) -> Any:
    class Buy(View):
        @method_decorator(lock(events))
        def post(self, request: HttpRequest, id: int) -> HttpResponse:
            return events.sell()

    return Buy.as_view()


@placement(atomic=CLASS_LINE)
def on_post_by_name(events: Events) -> Any:
    return method_decorator([csrf_exempt, lock(events)], name="post")(buy(events)).as_view()


@placement(autocommit="above the class Buy", atomic="above the class Buy")
def on_setup(events: Events) -> Any:
    class Buy(buy(events)):
        @lock(events)
        def setup(self, request: HttpRequest, id: int) -> None:
            super().setup(request, id=id)

    return Buy.as_view()


@placement()
def on_a_generic_view(events: Events) -> Any:
    @lock(events)
    class Buy(FormView):
        form_class = forms.Form
        success_url = "/"

        def form_valid(self, form: forms.Form) -> HttpResponse:
            events.sell()
            return super().form_valid(form)

    return Buy.as_view()


@placement(autocommit=[*LOCKED, "content"], atomic=[*ATOMIC, "content"])
def on_a_view_that_renders_a_template(events: Events) -> Any:
    class Page(TemplateResponse):
        def render(self) -> Any:
            events.append("content")
            self.content = b"sold"
            return self

    @lock(events)
    class Buy(View):
        def post(self, request: HttpRequest, id: int) -> TemplateResponse:
            events.view()
            return Page(request, "sold.html")

    return Buy.as_view()
