"""HTTP on a real socket: rights, errors, and every limit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol

from tests.broker.raw import eventually
from tube import errors
from tube.net.daemon import listening, port_number
from tube.net.health import ReactorLag, add_health
from tube.net.web import BODY_BYTES_MAX, CHANGE, Asked, Routes, Text, json_site


class Browser(Protocol):
    """One connection; keeps what came."""

    def __init__(self) -> None:
        self.bytes = b""
        self.closed = False

    def dataReceived(self, data: bytes) -> None:
        self.bytes += data

    def connectionLost(self, reason=None) -> None:
        self.closed = True


class Site:
    """Routes on a port, and what clients say to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.browsers: list[Browser] = []

    async def connect(self) -> Browser:
        browser = Browser()
        factory = Factory.forProtocol(Browser)
        factory.noisy = False
        factory.buildProtocol = lambda _address: browser
        await HostnameEndpoint(reactor, b"127.0.0.1", self.port).connect(factory)
        self.browsers.append(browser)
        return browser

    async def ask(
        self, method: str, path: str, body: bytes = b"", *headers: str
    ) -> tuple[int, dict]:
        """Status and JSON of an answer."""
        browser = await self.connect()
        lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        text = "\r\n".join(lines).encode("latin-1")
        browser.transport.write(text + b"\r\n\r\n" + body)
        await eventually(lambda: browser.closed)
        head, _, content = browser.bytes.partition(b"\r\n\r\n")
        if b"chunked" in head.lower():
            content = b"".join(content.split(b"\r\n")[1::2])
        return int(head.split()[1]), json.loads(content or b"{}")


KINDS = {
    "not-found": (errors.NotFoundError("x"), 404),
    "conflict": (errors.ConflictError("x"), 409),
    "forbidden": (errors.ForbiddenError("x"), 403),
    "bad": (errors.BadRequestError("x"), 400),
    "certificate": (errors.CertificateError("x"), 401),
    "timeout": (errors.TimedOutError("x"), 504),
    "standby": (errors.StandbyError("x"), 503),
    "full": (errors.DiskFullError("x"), 503),
    "occupied": (errors.PartitionOccupiedError("x"), 400),
    "store": (errors.StoreError("x"), 500),
}

cancelled: list[str] = []
waiting: list[Deferred] = []


def _routes() -> Routes:
    routes = Routes()

    def fail(asked: Asked) -> object:
        raise KINDS[asked.path["kind"]][0]

    async def slow(asked: Asked) -> object:
        wait: Deferred[None] = Deferred()
        waiting.append(wait)
        try:
            await wait
        except CancelledError:
            cancelled.append(asked.peer)
            raise
        return {}

    def crash(asked: Asked) -> object:
        raise ZeroDivisionError("a bug")

    routes.add("GET", "/echo/{name}", lambda asked: dict(asked.path) | dict(asked.query))
    routes.add("GET", "/number", lambda asked: {"n": asked.number("n", 7, least=1, most=9)})
    routes.add("POST", "/change", lambda asked: {"who": asked.principal} | dict(asked.body), CHANGE)
    routes.add("GET", "/fail/{kind}", fail)
    routes.add("GET", "/slow", slow)
    routes.add("GET", "/crash", crash)
    routes.add("GET", "/text", lambda _asked: Text(b"plain", status=202))
    return routes


@async_yield_fixture
async def site() -> AsyncIterator[Site]:
    """A site without an admin token."""
    async with listening(reactor, "127.0.0.1", 0, json_site(reactor, _routes())) as port:
        made = Site(port_number(port))
        yield made
        for browser in made.browsers:
            if not browser.closed:
                browser.transport.abortConnection()
        await eventually(lambda: all(browser.closed for browser in made.browsers))


@async_yield_fixture
async def guarded() -> AsyncIterator[Site]:
    """A site with an admin token."""
    async with listening(reactor, "127.0.0.1", 0, json_site(reactor, _routes(), "secret")) as port:
        yield Site(port_number(port))


async def test_routes_name_parts_of_the_path_and_the_query(site: Site) -> None:
    """Percent signs are decoded; unknown paths and methods are named."""
    assert await site.ask("GET", "/echo/a%2Fb?x=1&x=2&y=%C3%A4") == (
        200,
        {"name": "a/b", "x": "2", "y": "ä"},
    )
    status, answer = await site.ask("GET", "/nothing")
    assert (status, answer["error"]["message"]) == (404, "there is nothing at /nothing")
    status, answer = await site.ask("POST", "/echo/x")
    assert (status, answer["error"]["message"]) == (404, "/echo/x takes GET, not POST")


@pytest.mark.parametrize(
    ("text", "status"), [("5", 200), ("0", 400), ("10", 400), ("x", 400), ("9" * 5000, 400)]
)
async def test_numbers_of_the_query_have_limits(site: Site, text: str, status: int) -> None:
    """What is none, or outside, is refused with the limits."""
    assert (await site.ask("GET", f"/number?n={text}"))[0] == status


@pytest.mark.parametrize("kind", KINDS)
async def test_errors_become_statuses(site: Site, kind: str) -> None:
    """Each kind of error has its status and its own number in the body."""
    error, expected = KINDS[kind]
    status, answer = await site.ask("GET", f"/fail/{kind}")

    assert (status, answer["error"]["code"]) == (expected, error.code)


