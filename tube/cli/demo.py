"""``tube demo``: a group that rebalances, to look at."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from tube.cli.api import Api, path_of
from tube.cli.group_history import line
from tube.errors import TubeError, UnavailableError

if TYPE_CHECKING:
    from tube.client import Client

TOPIC: Final = "demo"
GROUP: Final = "demo-readers"
STOP_S: Final = 15.0
POLL_S: Final = 0.2
RATE: Final = 200


@click.command()
@click.option("--seconds", type=click.FloatRange(min=3), default=9.0, show_default=True)
def demo(seconds: float) -> None:
    """Show a group that rebalances, for a few seconds.

    Starts a cluster of its own, a producer and a consumer; another consumer joins after a third of the time, and
    the first leaves after two thirds.
    """
    from tube.client import Client

    with _cluster() as (url, http), Client(url) as sender:
        api = Api(http)
        api.change("POST", path_of("topics"), {"name": TOPIC, "partitions": 6})
        over = threading.Event()
        sending = threading.Thread(target=_send, args=(sender, over), daemon=True)
        sending.start()
        try:
            _play(api, url, seconds)
        finally:
            over.set()
            sending.join(STOP_S)


def _play(api: Api, url: str, seconds: float) -> None:
    """The script of the show."""
    begin_s = time.monotonic()
    seen: set[int] = set()
    first, second = _Reader("first", url), _Reader("second", url)
    readers = [first, second]
    _tell("the first consumer joins")
    first.start()
    _show(api, seen, readers, begin_s + seconds / 3)
    _tell("the second consumer joins: it gets its share, the rest stays where it is")
    second.start()
    _show(api, seen, readers, begin_s + seconds * 2 / 3)
    _tell("the first consumer leaves: the second takes over")
    first.leave()
    _show(api, seen, readers, begin_s + seconds)
    second.leave()
    for reader in readers:
        if reader.failure is not None:
            raise reader.failure
    _tell(f"first read {first.count} messages, second {second.count}")


class _Reader(threading.Thread):
    """A consumer with a client of its own."""

    def __init__(self, title: str, url: str) -> None:
        super().__init__(name=title, daemon=True)
        self.client_id = ""
        self.count = 0
        self.failure: TubeError | None = None
        self._url = url
        self._leaving = threading.Event()

    def run(self) -> None:
        """Read and acknowledge until told to leave."""
        from tube.client import Client

        try:
            with Client(self._url) as client:
                consumer = client.consumer([TOPIC], GROUP)
                self.client_id = consumer.client_id
                while not self._leaving.is_set():
                    found = consumer.batches(100, 0.1)
                    for message in {message.partition: message for message in found}.values():
                        consumer.ack(message)
                    self.count += len(found)
        except TubeError as error:
            self.failure = error

    def leave(self) -> None:
        """End, and wait for the end."""
        self._leaving.set()
        self.join(STOP_S)


def _send(client: Client, over: threading.Event) -> None:
    producer, i = client.producer(TOPIC), 0
    while not over.wait(1 / RATE):
        i += 1
        producer.send(b"message %d" % i)


def _show(api: Api, seen: set[int], readers: list[_Reader], until_s: float) -> None:
    """Print the group's events as they come."""
    while True:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            return
        threading.Event().wait(min(left_s, POLL_S))
        try:
            events = api.get(path_of("groups", GROUP, "history"), limit=200)["events"]
        except TubeError:
            continue  # the group is not there yet
        for event in events:
            if event["id"] in seen:
                continue
            seen.add(event["id"])
            text = line(event)
            for reader in readers:
                if reader.client_id:
                    text = text.replace(reader.client_id, reader.name)
            click.echo(f"    {text}")


def _tell(text: str) -> None:
    click.secho(f"— {text}", bold=True)


@contextmanager
def _cluster() -> Iterator[tuple[str, str]]:
    """``tube dev`` in a process of its own; its addresses for clients and for HTTP.

    Raises:
        UnavailableError: it did not start.
    """
    command = [sys.executable, "-P", "-m", "tube.cli.main", "dev", "--free-ports"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if not ready:
            raise UnavailableError("the cluster of the demo did not start", hint="try: tube dev")
        ports = json.loads(ready)["ports"]
        yield f"tube://127.0.0.1:{ports['master']}", f"127.0.0.1:{ports['http']}"
    finally:
        process.terminate()
        process.wait(STOP_S)
