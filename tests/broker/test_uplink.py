"""A broker and its master: nothing said once is lost, whatever fails between them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.broker.conftest import BrokerFixture
from tests.broker.raw import eventually
from tests.log.disks import FailingDisk
from tube.broker.uplink import RESULT_BYTES_MAX, Epoch, load_epoch, save_epoch
from tube.errors import NotRegisteredError, StandbyError
from tube.limits import SMALL_CALL_BYTES_MAX
from tube.net.daemon import port_number
from tube.net.framed import FramedFactory, FramedProtocol
from tube.pb import MasterService_pb2 as pb
from tube.wire import feature, rpc
from tube.wire.frame import Frame
from tube.wire.rpc import Method
from tube.wire.settings import BrokerDefaults, TopicConfig, format_defaults, format_topic_config


@dataclass
class Master:
    """A master in the hands of a test: it holds every heartbeat until it is told what to answer."""

    registered: list[pb.RegisterRequestB2M] = field(default_factory=list)
    beats: list[pb.HeartRequestB2M] = field(default_factory=list)
    held: list[tuple[FramedProtocol, int, pb.HeartRequestB2M]] = field(default_factory=list)
    results: dict[int, str] = field(default_factory=dict)
    epoch: int = 1
    closes: int = 0
    hold: bool = True

    def __post_init__(self) -> None:
        self.factory = FramedFactory(
            reactor,
            self._received,
            lambda *_: None,
            limit=lambda *_: SMALL_CALL_BYTES_MAX,
            connections_max=10,
        )
        self.opened = reactor.listenTCP(0, self.factory, interface="127.0.0.1")
        self.port = port_number(self.opened)

    def _received(self, connection: FramedProtocol, frames: list[Frame]) -> None:
        connection.admit()
        for frame in frames:
            call = rpc.decode_call(frame)
            if call.method == Method.REGISTER_BROKER:
                self.registered.append(pb.RegisterRequestB2M.FromString(call.body))
                answer = pb.RegisterResponseM2B(
                    success=True,
                    errCode=200,
                    errMsg="",
                    server_features=feature.ALL,
                    epoch=self.epoch,
                    curBrokerConfId=0,
                    confCheckSumId=0,
                    takeConfInfo=False,
                    stopRead=False,
                    stopWrite=False,
                )
                self._answer(connection, call.serial, call.method, answer)
            elif call.method == Method.HEARTBEAT_BROKER:
                self._beat(connection, call)
            else:
                self.closes += 1
                answer = pb.CloseResponseM2B(success=True, errCode=200, errMsg="")
                self._answer(connection, call.serial, call.method, answer)

    def _beat(self, connection: FramedProtocol, call: rpc.Call) -> None:
        beat = pb.HeartRequestB2M.FromString(call.body)
        held, self.held = self.held, []
        for old, serial, _ in held:  # superseded
            self._answer(old, serial, Method.HEARTBEAT_BROKER, self.heart())
        self.beats.append(beat)
        self.results |= {result.order_id: result.json for result in beat.results}
        self.held.append((connection, call.serial, beat))
        if not self.hold or not beat.wait_ms:
            self.say()

    def heart(self, **fields: object) -> pb.HeartResponseM2B:
        """An answer with nothing new."""
        beat = self.beats[-1]
        answer = pb.HeartResponseM2B(
            success=True,
            errCode=200,
            errMsg="",
            takeConfInfo=False,
            needReportData=False,
            takeRemoveTopicInfo=False,
            curBrokerConfId=beat.curBrokerConfId,
            confCheckSumId=beat.confCheckSumId,
            stopRead=False,
            stopWrite=False,
            epoch=self.epoch,
            topic_facts_id=beat.topic_facts_id,
        )
        for name, value in fields.items():
            setattr(answer, name, value)
        return answer

    def say(self, answer: pb.HeartResponseM2B | None = None) -> None:
        """Answer the heartbeat that is held."""
        held, self.held = self.held, []
        for connection, serial, _ in held:
            self._answer(connection, serial, Method.HEARTBEAT_BROKER, answer or self.heart())

    @staticmethod
    def _answer(connection: FramedProtocol, serial: int, method: int, answer) -> None:
        connection.write(rpc.encode_reply(serial, method, 3, answer.SerializePartialToString()))

    def order(self, number: int, **order: object) -> pb.HeartResponseM2B:
        """An answer with an order."""
        answer = self.heart()
        answer.orders.add(order_id=number, json=json.dumps(order))
        return answer

    async def idle(self) -> None:
        """Wait until the broker waits."""
        await eventually(lambda: self.held and self.held[0][2].wait_ms)

    def cut(self) -> None:
        """Lose all connections."""
        self.held.clear()
        for connection in list(self.factory.connections):
            connection.abort()


@async_yield_fixture
async def master() -> AsyncIterator[Master]:
    """A port that plays the master."""
    made = Master()
    yield made
    made.cut()
    await made.opened.stopListening()
    await eventually(lambda: not made.factory.connections)


@async_yield_fixture
async def broker(master: Master, tmp_path: Path) -> AsyncIterator[BrokerFixture]:
    """A broker that registered with it."""
    fixture = BrokerFixture(
        tmp_path / "broker", overrides=(f'masters=["127.0.0.1:{master.port}"]', "heartbeat_s=5")
    )
    try:
        await fixture.start()
        await eventually(lambda: fixture.running.uplink.registered)
        yield fixture
    finally:
        master.say()
        await fixture.stop()


def configuration(master: Master, number: int, *names: str) -> pb.HeartResponseM2B:
    """An answer that tells topics."""
    answer = master.heart(
        takeConfInfo=True,
        curBrokerConfId=number,
        confCheckSumId=number,
        brokerDefaultConfInfo=format_defaults(BrokerDefaults()),
        topic_facts_id=number,
    )
    answer.brokerTopicSetConfInfo.extend(
        format_topic_config(TopicConfig(topic=name, num_partitions=1)) for name in names
    )
    for topic_id, name in enumerate(names, 20):
        answer.topic_facts.add(name=name, topic_id=topic_id, durable=True)
    return answer


async def test_a_configuration_is_applied_and_reported(
    broker: BrokerFixture, master: Master
) -> None:
    """The next heartbeat says what was taken over; the topic takes messages."""
    await master.idle()
    master.say(configuration(master, 5, "news"))
    await eventually(lambda: master.beats[-1].curBrokerConfId == 5)
    reports = [beat for beat in master.beats if beat.takeConfInfo and beat.curBrokerConfId == 5]

    assert len(reports[0].brokerTopicSetConfInfo) == 1
    assert broker.running.service.topics.publishable("news", 0).topic_id == 20


async def test_orders_are_carried_out_once_and_their_results_told(
    broker: BrokerFixture, master: Master
) -> None:
    """An order that is repeated before its result came is not carried out again."""
    await master.idle()
    answer = master.order(7, op="describe")
    answer.orders.add(order_id=8, json="nonsense")
    master.say(answer)
    await eventually(lambda: {7, 8} <= set(master.results))
    await master.idle()
    count = len(master.beats)
    master.say(answer)
    await master.idle()

    assert json.loads(master.results[7])["partitions"]
    assert json.loads(master.results[8])["error"]["code"] == 400
    told = [result.order_id for beat in master.beats[count:] for result in beat.results]
    assert told == []


async def test_results_survive_a_lost_master(broker: BrokerFixture, master: Master) -> None:
    """The result was sent, or about to be, when the connection broke: it is told to the next master."""
    await master.idle()
    uplink = broker.running.uplink
    uplink._results.append((50, '{"kept": 1}'))
    master.cut()
    await eventually(lambda: 50 in master.results)
    await master.idle()
    uplink._results.append((51, '{"kept": 2}'))
    uplink._wake.callback(None)
    master.hold = True
    uplink._caller.abort()  # the heartbeat with the result is on its way
    await eventually(lambda: 51 in master.results)

    assert master.results[50] == '{"kept": 1}'


async def test_results_of_a_heartbeat_left_behind_are_not_lost(
    broker: BrokerFixture, master: Master
) -> None:
    """The held heartbeat that carried a result fails after another one took over: it is told again."""
    await master.idle()
    uplink = broker.running.uplink
    lost: list[int] = []
    before = master._beat

    def deaf(connection: FramedProtocol, call: rpc.Call) -> None:
        beat = pb.HeartRequestB2M.FromString(call.body)
        if beat.results and not lost:  # this one never reaches the master
            lost.extend(result.order_id for result in beat.results)
            uplink._results.append((61, "{}"))
            reactor.callLater(0, uplink._wake.callback, None)
            reactor.callLater(0.05, connection.abort)
            return
        before(connection, call)

    master._beat = deaf
    uplink._results.append((60, "{}"))
    uplink._wake.callback(None)
    await eventually(lambda: {60, 61} <= set(master.results))

    assert lost == [60]


async def test_results_never_make_a_heartbeat_too_large(
    broker: BrokerFixture, master: Master
) -> None:
    """A result of a megabyte becomes an error, many large ones go one after the other."""
    await master.idle()
    uplink = broker.running.uplink
    uplink._results.extend((100 + i, "x" * (RESULT_BYTES_MAX - 10)) for i in range(4))
    uplink._wake.callback(None)
    await eventually(lambda: {100, 101, 102, 103} <= set(master.results))
    assert max(len(beat.results) for beat in master.beats) == 1
    await master.idle()
    facts = broker.running.service.describe((), None)
    broker.running.service.describe = lambda *_: facts * 1500
    master.say(master.order(9, op="describe"))
    await eventually(lambda: 9 in master.results)

    assert "ask for less" in json.loads(master.results[9])["error"]["message"]
    assert len(master.registered) == 1


async def test_what_the_answer_of_a_heartbeat_left_behind_says_counts(
    broker: BrokerFixture, master: Master
) -> None:
    """Woken by a result while the master answers: its switches and its wish for a report are heard."""
    await master.idle()
    uplink = broker.running.uplink
    answer = master.heart(stopWrite=True, needReportData=True)
    connection, serial, _ = master.held.pop()
    master.hold = False
    uplink._results.append((70, "{}"))
    uplink._wake.callback(None)
    uplink._answered_late(answer.SerializePartialToString())
    assert broker.running.service.topics.write_stopped
    await eventually(lambda: any(beat.takeConfInfo for beat in master.beats[-3:]))
    master.hold = True
    Master._answer(connection, serial, Method.HEARTBEAT_BROKER, answer)


async def test_a_full_disk_does_not_cost_the_registration(
    master: Master, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new topic cannot be made, the epoch cannot be saved: the broker serves on and tries again."""
    disk = FailingDisk()
    from tube.log.values import LogOptions

    monkeypatch.setattr("tube.broker.app.LogOptions", lambda **g: LogOptions(disk=disk, **g))
    monkeypatch.setattr("tube.broker.uplink.RETRY_S", 0.05)
    fixture = BrokerFixture(
        tmp_path / "full", overrides=(f'masters=["127.0.0.1:{master.port}"]', "heartbeat_s=5")
    )
    await fixture.start()
    try:
        await master.idle()
        disk.fill()
        master.say(configuration(master, 5, "demo", "fresh"))
        await master.idle()
        assert fixture.running.service.topics.get("demo") is not None
        assert fixture.running.service.topics.get("fresh") is None
        assert master.beats[-1].curBrokerConfId != 5
        disk.heal()
        master.say(configuration(master, 5, "demo", "fresh"))
        await eventually(lambda: master.beats[-1].curBrokerConfId == 5)
        assert fixture.running.service.topics.get("fresh") is not None
        assert len(master.registered) == 1
    finally:
        master.say()
        await fixture.stop()


