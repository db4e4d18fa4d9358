"""``tube produce``: lines of standard input, or of a file, to a topic."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from tube.cli.cluster import Cluster, with_cluster
from tube.cli.complete import topic_names
from tube.errors import TimedOutError, TubeError, UnreachableError

if TYPE_CHECKING:
    from tube.client import Producer, Receipt

PENDING_MAX: Final = 100_000
"""Most messages whose receipts are waited for; the SDK bounds their bytes."""


class Sending:
    """Counts what was acknowledged, keeps the first failure, and prints receipts in order."""

    def __init__(self, *, receipts: bool) -> None:
        self.sent = 0
        self.failed = 0
        self.byte_count = 0
        self.failure: TubeError | None = None
        self._receipts = receipts
        self._pending: deque[Future[Receipt]] = deque()

    def add(self, future: Future[Receipt], size: int) -> None:
        """One more message is on its way."""
        self._pending.append(future)
        self.byte_count += size
        self.settle(PENDING_MAX)

    def settle(self, pending_max: int) -> None:
        """Take what is done, in order; wait while more than ``pending_max`` are not."""
        while self._pending and (len(self._pending) > pending_max or self._pending[0].done()):
            future = self._pending.popleft()
            try:
                receipt = future.result()
            except TubeError as error:
                self.failed += 1
                self.failure = self.failure or error
                continue
            self.sent += 1
            if self._receipts:
                click.echo(_receipt_line(receipt))


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "-k", "--key-delimiter", metavar="TEXT", help="What is before it in a line is the key."
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="For every message."
)
@click.option(
    "--filter", "message_filter", metavar="NAME", help="The message type that consumers filter by."
)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read this.",
)
@click.option("--receipts", is_flag=True, help="Print where each message was put, as JSON lines.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Seconds until a message that is not acknowledged fails.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@with_cluster
def produce(
    cluster: Cluster,
    /,
    *,
    topic: str,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    message_filter: str | None,
    path: Path | None,
    receipts: bool,
    timeout_s: float,
    quiet: bool,
) -> None:
    """Send the lines of standard input to a topic."""
    from tube.client import ProducerOptions

    _require_topic(cluster, topic)
    attributes = dict(_header(text) for text in headers) or None
    delimiter = key_delimiter.encode() if key_delimiter else None
    sending = Sending(receipts=receipts)
    begin_s = time.monotonic()
    with _source(path) as source, cluster.client() as client:
        producer = client.producer(topic, ProducerOptions(delivery_s=timeout_s))
        for line in _lines(source, path):
            key, value = _split(line, delimiter)
            future = producer.send(value, key=key, headers=attributes, filter=message_filter)
            sending.add(future, len(value))
            if sending.failure is not None:
                break  # what comes after would be out of order, and usually fails as well
        _finish(producer, sending)
    if not quiet:
        _summary(topic, sending, time.monotonic() - begin_s)
    if sending.failure is not None:
        raise sending.failure


def _require_topic(cluster: Cluster, topic: str) -> None:
    """Ask before waiting for a broker that will never come; without HTTP, nobody can say.

    Raises:
        NotFoundError: there is no such topic.
    """
    from tube.cli.api import path_of

    with suppress(UnreachableError, TimedOutError):
        cluster.api(1.0).get(path_of("topics", topic))


def _finish(producer: Producer, sending: Sending) -> None:
    try:
        producer.flush()
    finally:
        sending.settle(0)


def _summary(topic: str, sending: Sending, seconds: float) -> None:
    rate = sending.sent / seconds if seconds > 0 else 0
    failed = f", {sending.failed} failed" if sending.failed else ""
    click.echo(
        f"{sending.sent} messages ({sending.byte_count} bytes) to {topic} in {seconds:.2f} s,"
        f" {rate:.0f}/s{failed}",
        err=True,
    )


def _header(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="-H")
    return name, value


def _split(line: bytes, delimiter: bytes | None) -> tuple[bytes | None, bytes]:
    """Key and value of a line; a line without the delimiter has no key."""
    if delimiter is None:
        return None, line
    key, separator, value = line.partition(delimiter)
    return (key, value) if separator else (None, line)


@contextmanager
def _source(path: Path | None) -> Iterator[IO[bytes]]:
    if path is None:
        yield sys.stdin.buffer
        return
    with path.open("rb") as file:
        yield file


def _lines(source: IO[bytes], path: Path | None) -> Iterator[bytes]:
    """Lines without their ends; with a progress bar when a file is sent from a terminal."""
    if path is None or not sys.stderr.isatty():
        yield from (line.removesuffix(b"\n") for line in source)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(path.name, total=os.path.getsize(path))
        read = 0
        for i, line in enumerate(source):
            yield line.removesuffix(b"\n")
            read += len(line)
            if i % 1000 == 0:
                progress.update(task, completed=read)


def _receipt_line(receipt: Receipt) -> str:
    return json.dumps(
        {
            "topic": receipt.topic,
            "broker_id": receipt.partition.broker_id,
            "partition_id": receipt.partition.partition_id,
            "offset": receipt.offset,
            "timestamp_ms": receipt.timestamp_ms,
            "durable": receipt.durable,
        }
    )
