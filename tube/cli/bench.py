"""``tube bench``: measures a running cluster through the SDK and prints one JSON object."""

from __future__ import annotations

import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tube import __version__
from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import topic_names
from tube.errors import TimedOutError

if TYPE_CHECKING:
    from tube.client import Consumer, Message, Receipt

F = TypeVar("F", bound=Callable[..., Any])

STAMP_BYTES: Final = 8
"""The send time in ns at the beginning of a message of ``e2e``."""

QUIET_S: Final = 10.0
"""A consumer that gets nothing for so long gives up."""


@click.group()
def bench() -> None:
    """Measure a running cluster.

    The client is measured as well: it is one Python process.
    """


def _options(f: F) -> F:
    for option in (
        click.option("--in-flight", type=click.IntRange(min=1), default=1000, show_default=True),
        click.option(
            "-s",
            "--size",
            type=click.IntRange(min=8),
            default=1000,
            show_default=True,
            help="Bytes.",
        ),
        click.option(
            "-n", "--count", type=click.IntRange(min=1), default=100_000, show_default=True
        ),
        click.argument("topic", shell_complete=topic_names),
    ):
        f = option(f)
    return f


@bench.command("produce")
@_options
@with_cluster
def produce(cluster: Cluster, /, *, topic: str, count: int, size: int, in_flight: int) -> None:
    """Send messages and time their acknowledgements."""

    with cluster.client() as client:
        producer = client.producer(topic)
        producer.send(bytes(size)).result()  # connections and tokens are there
        load = _Load(in_flight)
        begin_s = time.perf_counter()
        for _ in range(count):
            load.send(lambda: producer.send(bytes(size)))
        producer.flush()
        seconds = time.perf_counter() - begin_s
    _print("produce", topic, count, size, seconds, load.latencies_s, in_flight=in_flight)


@bench.command("consume")
@_options
@with_cluster
def consume(cluster: Cluster, /, *, topic: str, count: int, size: int, in_flight: int) -> None:
    """Read messages from the beginning with a new group; --size and --in-flight do not matter."""

    del size, in_flight
    with cluster.client() as client:
        consumer = client.consumer([topic], f"tube-bench-{secrets.token_hex(4)}")
        messages = _batch(consumer)
        begin_s, bytes_read, read = time.perf_counter(), 0, 0
        while read < count:
            bytes_read += sum(len(message.value) for message in messages)
            read += len(messages)
            messages = _batch(consumer) if read < count else []
        seconds = time.perf_counter() - begin_s
    _print("consume", topic, read, bytes_read // read, seconds, [])


@bench.command("e2e")
@_options
@click.option(
    "--rate",
    type=click.FloatRange(min=1),
    help="Messages per second (default: as fast as it goes).",
)
@with_cluster
def e2e(
    cluster: Cluster, /, *, topic: str, count: int, size: int, in_flight: int, rate: float | None
) -> None:
    """Send and read at once; latencies are from send to read."""
    from tube.client import ConsumerOptions

    latencies_s: list[float] = []
    with cluster.client() as client, cluster.client() as reader:
        assigned = threading.Event()
        consumer = reader.consumer(
            [topic],
            f"tube-bench-{secrets.token_hex(4)}",
            ConsumerOptions(start="latest"),
            on_assign=lambda _found: assigned.set(),
        )
        if not assigned.wait(QUIET_S):
            raise TimedOutError(f"the consumer got no partition within {QUIET_S:g} s")
        producer, padding, load = (
            client.producer(topic),
            bytes(size - STAMP_BYTES),
            _Load(in_flight),
        )
        _seen_once(consumer, lambda: producer.send(time.time_ns().to_bytes(8) + padding).result())

        def send_all() -> None:
            for i in range(count):
                if rate is not None:
                    _pause_until(begin_s + i / rate)
                load.send(lambda: producer.send(time.time_ns().to_bytes(8) + padding))

        begin_s = time.perf_counter()
        sender = threading.Thread(target=send_all, daemon=True)
        sender.start()
        while len(latencies_s) < count:
            found, now_ns = _batch(consumer), time.time_ns()
            latencies_s += [(now_ns - int.from_bytes(m.value[:8])) / 1e9 for m in found]
        seconds = time.perf_counter() - begin_s
        sender.join()
    _print("e2e", topic, count, size, seconds, latencies_s, in_flight=in_flight, rate=rate)


class _Load:
    """Keeps at most ``in_flight`` messages unacknowledged, and their latencies."""

    def __init__(self, in_flight: int) -> None:
        self._room = threading.Semaphore(in_flight)
        self.latencies_s: list[float] = []

    def send(self, send: Callable[[], Future[Receipt]]) -> None:
        """Wait for room and send."""
        self._room.acquire()
        begin_s = time.perf_counter()

        def done(future: Future[Receipt]) -> None:
            self._room.release()
            if future.exception() is None:
                self.latencies_s.append(time.perf_counter() - begin_s)

        send().add_done_callback(done)


def _batch(consumer: Consumer) -> list[Message]:
    """The next messages, all acknowledged.

    Raises:
        TimedOutError: none came for ``QUIET_S``.
    """
    found = consumer.batches(10_000, QUIET_S)
    if not found:
        raise TimedOutError(
            f"no message came for {QUIET_S:g} s", hint="are there enough in the topic?"
        )
    for message in {message.partition: message for message in found}.values():
        consumer.ack(message)
    return found


def _seen_once(consumer: Consumer, send: Callable[[], object]) -> None:
    """Send single messages until one arrives: from then on every partition that is held is read."""
    until_s = time.monotonic() + QUIET_S
    send()
    while not consumer.batches(1, 0.5):
        if time.monotonic() > until_s:
            raise TimedOutError(f"nothing arrived within {QUIET_S:g} s")
        send()
    while consumer.batches(1000, 0.5):
        pass


def _pause_until(at_s: float) -> None:
    wait_s = at_s - time.perf_counter()
    if wait_s > 0:
        threading.Event().wait(wait_s)


def _print(
    what: str,
    topic: str,
    count: int,
    size: int,
    seconds: float,
    latencies_s: list[float],
    **more: object,
) -> None:
    result: dict[str, object] = {
        "bench": what,
        "topic": topic,
        "messages": count,
        "size_bytes": size,
        "seconds": round(seconds, 3),
        "messages_per_s": round(count / seconds),
        "mb_per_s": round(count * size / seconds / 1e6, 1),
        **{name: value for name, value in more.items() if value is not None},
    }
    if latencies_s:
        ordered = sorted(latencies_s)
        result["latency_ms"] = {
            f"p{share:g}": round(ordered[int(len(ordered) * share / 100)] * 1000, 3)
            for share in (50, 90, 99, 99.9)
        } | {"max": round(ordered[-1] * 1000, 3)}
    result["machine"] = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": os.cpu_count(),
        "tube": __version__,
    }
    click.echo(json.dumps(result, indent=2))
