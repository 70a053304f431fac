"""The status of what a view has returned, before Flask makes a response of it."""

from __future__ import annotations

from typing import Any

from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response


def status_of(result: Any) -> int:
    """The status of *result*, in all the forms that Flask takes; 0: an odd word, which is legal.

    Raises `ValueError` for what is no status, as Flask does for it.
    """
    if isinstance(result, tuple) and len(result) > 1:
        # Headers may stand in the place of the status.
        status = result[1]
        if isinstance(status, int | str):
            return Response(status=status).status_code
        return status_of(result[0])
    if isinstance(result, HTTPException):
        return result.get_response().status_code
    status = getattr(result, "status_code", 200)
    return status if isinstance(status, int) else 200
