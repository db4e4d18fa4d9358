"""A consumer that is frozen beyond its time-outs loses its partitions, and cannot commit when it wakes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from queue import Empty

from tests.faults.conftest import MakePlant
from tests.faults.processes import Program, wait_until
from tests.faults.traffic import Sender


def said(program: Program) -> Iterator[dict]:
    """What a member said since the last look."""
    while True:
        try:
            yield program.lines.get_nowait()
        except Empty:
            return


class Heard:
    """What a member said, added up."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.held: set[int] = set()
        self.read: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.lines = 0

    def listen(self) -> Heard:
        """Hear what is new."""
        for line in said(self.program):
            self.lines += 1
            if "held" not in line:
                continue
            self.held = set(line["held"])
            read = {int(partition): offset for partition, offset in line["read"].items()}
            self.read |= read
            if line["committed"]:
                self.committed |= {p: o for p, o in read.items() if p in self.held}
        return self


def test_a_frozen_consumer_never_shares_a_partition(make_plant: MakePlant) -> None:
    """SIGSTOP beyond the time-outs: the other member reads on alone; after SIGCONT they share, exclusively."""
    plant = make_plant(
        "consumer_timeout_s=1", "balance_delay_s=0.05", broker_sets=("consumer_timeout_s=1",)
    )
    plant.create_topic("demo", 4)
    sender = Sender(plant.url, "demo", "s", pace_s=0.005)
    first = Heard(plant.member("demo", "g1"))
    second = Heard(plant.member("demo", "g1"))
    wait_until(lambda: len(first.listen().held) == len(second.listen().held) == 2, 15, "they share")
    frozen = set(first.held)
    wait_until(lambda: frozen <= set(first.listen().committed), 10, "the first commits")
    first.program.signal(signal.SIGSTOP)
    wait_until(lambda: len(second.listen().held) == 4, 15, "the second has all")
    start = dict(second.read)
    wait_until(
        lambda: all(second.listen().committed.get(p, -1) > start.get(p, -1) + 5 for p in frozen),
        15,
        "the second reads and commits what the first had",
    )
    taken = dict(second.committed)
    first.listen()
    first.read.clear()
    first.committed.clear()
    first.program.signal(signal.SIGCONT)
    wait_until(
        lambda: (
            len(first.listen().held) == len(second.listen().held) == 2
            and not first.held & second.held
        ),
        15,
        "they share again",
    )
    rows = {row["partition_id"]: row for row in plant.offsets("g1")["partitions"]}
    sender.stop()
    wait_until(lambda: plant.offsets("g1")["lag"] == 0, 15, "the lag is 0")

    assert {row["holder"] is None for row in rows.values()} == {False}
    for partition_id in frozen:
        assert rows[partition_id]["committed"] >= taken[partition_id]
    for partition_id, offset in first.committed.items():
        assert offset >= taken.get(partition_id, -1), "a late commit was accepted"
