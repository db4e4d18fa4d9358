"""``/metrics``, ``/healthz`` and ``/readyz``, the same on masters and brokers."""

from __future__ import annotations

import json
from collections.abc import Callable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from twisted.internet.interfaces import IReactorTime

from tube.net.web import Routes, Text

TICK_S = 0.1


class ReactorLag:
    """How late a 100 ms tick comes: above 0.05 s something blocks the reactor."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._due_s = clock.seconds() + TICK_S
        self.seconds = 0.0

    def tick(self) -> None:
        """Call every ``TICK_S``."""
        now_s = self._clock.seconds()
        self.seconds = max(0.0, now_s - self._due_s)
        self._due_s = now_s + TICK_S


def add_health(routes: Routes, collector: Collector, reasons: Callable[[], list[str]]) -> None:
    """Add the three routes; ``reasons`` says why the process is not ready ([] when it is)."""
    registry = CollectorRegistry()
    registry.register(collector)

    def metrics(_asked: object) -> Text:
        return Text(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)

    def ready(_asked: object) -> Text:
        found = reasons()
        content = json.dumps({"ready": not found, "reasons": found}).encode()
        return Text(content, "application/json", 200 if not found else 503)

    routes.add("GET", "/metrics", metrics)
    routes.add("GET", "/healthz", lambda _asked: Text(b"ok\n"))
    routes.add("GET", "/readyz", ready)
