"""``tube bench``."""

from __future__ import annotations

from tests.cli.conftest import Dev


def test_figures_are_json(dev: Dev, topic: str) -> None:
    """Of sending, of reading, and of both at once."""
    sent = dev("bench", "produce", topic, "-n", "500", "-s", "100").document
    assert (sent["messages"], sent["size_bytes"]) == (500, 100)
    assert sent["latency_ms"]["p50"] <= sent["latency_ms"]["max"]
    assert dev("bench", "consume", topic, "-n", "500").document["messages"] >= 500
    both = dev("bench", "e2e", topic, "-n", "100", "--in-flight", "5", "--rate", "500").document
    assert both["messages_per_s"] <= 600
    assert both["latency_ms"]["p50"] > 0