async def test_a_bug_is_logged_and_tells_nothing(site: Site, nothing_left_behind) -> None:
    """500 without the traceback; the log has it."""
    status, answer = await site.ask("GET", "/crash")

    assert (status, "bug" in json.dumps(answer)) == (500, False)
    assert len(nothing_left_behind) == 1
    nothing_left_behind.clear()


async def test_changes_need_the_token_or_this_machine(site: Site, guarded: Site) -> None:
    """Without a token only local callers, and no page of a browser; with one only who knows it."""
    assert await site.ask("POST", "/change", b'{"a": 1}') == (200, {"who": "local", "a": 1})
    assert (await site.ask("POST", "/change", b"{}", "Origin: http://evil"))[0] == 403
    assert (await guarded.ask("POST", "/change", b"{}"))[0] == 401
    assert (await guarded.ask("POST", "/change", b"{}", "Authorization: Bearer wrong"))[0] == 401
    assert (await guarded.ask("GET", "/number"))[0] == 200
    status, answer = await guarded.ask("POST", "/change", b"{}", "Authorization: Bearer secret")

    assert (status, answer["who"]) == (200, "admin")


async def test_headers_of_any_bytes_are_no_bug(site: Site, guarded: Site) -> None:
    """An authorization that is not UTF-8 is a wrong one, not a crash."""
    assert (await guarded.ask("POST", "/change", b"{}", "Authorization: Bearer \xff\xfe"))[0] == 401
    assert (await guarded.ask("GET", "/number", b"", "Authorization: \xff"))[0] == 200


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"1", b"\xff\xff", b"[" * 200_000, b'{"a":' * 100_000]
)
async def test_bodies_that_are_no_json_object_are_refused(site: Site, body: bytes) -> None:
    """400 with the reason, also for nesting that exhausts the parser."""
    assert (await site.ask("POST", "/change", body))[0] == 400


async def test_a_body_has_a_largest_size(site: Site) -> None:
    """Announced or in chunks: cut off, not kept."""
    announced = await site.connect()
    announced.transport.write(
        b"POST /change HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1)
    )
    await eventually(lambda: announced.closed)
    chunked = await site.connect()
    chunked.transport.write(
        b"POST /change HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    for _ in range(20):
        if not chunked.closed:
            chunked.transport.write(chunk)

    await eventually(lambda: chunked.closed)
    assert announced.bytes == chunked.bytes == b""


@pytest.mark.parametrize(
    "start",
    [
        b"GET /number HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"POST /change HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
    ],
)
async def test_slow_requests_are_cut_off(
    site: Site, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers and bodies that do not come to their end in time."""
    monkeypatch.setattr("tube.net.web.HEADERS_S_MAX", 0.1)
    monkeypatch.setattr("tube.net.web.BODY_S_MAX", 0.1)
    slow = await site.connect()
    slow.transport.write(start)
    await eventually(lambda: slow.closed)

    assert (await site.ask("GET", "/number"))[0] == 200


async def test_a_client_that_leaves_cancels_its_verb(site: Site) -> None:
    """Nobody waits for the answer of somebody who is gone."""
    cancelled.clear()
    waiting.clear()
    browser = await site.connect()
    browser.transport.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
    await eventually(lambda: waiting)
    browser.transport.abortConnection()
    await eventually(lambda: cancelled)

    assert cancelled == ["127.0.0.1"]


async def test_other_answers_than_json(site: Site) -> None:
    """A text has its type and status; HEAD has no body; nothing is kept by caches."""
    for method, body in ((b"GET", b"plain"), (b"HEAD", b"")):
        browser = await site.connect()
        browser.transport.write(method + b" /text HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await eventually(lambda browser=browser: browser.closed)
        head, _, content = browser.bytes.partition(b"\r\n\r\n")
        assert b"202" in head.split(b"\r\n")[0]
        assert b"text/plain" in head
        assert b"no-store" in head
        assert body in content
        assert bool(content) == bool(body)


def test_the_lag_of_the_reactor_is_how_late_a_tick_comes() -> None:
    """On time: 0; half a second late: half a second; then 0 again."""
    from twisted.internet.task import Clock

    clock = Clock()
    lag = ReactorLag(clock)
    seen = []
    for step_s in (0.1, 0.6, 0.1):
        clock.advance(step_s)
        lag.tick()
        seen.append(round(lag.seconds, 3))

    assert seen == [0, 0.5, 0]


async def test_health_routes_tell_what_is_wrong() -> None:
    """/readyz is 200 without reasons and 503 with them; /metrics is what the collector says."""
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector

    class One(Collector):
        def collect(self):
            yield GaugeMetricFamily("tube_test", "A test", value=4)

    routes, reasons = Routes(), []
    add_health(routes, One(), lambda: reasons)
    async with listening(reactor, "127.0.0.1", 0, json_site(reactor, routes)) as port:
        site = Site(port_number(port))
        assert await site.ask("GET", "/readyz") == (200, {"ready": True, "reasons": []})
        reasons.append("tired")
        assert await site.ask("GET", "/readyz") == (503, {"ready": False, "reasons": ["tired"]})
        browser = await site.connect()
        browser.transport.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await eventually(lambda: browser.closed)

        assert b"tube_test 4.0" in browser.bytes
