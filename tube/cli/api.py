"""The master's HTTP API (docs/reference/http-api.md) for commands: urllib, JSON, a limit on every wait."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode

from tube.errors import (
    BadRequestError,
    CertificateError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    TimedOutError,
    TubeError,
    UnavailableError,
    UnreachableError,
)

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest answer that is read; ten thousand partitions are two megabytes."""

ERRORS: Final[dict[int, type[TubeError]]] = {
    400: BadRequestError,
    401: CertificateError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    503: UnavailableError,
    504: TimedOutError,
}


def path_of(*parts: str | int) -> str:
    """``/api/v1/…`` with every part quoted."""
    return "/api/v1/" + "/".join(quote(str(part), safe="") for part in parts)


class Api:
    """Calls to one master."""

    def __init__(self, address: str, *, token: str = "", timeout_s: float = 10.0) -> None:
        self.address = address
        self._token = token
        self._timeout_s = timeout_s
        self.date = ""  # of the last answer, as the server's clock said
        # A proxy of the environment is for the web, not for a cluster's own ports.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, path: str, *, wait_s: float = 0.0, **query: object) -> Any:
        """Read; ``wait_s`` is how long the server may hold the request."""
        return self._json(self.call("GET", path, query=query, wait_s=wait_s), path)

    def change(
        self, method: str, path: str, body: Mapping[str, object] | None = None, **query: object
    ) -> Any:
        """POST, PATCH, PUT or DELETE."""
        return self._json(self.call(method, path, query=query, body=body), path)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        wait_s: float = 0.0,
    ) -> bytes:
        """One request and the content of its answer.

        Raises:
            UnreachableError: nobody answers there.  TimedOutError: no answer in time.
            TubeError: the class that belongs to the answer's status, with its message and hint.
        """
        asked = {k: v for k, v in (query or {}).items() if v is not None}
        url = f"http://{self.address}{path}" + (f"?{urlencode(asked)}" if asked else "")
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            request = urllib.request.Request(url, content, headers, method=method)
            with self._opener.open(request, timeout=self._timeout_s + wait_s) as answer:
                self.date = answer.headers.get("Date", "")
                return bytes(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise _refusal(error.code, error.read(ANSWER_BYTES_MAX)) from error
        except TimeoutError as error:
            raise self._late() from error
        except (URLError, HTTPException, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise self._late() from error
            text = getattr(reason, "strerror", None) or reason
            raise UnreachableError(
                f"no master answers at http://{self.address}: {text}",
                hint="start one with: tube dev — or name yours with --http HOST:PORT",
            ) from error

    def _late(self) -> TimedOutError:
        return TimedOutError(f"http://{self.address} did not answer within {self._timeout_s:g} s")

    def _json(self, content: bytes, path: str) -> Any:
        try:
            return json.loads(content)
        except ValueError as error:
            raise TubeError(
                f"http://{self.address}{path} does not answer in JSON; is it a master's HTTP port?"
            ) from error


def _refusal(status: int, content: bytes) -> TubeError:
    message, hint = f"HTTP status {status}", ""
    try:
        error = json.loads(content)["error"]
        message, hint = str(error["message"]), str(error.get("hint") or "")
    except (ValueError, KeyError, TypeError):
        pass
    kind = ERRORS.get(status, TubeError)
    return kind(message, hint=hint)
