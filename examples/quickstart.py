"""Tube in a few seconds, on real events: ``scripts/quickstart`` runs this.

Starts ``tube dev`` on free ports, publishes the departures from New York of two weeks in 2013, and reads them
with a group of two members; while they read, a third joins and the first leaves.  Then it checks that every
event arrived exactly once.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tube.cli.api import Api, path_of
from tube.client import Client, ConsumerOptions, Message, Outgoing
from tube.errors import StaleAssignmentError, TubeError
from tube.values import Partition

FLIGHTS = Path(__file__).parent / "flights" / "flights-2013-01.csv.gz"
TOPIC, PARTITIONS, GROUP = "flights", 8, "departure-board"
BATCH = 100
PAUSE_S = 0.04
"""What a member does with a batch; without it the reading would be over before anybody could join."""

LIMIT_S = 60.0
Ports = Mapping[str, int]
TUBE = [
    sys.executable,
    "-P",
    "-m",
    "tube.cli.main",
]  # what is installed, not what lies in this folder


class UnexpectedError(Exception):
    """The quickstart did not go as it should."""


@dataclass
class Board:
    """What all members have read: how often each row was seen, by whom."""

    rows: list[dict[str, str]]
    seen: Counter[int] = field(default_factory=Counter)
    by_member: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self, member: str, message: Message) -> None:
        """One event was read; it must be the one that was published."""
        row = int(message.headers["row"])
        if json.loads(message.value) != self.rows[row]:
            raise UnexpectedError(f"row {row} came back changed: {message.value!r}")
        with self.lock:
            self.seen[row] += 1
            self.by_member[member] += 1

    @property
    def count(self) -> int:
        """How many different events were read."""
        return len(self.seen)


class Member(threading.Thread):
    """A member of the group with a client of its own, as another process would be."""

    def __init__(self, name: str, ports: Ports, board: Board) -> None:
        super().__init__(name=name, daemon=True)
        self.client_id = ""
        self.partitions: set[Partition] = set()
        self.failure: Exception | None = None
        self._ports = ports
        self._board = board
        self._leaving = threading.Event()

    def leave(self) -> None:
        """Finish the batch, then leave the group."""
        self._leaving.set()

    def run(self) -> None:
        """Read until told to leave."""
        try:
            with Client(f"tube://127.0.0.1:{self._ports['master']}") as client:
                consumer = client.consumer(
                    [TOPIC], GROUP, ConsumerOptions(), on_assign=self.partitions.update
                )
                self.client_id = consumer.client_id
                while not self._leaving.is_set():
                    for message in consumer.batches(BATCH, wait_s=0.1):
                        try:
                            consumer.ack(message)
                        except StaleAssignmentError:
                            continue  # its partition moved: the next owner reads it
                        self._board.post(self.name, message)
                    self._leaving.wait(PAUSE_S)
        except Exception as error:  # the main thread reports it
            self.failure = error


@contextmanager
def cluster() -> Iterator[Ports]:
    """``tube dev`` on free ports; everything is gone afterwards."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*TUBE, "dev", "--free-ports"], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                errors.seek(0)
                raise UnexpectedError(f"tube dev did not start:\n{errors.read()}")
            yield json.loads(line)["ports"]
        finally:
            process.terminate()
            process.wait(LIMIT_S)


def load_flights() -> list[dict[str, str]]:
    """The events."""
    with gzip.open(FLIGHTS, "rt", encoding="ascii", newline="") as file:
        return list(csv.DictReader(file))


def publish(ports: Ports, rows: list[dict[str, str]]) -> None:
    """One message per departure; those of one flight number go to one partition, in order."""
    begin_s = time.monotonic()
    with Client(f"tube://127.0.0.1:{ports['master']}") as client:
        messages = [
            Outgoing(
                json.dumps(row).encode(),
                key=f"{row['carrier']}{row['flight']}",
                filter=row["carrier"],
                headers={"row": str(i)},
            )
            for i, row in enumerate(rows)
        ]
        receipts = client.producer(TOPIC).send_many(messages, LIMIT_S)
    seconds = time.monotonic() - begin_s
    used = len({receipt.partition for receipt in receipts})
    durable = all(receipt.durable for receipt in receipts)
    print(
        f"published  {len(receipts)} departures to {used} partitions in {seconds:.2f} s,"
        f" each {'on disk' if durable else 'in the page cache'} when it was acknowledged"
    )


def wait_until(board: Board, members: list[Member], share: float) -> None:
    """Wait until so much was read."""
    until_s = time.monotonic() + LIMIT_S
    while board.count < share * len(board.rows):
        failed = [member for member in members if member.failure is not None]
        if failed:
            raise UnexpectedError(f"{failed[0].name} failed: {failed[0].failure}")
        if time.monotonic() > until_s:
            raise UnexpectedError(f"only {board.count} of {len(board.rows)} events arrived")
        threading.Event().wait(0.01)


