"""JSON over HTTP on twisted.web, hardened: every size and every wait has a limit.

A route is a method, a path template such as ``/api/v1/topics/{name}``, a *right* and a verb.  Reading needs the
right ``view``; changing needs ``change``: the admin token, or, where none is configured, a local caller.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from tube.errors import (
    BadRequestError,
    CertificateError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    OffsetOutOfRangeError,
    StaleEpochError,
    TimedOutError,
    TubeError,
    UnavailableError,
    WireError,
)

log = Logger(namespace="tube.net.web")

BODY_BYTES_MAX: Final = 1024 * 1024
"""Longest request body: a change of a topic is a hundred bytes."""

HEADERS_S_MAX: Final = 10.0
"""How long a client may take for its request line and headers together."""

BODY_S_MAX: Final = 30.0
"""How long a client may take for its body."""

VIEW: Final = "view"
CHANGE: Final = "change"

_STATUS: Final[list[tuple[type[TubeError], int]]] = [
    (NotFoundError, 404),
    (OffsetOutOfRangeError, 404),
    (ConflictError, 409),
    (StaleEpochError, 503),
    (CertificateError, 401),
    (ForbiddenError, 403),
    (BadRequestError, 400),
    (WireError, 400),
    (ConfigError, 400),
    (TimedOutError, 504),
    (UnavailableError, 503),
]

_LOCAL = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})


@dataclass(frozen=True, slots=True)
class Text:
    """An answer that is not JSON."""

    content: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: what its path names, its query and body, and who asks."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    principal: str
    peer: str

    def number(self, name: str, default: int, *, least: int = 0, most: int = 1_000_000) -> int:
        """A number of the query.

        Raises:
            BadRequestError: no number, or not in ``least``..``most``.
        """
        text = self.query.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise BadRequestError(f"{name}: expected a number, got {text!r}") from None
        if not least <= value <= most:
            raise BadRequestError(f"{name}: {value} is not in {least}..{most}")
        return value


Verb = Callable[[Asked], Awaitable[object] | object]


@dataclass(frozen=True, slots=True)
class Route:
    """What answers a method on a path."""

    method: str
    template: str
    right: str
    verb: Verb


@dataclass(slots=True)
class Routes:
    """All routes of a site; later ones do not override earlier ones."""

    routes: list[Route] = field(default_factory=list)

    def add(self, method: str, template: str, verb: Verb, right: str = VIEW) -> None:
        """Add a route."""
        self.routes.append(Route(method, template, right, verb))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route for a request, and what its path names.

        Raises:
            NotFoundError: no such path, or not this method on it.
        """
        parts = [unquote(part) for part in path.strip("/").split("/")]
        others: list[str] = []
        for route in self.routes:
            named = _match(route.template.strip("/").split("/"), parts)
            if named is None:
                continue
            if route.method == method:
                return route, named
            others.append(route.method)
        if others:
            raise NotFoundError(f"{path} takes {', '.join(sorted(others))}, not {method}")
        raise NotFoundError(f"there is nothing at {path}")


def _match(template: list[str], parts: list[str]) -> dict[str, str] | None:
    if len(template) != len(parts):
        return None
    named: dict[str, str] = {}
    for pattern, part in zip(template, parts, strict=True):
        if pattern.startswith("{"):
            named[pattern[1:-1]] = part
        elif pattern != part:
            return None
    return named


class LimitedRequest(Request):
    """A request whose headers and body may only take so long and be so large."""

    clock: IReactorTime | None = None
    _timer: IDelayedCall | None = None
    _received_bytes = 0

    def __init__(self, channel: HTTPChannel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **kwargs)
        self._limit(HEADERS_S_MAX)

    def gotLength(self, length: int | None) -> None:
        """The headers are complete."""
        self._limit(BODY_S_MAX)
        if length is not None and length > BODY_BYTES_MAX:
            self._cut_off()
            return
        super().gotLength(length)

    def handleContentChunk(self, data: bytes) -> None:
        """A piece of the body; chunked bodies announce no length."""
        self._received_bytes += len(data)
        if self._received_bytes > BODY_BYTES_MAX:
            self._cut_off()
            return
        super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """All is there."""
        self._stop_timer()
        super().requestReceived(command, path, version)

    def connectionLost(self, reason: Failure) -> None:
        """The client is gone."""
        self._stop_timer()
        super().connectionLost(reason)

    def _limit(self, seconds: float) -> None:
        self._stop_timer()
        if self.clock is not None:
            self._timer = self.clock.callLater(seconds, self._cut_off)

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _cut_off(self) -> None:
        self._stop_timer()
        transport = getattr(self.channel, "transport", None)
        if transport is not None:
            transport.abortConnection()


