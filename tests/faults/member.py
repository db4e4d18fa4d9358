"""A consumer as a process of its own: ``python -m tests.faults.member URL TOPIC GROUP``.

Prints one JSON line per change: the partitions that it took, what it read, and what was committed for it.
"""

from __future__ import annotations

import json
import sys

from tube.client import Client, ClientOptions, ConsumerOptions
from tube.errors import StaleAssignmentError, TubeError


def main(url: str, topic: str, group: str) -> None:
    """Read for ever."""
    client = Client(url, ClientOptions(heartbeat_s=0.3))
    consumer = client.consumer([topic], group, ConsumerOptions(ack_interval_s=0.02))
    say(client_id=consumer.client_id)
    while True:
        read: dict[int, int] = {}
        stale: list[int] = []
        for message in consumer.batches(20, 0.1):
            try:
                consumer.ack(message)
                read[message.partition.partition_id] = message.offset
            except StaleAssignmentError:
                stale.append(message.partition.partition_id)
        committed = True
        try:
            consumer.commit()
        except TubeError:
            committed = False
        held = [partition.partition_id for partition in consumer.assignment]
        say(held=held, read=read, committed=committed, stale=stale)


def say(**facts: object) -> None:
    """One line."""
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
