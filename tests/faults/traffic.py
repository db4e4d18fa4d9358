"""Producers and consumers in threads, and what they were told."""

from __future__ import annotations

import threading
from collections import defaultdict

from tube.client import Client, Consumer, ProducerOptions, Receipt
from tube.errors import StaleAssignmentError, TubeError
from tube.values import Partition


class Sender:
    """Sends numbered messages until it is stopped; keeps what was acknowledged and what failed."""

    def __init__(self, url: str, topic: str, name: str, *, pace_s: float = 0.002) -> None:
        self.acknowledged: dict[bytes, Receipt] = {}
        self.failures: list[BaseException] = []
        self.sent = 0
        self._client = Client(url)
        self._producer = self._client.producer(topic, ProducerOptions(delivery_s=40))
        self._name = name
        self._pace_s = pace_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(self._pace_s):
            value = b"%s-%d" % (self._name.encode(), self.sent)
            self.sent += 1
            future = self._producer.send(value)

            def told(done, value: bytes = value) -> None:
                error = done.exception()
                if error is None:
                    self.acknowledged[value] = done.result()
                else:
                    self.failures.append(error)

            future.add_done_callback(told)

    def stop(self) -> None:
        """Send no more, and wait for what is on its way."""
        self._stopping.set()
        self._thread.join(10)
        self._client.close(45)


class Reader:
    """A member of a group that acknowledges what it read, in a thread."""

    def __init__(self, url: str, topic: str, group: str) -> None:
        self.read: dict[Partition, dict[int, bytes]] = defaultdict(dict)
        self.count = 0
        self.failure: BaseException | None = None
        self.reports: list[str] = []
        self._client = Client(url, report=self.reports.append)
        self.consumer: Consumer = self._client.consumer([topic], group)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for message in self.consumer.batches(500, 0.1):
                    seen = self.read[message.partition].setdefault(message.offset, message.value)
                    assert seen == message.value, f"offset {message.offset} has two messages"
                    self.count += 1
                    try:
                        self.consumer.ack(message)
                    except StaleAssignmentError:
                        continue
        except (TubeError, AssertionError) as error:
            self.failure = error

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join(10)
        self._client.close()


class Watch:
    """Looks at a group's committed offsets all the time; they must never go back."""

    def __init__(self, offsets) -> None:
        self.backward: list[str] = []
        self.looked = 0
        self._offsets = offsets
        self._newest: dict[tuple[int, int], int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            try:
                rows = self._offsets()["partitions"]
            except OSError:  # the master is away
                continue
            self.looked += 1
            for row in rows:
                if row["committed"] is None:
                    continue
                key = (row["broker_id"], row["partition_id"])
                before = self._newest.get(key, 0)
                if row["committed"] < before:
                    self.backward.append(f"{key}: {before} -> {row['committed']}")
                self._newest[key] = max(before, row["committed"])

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join(20)


def everything_read(senders: list[Sender], readers: list[Reader]) -> bool:
    """Whether every acknowledged message was read."""
    return not missing(senders, readers)


def missing(senders: list[Sender], readers: list[Reader]) -> set[bytes]:
    """Acknowledged messages that nobody read at the place of their receipt."""
    lost = set()
    for sender in senders:
        for value, receipt in list(sender.acknowledged.items()):
            if not any(
                reader.read.get(receipt.partition, {}).get(receipt.offset) == value
                for reader in readers
            ):
                lost.add(value)
    return lost