def read(ports: Ports, board: Board) -> list[Member]:
    """Two members begin; one joins; the first leaves."""
    anna, ben, cem = (Member(name, ports, board) for name in ("anna", "ben", "cem"))
    members = [anna, ben, cem]
    anna.start()
    ben.start()
    wait_until(board, members, 0.25)
    print(f"reading    {board.count} events read by anna and ben; cem joins")
    cem.start()
    wait_until(board, members, 0.6)
    print(f"reading    {board.count} events read; anna leaves")
    anna.leave()
    wait_until(board, members, 1.0)
    wait_for_commits(ports)
    for member in members:
        member.leave()
    for member in members:
        member.join(LIMIT_S)
    return members


def wait_for_commits(ports: Ports) -> None:
    """Wait until the group's offsets are at the ends: what came twice would have come by then."""
    api, until_s = Api(f"127.0.0.1:{ports['http']}"), time.monotonic() + LIMIT_S
    while (lag := api.get(path_of("groups", GROUP, "offsets"))["lag"]) > 0:
        if time.monotonic() > until_s:
            raise UnexpectedError(f"{lag} events were read but not acknowledged")
        threading.Event().wait(0.05)


def moves(ports: Ports, members: list[Member]) -> list[str]:
    """Each time a partition was given or taken, by whom and why, as the master's history has it."""
    names = {member.client_id: member.name for member in members}
    api = Api(f"127.0.0.1:{ports['http']}")
    events = api.get(path_of("groups", GROUP, "history"), limit=1000)["events"]
    begin_ms = min(event["at_ms"] for event in events)
    lines = []
    for event in events:
        who = names.get(event["client_id"], event["client_id"])
        where = (
            f"{event['topic']}:{event['partition_id']}" if event["partition_id"] is not None else ""
        )
        what = {
            "join": "joins",
            "leave": "leaves",
            "expire": "is gone",
            "connect": f"gets {where}",
            "disconnect": f"gives up {where}",
        }.get(event["kind"])
        if what is not None:
            after_ms = event["at_ms"] - begin_ms
            reason = event["reason"] or ""
            for client_id, name in names.items():
                reason = reason.replace(client_id, name)
            lines.append(f"  {after_ms:6} ms  {who:5} {what:20} {reason}".rstrip())
    return lines


def check(board: Board) -> None:
    """Every event exactly once.

    Raises:
        UnexpectedError: some are missing, or came twice.
    """
    missing = len(board.rows) - board.count
    doubled = [row for row, times in board.seen.items() if times > 1]
    if missing or doubled:
        raise UnexpectedError(f"{missing} events are missing, {len(doubled)} came more than once")


def keep(ports: Ports) -> None:
    """Lines to copy, then wait."""
    options = f"--master 127.0.0.1:{ports['master']} --http 127.0.0.1:{ports['http']}"
    tube = Path(sys.executable).with_name("tube")
    print(f"""
It goes on running.  In another terminal:

  alias tube='{tube} {options}'
  tube topic describe {TOPIC}
  tube group history {GROUP}
  tube consume {TOPIC} -c 3 -f '%k from partition %p: %s\\n'
  echo hello | tube produce {TOPIC}

and from Python ({sys.executable}):

  from tube.client import Client
  with Client("tube://127.0.0.1:{ports["master"]}") as client:
      print(client.producer("{TOPIC}").send(b"hello").result())

Ctrl-C stops it.""")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


def main() -> int:
    """Run it; 0 when every event arrived exactly once."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    options = parser.parse_args()
    begin_s = time.monotonic()
    try:
        with cluster() as ports:
            print(f"started    tube dev in {time.monotonic() - begin_s:.2f} s")
            create = ["topic", "create", TOPIC, "--partitions", str(PARTITIONS)]
            subprocess.run([*TUBE, "--http", f"127.0.0.1:{ports['http']}", *create], check=True)
            board = Board(load_flights())
            publish(ports, board.rows)
            members = read(ports, board)
            print("moves      of partitions, and why:")
            print("\n".join(moves(ports, members)))
            for member in members:
                print(
                    f"{member.name:9}  read {board.by_member[member.name]:6} events"
                    f" from {len(member.partitions)} partitions"
                )
            check(board)
            print(f"checked    all {board.count} events arrived, each exactly once")
            if options.keep:
                keep(ports)
    except (UnexpectedError, TubeError, subprocess.CalledProcessError) as error:
        print(f"quickstart failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
