"""One consumer joins four on 64 partitions: how long until all are balanced, and who moved.

While messages flow; at the end every message must have come exactly once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from bench.harness import dev, report, spread
from tube.client import Client, Consumer, Outgoing
from tube.values import Partition

RUNS = 5
PARTITIONS = 64
MEMBERS = 4
MESSAGES = 4000


class Reader:
    """A member that reads and acknowledges in a thread."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.client = Client(url)
        self.read: list[bytes] = []
        self.dropped: list[Partition] = []
        self.taken: list[Partition] = []
        self.consumer: Consumer = self.client.consumer(
            ["demo"], "group", on_assign=self.taken.extend, on_revoke=self.dropped.extend
        )
        self._stop = stop
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self.consumer.batches(500, 0.05):
                self.read.append(message.value)
                self.consumer.ack(message)

    def close(self) -> None:
        """Leave."""
        self._thread.join()
        self.client.close()


def balanced(readers: list[Reader]) -> bool:
    """Whether everybody has its share."""
    sizes = [len(reader.consumer.assignment) for reader in readers]
    return sum(sizes) == PARTITIONS and max(sizes) - min(sizes) <= 1


def wait_until_balanced(readers: list[Reader]) -> float:
    """Seconds it took."""
    started = time.monotonic()
    while not balanced(readers):
        threading.Event().wait(0.002)
        if time.monotonic() - started > 60:
            raise SystemExit("not balanced after 60 s")
    return time.monotonic() - started


def one_run() -> dict[str, float]:
    """Four members, then a fifth."""
    stop = threading.Event()
    with dev() as server:
        server.create_topic("demo", PARTITIONS)
        with Client(server.url) as client:
            producer = client.producer("demo")
            readers = [Reader(server.url, stop) for _ in range(MEMBERS)]
            wait_until_balanced(readers)
            while sum(len(r.taken) - len(r.dropped) for r in readers) < PARTITIONS:
                threading.Event().wait(0.002)  # callbacks come a little after the assignment
            before = [len(reader.dropped) for reader in readers], [len(r.taken) for r in readers]
            half = MESSAGES // 2
            producer.send_many(Outgoing(b"%d" % i, key=b"%d" % i) for i in range(half))
            started = time.monotonic()
            joiner = Reader(server.url, stop)
            registered_s = time.monotonic() - started
            wait_until_balanced([*readers, joiner])
            balanced_s = time.monotonic() - started
            producer.send_many(Outgoing(b"%d" % i, key=b"%d" % i) for i in range(half, MESSAGES))
            everybody = [*readers, joiner]
            deadline = time.monotonic() + 20
            while sum(len(r.read) for r in everybody) < MESSAGES and time.monotonic() < deadline:
                threading.Event().wait(0.01)
            stop.set()
            dropped = sum(len(r.dropped) - n for r, n in zip(readers, before[0], strict=True))
            retaken = sum(len(r.taken) - n for r, n in zip(readers, before[1], strict=True))
            taken = len(joiner.taken)
            for reader in everybody:
                reader.close()
    counts = Counter(value for reader in everybody for value in reader.read)
    return {
        "balanced_s": balanced_s,
        "registered_s": registered_s,
        "moved_to_joiner": taken,
        "given_up": dropped,
        "moved_between_others": retaken,
        "lost": MESSAGES - len(counts),
        "doubled": sum(counts.values()) - len(counts),
    }


def main() -> None:
    """Measure."""
    runs = [one_run() for _ in range(RUNS)]
    figures = {name: spread([run[name] for run in runs]) for name in runs[0]}
    report("rebalance", {"partitions": PARTITIONS, "members": MEMBERS + 1, "runs": RUNS, **figures})


if __name__ == "__main__":
    main()
