"""A request to a server that runs, for a race: nothing but HTTP, sent anew by each call."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack
from urllib.parse import urlencode, urlsplit


class Request(TypedDict, total=False):
    """A request to an address."""

    #: ``"POST"`` unless it says otherwise.
    method: str
    #: The body; a mapping is sent as a form.
    data: Mapping[str, Any] | str | bytes
    #: The body, sent as JSON.
    json: Any
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    status_code: int
    text: str
    headers: Mapping[str, str]


def sending(url: str, within: float, **request: Unpack[Request]) -> Callable[[], Reply]:
    """Return a function that sends *request* to *url*. Redirections are answers like others.

    *within*: seconds without a sign of the server after which it raises TimeoutError. Raises ValueError for
    what is no address.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(
            f"{url!r} is no address of a server: write all of it, as in 'http://localhost:8000/products/1'. "
            "Where there is a live_server, the fixture race takes '/products/1' as well."
        )
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    host, port = parts.hostname, parts.port
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    method = request.get("method", "POST").upper()
    body, headers = _written(request)

    def send() -> Reply:
        connection = connect(host, port, timeout=within)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            return Reply(response.status, text, dict(response.getheaders()))
        finally:
            connection.close()

    return send


def _written(request: Request) -> tuple[str | bytes | None, dict[str, str]]:
    """The body of *request*, and its headers."""
    headers = dict(request.get("headers", {}))
    if "json" in request:
        return json.dumps(request["json"]), {"Content-Type": "application/json", **headers}
    data = request.get("data")
    if isinstance(data, Mapping):
        form = urlencode(data, doseq=True)
        return form, {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return data, headers
