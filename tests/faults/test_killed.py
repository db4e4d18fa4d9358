"""Brokers and masters are killed, stopped and started again under traffic: nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import signal
import urllib.request

from tests.faults.conftest import MakePlant
from tests.faults.processes import Plant, Program, wait_until
from tests.faults.traffic import Reader, Sender, Watch, everything_read, missing
from tube.client import Client
from tube.wire.rpc import Method

QUICK = ("consumer_timeout_s=3", "balance_delay_s=0.05")


def stored(plant: Plant, topic: str) -> dict[tuple[int, int], int]:
    """The end of every partition."""
    with urllib.request.urlopen(f"{plant.http}/api/v1/topics/{topic}", timeout=15) as answer:
        return json.load(answer)


def shared(readers: list[Reader], total: int) -> bool:
    """Whether the readers hold all partitions, about the same number each."""
    sizes = [len(reader.consumer.assignment) for reader in readers]
    return sum(sizes) == total and max(sizes) - min(sizes) <= 1


def test_one_of_three_brokers_killed_loses_nothing(make_plant: MakePlant) -> None:
    """Producers and a group go on; after the restart all is read, offsets never went back, lag is 0."""
    plant = make_plant(*QUICK, brokers=3, broker_sets=("consumer_timeout_s=3",))
    plant.create_topic("demo", 12)
    senders = [Sender(plant.url, "demo", f"s{i}") for i in range(2)]
    readers = [Reader(plant.url, "demo", "g1") for _ in range(2)]
    watch = Watch(lambda: plant.offsets("g1"))
    wait_until(lambda: shared(readers, 12), 15, "the group shares 12 partitions")
    wait_until(lambda: all(reader.count > 300 for reader in readers), 15, "both read")
    plant.brokers[2].kill()
    alive = sum(len(sender.acknowledged) for sender in senders)
    wait_until(
        lambda: sum(len(s.acknowledged) for s in senders) > alive + 300,
        15,
        "the other brokers take messages",
    )
    plant.start_broker(2, "consumer_timeout_s=3")
    wait_until(
        lambda: any(
            r.partition.broker_id == 2
            for s in senders
            for r in list(s.acknowledged.values())[-200:]
        ),
        20,
        "the restarted broker takes messages",
    )
    for sender in senders:
        sender.stop()
    wait_until(lambda: everything_read(senders, readers), 20, "all acknowledged messages are read")
    wait_until(lambda: shared(readers, 12), 15, "the group has all partitions again")
    wait_until(lambda: plant.offsets("g1")["lag"] == 0, 15, "the lag is 0")
    watch.stop()
    for reader in readers:
        reader.stop()

    assert [f for sender in senders for f in sender.failures] == []
    assert [reader.failure for reader in readers] == [None, None]
    assert watch.backward == []
    assert watch.looked > 10


def test_an_instance_that_is_killed_comes_back_by_itself(make_plant: MakePlant) -> None:
    """``tube broker --instances 3``, one of them killed under traffic: nothing is lost, the group converges."""
    plant = make_plant(*QUICK, brokers=0)
    parent = plant.start_instances(3, "consumer_timeout_s=3")
    for broker_id in (1, 2, 3):
        wait_until(lambda broker_id=broker_id: plant.ready(broker_id), 10, "registered")
    plant.create_topic("demo", 9)
    sender = Sender(plant.url, "demo", "s")
    readers = [Reader(plant.url, "demo", "g1") for _ in range(3)]
    watch = Watch(lambda: plant.offsets("g1"))
    wait_until(lambda: shared(readers, 9), 15, "the group shares 9 partitions")
    wait_until(lambda: sum(reader.count for reader in readers) > 300, 15, "messages are read")
    before = children(parent)
    os.kill(before[1], signal.SIGKILL)
    wait_until(lambda: len(set(children(parent)) - set(before)) == 1, 20, "another one was started")
    new = len(sender.acknowledged)
    wait_until(
        lambda: (
            {r.partition.broker_id for r in list(sender.acknowledged.values())[new:]} == {1, 2, 3}
        ),
        30,
        "all three brokers take messages again",
    )
    sender.stop()
    wait_until(lambda: everything_read([sender], readers), 20, "all acknowledged messages are read")
    wait_until(lambda: shared(readers, 9), 15, "the group has all partitions again")
    wait_until(lambda: plant.offsets("g1")["lag"] == 0, 15, "the lag is 0")
    watch.stop()
    for reader in readers:
        reader.stop()

    assert sender.failures == []
    assert [reader.failure for reader in readers] == [None] * 3
    assert watch.backward == []
    assert parent.stop(30) == 0


def children(program: Program) -> list[int]:
    """The processes that a process started, oldest first."""
    pid = program.process.pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(text) for text in file.read().split()]


def test_a_broker_killed_again_and_again_keeps_what_it_acknowledged(make_plant: MakePlant) -> None:
    """Six kills under load: each acknowledged message is at its offset, and no two share one."""
    plant = make_plant(*QUICK)
    plant.create_topic("demo", 3)
    sender = Sender(plant.url, "demo", "s")
    for _ in range(6):
        before = len(sender.acknowledged)
        wait_until(lambda least=before + 150: len(sender.acknowledged) > least, 20, "receipts")
        plant.brokers[1].kill()
        plant.start_broker(1)
    sender.stop()
    reader = Reader(plant.url, "demo", "g1")
    wait_until(lambda: everything_read([sender], [reader]), 20, "all is read")
    reader.stop()

    assert sender.failures == []
    assert len(sender.acknowledged) == sender.sent
    places = {(receipt.partition, receipt.offset) for receipt in sender.acknowledged.values()}
    assert len(places) == sender.sent
    assert missing([sender], [reader]) == set()


def test_a_killed_master_is_not_noticed_by_traffic(make_plant: MakePlant) -> None:
    """No error reaches the application, nothing is lost or doubled, members keep their partitions."""
    plant = make_plant(*QUICK, "lease_s=1.0", brokers=2)
    plant.create_topic("demo", 6)
    sender = Sender(plant.url, "demo", "s")
    readers = [Reader(plant.url, "demo", "g1") for _ in range(2)]
    wait_until(lambda: shared(readers, 6), 15, "the group shares")
    for _ in range(2):
        assert plant.master is not None
        plant.master.kill()
        before = len(sender.acknowledged)
        wait_until(lambda least=before + 200: len(sender.acknowledged) > least, 15, "receipts")
        plant.start_master()
        joined = Client(plant.url)
        producer = joined.producer("demo")
        assert producer.send(b"new").result(20).offset >= 0
        joined.close()
    sender.stop()
    wait_until(lambda: everything_read([sender], readers), 20, "all is read")
    wait_until(lambda: plant.offsets("g1")["lag"] == 0, 20, "the lag is 0")
    for reader in readers:
        reader.stop()

    assert sender.failures == []
    assert len(sender.acknowledged) == sender.sent
    assert [reader.failure for reader in readers] == [None, None]
    values = [v for reader in readers for rows in reader.read.values() for v in rows.values()]
    sent = [value for value in values if value != b"new"]
    assert len(sent) == len(set(sent)) == sender.sent


def test_sigterm_of_a_broker_answers_what_is_in_flight(make_plant: MakePlant) -> None:
    """It exits 0; what it acknowledged is there after the start, and what it did not was sent again."""
    plant = make_plant(*QUICK)
    plant.create_topic("demo", 4)
    sender = Sender(plant.url, "demo", "s", pace_s=0.0005)
    reader = Reader(plant.url, "demo", "g1")
    wait_until(lambda: reader.count > 200, 15, "messages are read")
    codes = []
    for _ in range(2):
        codes.append(plant.brokers[1].stop())
        plant.start_broker(1)
        before = len(sender.acknowledged)
        wait_until(lambda least=before + 200: len(sender.acknowledged) > least, 20, "receipts")
    sender.stop()
    wait_until(lambda: everything_read([sender], [reader]), 20, "all is read")
    reader.stop()

    assert codes == [0, 0]
    assert sender.failures == []
    values = [value for rows in reader.read.values() for value in rows.values()]
    assert sorted(set(values)) == sorted(sender.acknowledged)
    assert len(values) == len(set(values))
    assert reader.failure is None
    assert Method.SEND_BATCH == 64
