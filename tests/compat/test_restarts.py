"""Servers come back while other people's clients work."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from tests.compat.conftest import House, MakeHouse
from tests.compat.test_groups import holders, join, read_by, unconfirmed
from tests.faults.processes import wait_until

PATIENCE_S = 90.0


@pytest.mark.parametrize("kind", ["java", "java-old", "go"])
def test_clients_come_back_after_the_broker_and_the_master(
    kind: str, make_house: MakeHouse, names: tuple[str, str]
) -> None:
    """Nothing acknowledged is lost, and messages sent after each restart are read."""
    house, (topic, group) = make_house(), names
    house.create_topic(topic, 4)
    sender = house.peer(kind)
    sender.ask("open_producer", "out", master=house.master_address, topics=[topic])
    reader = join(house, kind, topic, group)
    sender.ask("flood", "out", topic=topic, prefix="m", pace_ms=10)
    wait_until(lambda: len(reader.batches("in")) > 20, PATIENCE_S, "traffic")

    house.brokers[1].kill()
    (house.directory / "broker.log").unlink()  # a new broker knows of no holds
    house.start_broker(1)
    before = len(reader.batches("in"))
    wait_until(lambda: len(reader.batches("in")) > before + 20, PATIENCE_S, "after the broker")
    assert house.master is not None
    house.master.kill()
    house.start_master()
    wait_until(lambda: members(house, group) == 1, PATIENCE_S, "the group is back")
    before = len(reader.batches("in"))
    wait_until(lambda: len(reader.batches("in")) > before + 20, PATIENCE_S, "after the master")
    told = sender.ask("flood_stop", "out")
    wait_until(lambda: set(read_by([reader])) >= set(told["acknowledged"]), PATIENCE_S, "all")
    reader.ask("close", "in")

    assert holders(house, group) == {}
    again = Counter({body: count for body, count in read_by([reader]).items() if count > 1})
    assert set(again) <= unconfirmed([reader]), len(again)


def members(house: House, group: str) -> int:
    """How many members the master knows."""
    try:
        rows = house.api(f"groups/{group}")["members"]
    except OSError:
        return 0
    return len(rows)


@pytest.mark.parametrize("kind", ["java", "go"])
def test_a_flow_control_rule_slows_a_running_client_and_its_end_frees_it(
    kind: str, make_house: MakeHouse, names: tuple[str, str]
) -> None:
    """A limit of nothing stops the group at once; taking the rule away lets it go on."""
    house, (topic, group) = make_house(), names
    house.create_topic(topic, 1)
    ours = house.peer("tube")
    ours.ask("open_producer", "out", master=house.master_address, topics=[topic])
    reader = join(house, kind, topic, group)
    wait_until(lambda: holders(house, group), PATIENCE_S, "held")
    stop = {"start": "00:00", "end": "24:00", "dltInM": 21, "limitInM": 0, "freqInMs": 500}
    house.set_rules(group, [{"type": 0, "rule": [stop]}])
    reader.process.send_signal(signal.SIGSTOP)  # it must fall behind by more than the rule allows
    for i in range(3):
        big = [{"topic": topic, "body": "A" * 1_200_000} for _ in range(12)]
        results = ours.ask("send", "out", messages=big)["results"]
        assert all(result["success"] for result in results), i
    reader.process.send_signal(signal.SIGCONT)
    seen: list[int] = []

    def steady() -> bool:
        seen.append(len(reader.messages("in")))
        return len(seen) > 100 and seen[-1] == seen[-100]

    wait_until(steady, PATIENCE_S, "it stands still")
    stopped_at = seen[-1]
    house.set_rules(group, [])
    wait_until(lambda: len(reader.messages("in")) == 36, PATIENCE_S, "it goes on")
    reader.ask("close", "in")

    assert stopped_at < 36