class JsonResource(Resource):
    """Answers every path from ``routes``.

    ``admin_token`` is what changes need; "" lets only local callers change things.
    """

    isLeaf = True  # noqa: N815  Twisted's name

    def __init__(self, routes: Routes, admin_token: str) -> None:
        super().__init__()
        self._routes = routes
        self._admin_token = admin_token

    def render(self, request: Request) -> int:
        """Find the verb, run it, write its answer."""
        running = Deferred.fromCoroutine(self._answer(request))
        request.notifyFinish().addErrback(lambda _reason: running.cancel())
        running.addErrback(_unexpected)
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        method = request.method.decode("ascii", "replace")
        path = request.path.decode("utf-8", "replace")
        try:
            route, named = self._routes.find("GET" if method == "HEAD" else method, path)
            asked = self._asked(request, route, named)
            result = route.verb(asked)
            if isinstance(result, Awaitable):
                result = await result
            _write(request, result)
        except CancelledError:
            return
        except TubeError as error:
            _write_error(request, error)
        except Exception:
            log.failure("{method} {path}: failed", method=method, path=path)
            _write_error(request, TubeError("internal error; the server's log has the details"))

    def _asked(self, request: Request, route: Route, named: dict[str, str]) -> Asked:
        peer = str(request.getClientAddress().host)
        principal = self._authorise(request, route, peer)
        query = {_text(k): _text(v[-1]) for k, v in request.args.items() if v}
        body: Any = {}
        if request.method in (b"POST", b"PATCH", b"PUT"):
            if request.content is None:
                raise BadRequestError("the request has no body")
            content = request.content.read()
            try:
                body = json.loads(content) if content else {}
            except (ValueError, RecursionError) as error:
                raise BadRequestError(f"the body is not JSON: {error}") from error
            if not isinstance(body, dict):
                raise BadRequestError("the body is not a JSON object")
        return Asked(named, query, body, principal, peer)

    def _authorise(self, request: Request, route: Route, peer: str) -> str:
        """Who asks; refuses changes without the right to make them.

        A page of another site may make a browser on this machine send requests; so what a browser sends
        on behalf of a page (``Origin``) needs the token.
        """
        raw: bytes = request.getHeader(b"authorization") or b""  # whatever bytes a client sends
        given = raw.removeprefix(b"Bearer ").strip()
        if self._admin_token and hmac.compare_digest(given, self._admin_token.encode()):
            return "admin"
        if route.right == VIEW:
            return peer
        if self._admin_token:
            raise CertificateError("changes need the admin token", hint="give it with --token-file")
        if peer not in _LOCAL or request.getHeader(b"origin") is not None:
            raise ForbiddenError(
                "changes are only taken from this machine",
                hint="set http.admin_token_file on the server and give the token with --token-file",
            )
        return "local"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _unexpected(failure: Failure) -> None:
    if not failure.check(CancelledError):
        log.failure("an HTTP answer failed", failure=failure)


def _write(request: Request, result: object) -> None:
    if not isinstance(result, Text):
        content = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
        result = Text(content, "application/json")
    request.setResponseCode(result.status)
    request.setHeader("content-type", result.content_type)
    request.setHeader("x-content-type-options", "nosniff")
    request.setHeader("cache-control", "no-store")
    request.write(result.content)
    request.finish()


def _write_error(request: Request, error: TubeError) -> None:
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 500 and 400 <= error.code < 500:
        status = 400
    content = {"error": {"code": error.code, "message": str(error), "hint": error.hint}}
    _write(request, Text(json.dumps(content).encode(), "application/json", status))


def json_site(clock: IReactorTime, routes: Routes, admin_token: str = "") -> Site:
    """A site that answers from ``routes``."""

    class Limited(LimitedRequest):
        """Requests of this site."""

    Limited.clock = clock
    site = Site(
        JsonResource(routes, admin_token), requestFactory=Limited, reactor=clock, timeout=60
    )
    site.noisy = False
    return site