async def test_a_stop_says_goodbye(broker: BrokerFixture, master: Master) -> None:
    """The master hears it at once; a second broker could take over."""
    await master.idle()
    await broker.stop()

    assert master.closes == 1


async def test_a_broker_that_is_forgotten_registers_again(
    broker: BrokerFixture, master: Master
) -> None:
    """411 is no failure: the same connection, a new registration."""
    await master.idle()
    master.say(
        pb.HeartResponseM2B(success=False, errCode=NotRegisteredError.code, errMsg="who are you?")
    )
    await eventually(lambda: len(master.registered) == 2)
    await master.idle()

    assert broker.running.uplink.registered


def test_epochs_only_grow(tmp_path: Path) -> None:
    """A deposed master is refused; the highest epoch survives restarts, and a disk that cannot keep it."""
    path = tmp_path / "epoch"
    assert load_epoch(path) == 0
    epoch = Epoch(0, lambda number: save_epoch(path, number))
    epoch.check(0)
    epoch.check(5)
    epoch.check(5)
    with pytest.raises(StandbyError):
        epoch.check(4)
    assert load_epoch(path) == 5
    path.write_text("rubbish")
    assert load_epoch(path) == 0

    def full(_number: int) -> None:
        raise OSError(28, "No space left on device")

    kept = Epoch(5, full)
    kept.check(6)
    with pytest.raises(StandbyError):
        kept.check(5)
