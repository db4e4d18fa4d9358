"""What foreign clients send that ours never does is served, or refused as the original refuses it."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.broker.raw import call
from tests.compat.conftest import House, build
from tube.limits import BLOCK_BYTES_MAX
from tube.pb import BrokerService_pb2 as broker_pb
from tube.pb import MasterService_pb2 as master_pb
from tube.wire import frame, rpc

TOPIC = "foreign"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A master and a broker as processes, with one topic."""
    made = build(tmp_path_factory.mktemp("foreign"))
    made.create_topic(TOPIC, 1)
    yield made
    made.close()


def ask(port: int, *calls: bytes) -> list[rpc.Reply | rpc.Refusal]:
    """Send calls and return as many answers, by serial."""
    with closing(socket.create_connection(("127.0.0.1", port), 5)) as link:
        link.settimeout(5)
        link.sendall(b"".join(calls))
        decoder, frames = frame.FrameDecoder(), []
        while len(frames) < len(calls):
            data = link.recv(65536)
            assert data, f"closed after {len(frames)} answers"
            frames += decoder.feed(data)
    return sorted((rpc.decode_reply(one) for one in frames), key=lambda reply: reply.serial)


def ports(house: House) -> tuple[int, int]:
    """Where the master and the broker listen."""
    return house.ports("master")["master"], house.ports("broker-1")["broker"]


def message(body: bytes = b"hello", client_id: str = "foreign-1") -> bytes:
    """A SendMessage as C++ and Go make it: no token."""
    return broker_pb.SendMessageRequestP2B(
        clientId=client_id,
        topicName=TOPIC,
        partitionId=0,
        data=body,
        flag=0,
        checkSum=-1,
        sentAddr=2130706433,
    ).SerializeToString()


def beat(client_id: str = "PRODUCER_1-0.1.8-C-0.5.0") -> bytes:
    """A producer's heartbeat."""
    return master_pb.HeartRequestP2M(
        clientId=client_id, hostName="h", brokerCheckSum=-1, topicList=[TOPIC]
    ).SerializeToString()


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("flag", [0, 1, 10])
@pytest.mark.parametrize("after", [b"", b"\0" * 9])
def test_old_versions_odd_flags_and_trailing_zeros_are_served(
    house: House, version: int, flag: int, after: bytes
) -> None:
    """Go says flag 10, C++ ends requests with zeros, old clients say version 1 or 2."""
    master, broker = ports(house)
    variant = {"version": version, "flag": flag, "after": after}
    registered = ask(master, call(1, 2, beat(), **variant))[0]
    sent = ask(broker, call(2, 13, message(), **variant))[0]

    assert isinstance(registered, rpc.Reply)
    assert master_pb.HeartResponseM2P.FromString(registered.body).success
    assert isinstance(sent, rpc.Reply)
    assert broker_pb.SendMessageResponseB2P.FromString(sent.body).success


def test_blocks_of_one_byte_and_a_missing_timeout_are_served(house: House) -> None:
    """Blocks carry no meaning; the original drops a call without timeout, we answer it."""
    _, broker = ports(house)
    answers = ask(
        broker,
        call(1, 13, message(), block_bytes=1),
        call(2, 13, message(), timeout_ms=0),
    )

    assert [type(answer) for answer in answers] == [rpc.Reply, rpc.Reply]


@pytest.mark.parametrize("service", [0, 1, 2, 3, 4, 77])
def test_a_wrong_service_id_does_not_matter(house: House, service: int) -> None:
    """Go sends messages to the read service; the method says what is meant."""
    _, broker = ports(house)
    plain = call(7, 13, message())
    assert plain.count(b"\x04\x08\x03\x10\x03") == 1
    odd = plain.replace(b"\x04\x08\x03\x10\x03", b"\x04\x08" + bytes([service]) + b"\x10\x03")

    assert isinstance(ask(broker, odd)[0], rpc.Reply)


@pytest.mark.parametrize("method", [0, 11, 99])
def test_unknown_methods_are_fatal_and_the_connection_lives(house: House, method: int) -> None:
    """C++ producers say goodbye with method 0 and an empty body."""
    for port in ports(house):
        answers = ask(port, call(1, method, b""), call(2, method, b""))

        for answer in answers:
            assert isinstance(answer, rpc.Refusal)
            assert answer.fatal
            assert f"Unsupported method ID :{method}" in answer.text
            assert "#" not in answer.text


@pytest.mark.parametrize(
    ("version", "prefix"),
    [(1, "com.tencent.tubemq."), (2, "com.apache.tubemq."), (3, "org.apache.inlong.tubemq.")],
)
def test_a_standby_names_the_exception_as_the_caller_knows_it(
    house: House, version: int, prefix: str
) -> None:
    """Java instantiates the class by name; C++ looks for the word."""
    port = house.ports("standby")["master"]
    answer = ask(port, call(1, 2, beat(), version=version))[0]

    assert isinstance(answer, rpc.Refusal)
    assert not answer.fatal
    assert answer.exception_name == f"{prefix}corerpc.exception.StandbyException"
    assert "is not master now" in answer.text


def test_a_producer_that_nobody_knows_is_registered_by_its_heartbeat(house: House) -> None:
    """A C++ producer ends its heartbeats for good at the first 411."""
    master, _ = ports(house)
    answer = ask(master, call(1, 2, beat("PRODUCER_new-0.1.8-C-0.5.0")))[0]

    assert isinstance(answer, rpc.Reply)
    told = master_pb.HeartResponseM2P.FromString(answer.body)
    assert told.success
    assert [text.split("#")[0] for text in told.topicInfos] == [TOPIC]
    assert len(told.brokerInfos) == 1


def test_a_consumer_that_nobody_knows_is_told_411(house: House) -> None:
    """Java, C++ and Go consumers register again, with what they hold."""
    master, _ = ports(house)
    body = master_pb.HeartRequestC2M(
        clientId="nobody", groupName="gg", reportSubscribeInfo=False
    ).SerializeToString()
    answer = ask(master, call(1, 5, body))[0]

    assert isinstance(answer, rpc.Reply)
    assert master_pb.HeartResponseM2C.FromString(answer.body).errCode == 411


def test_a_cpp_producer_is_refused_loudly_and_others_in_the_answer(house: House) -> None:
    """The C++ client takes every answer body for success."""
    _, broker = ports(house)
    calls = [
        call(1, 13, message(b"", "PRODUCER_127.0.0.1-1-1-1-0.1.8-C-0.5.0"), version=2),
        call(2, 13, message(b"", "127.0.0.1-1-1-1-1.13.0")),
    ]
    loud, quiet = ask(broker, *calls)

    assert isinstance(loud, rpc.Refusal)
    assert isinstance(quiet, rpc.Reply)
    refused = broker_pb.SendMessageResponseB2P.FromString(quiet.body)
    assert (refused.success, refused.errCode) == (False, 400)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frame.encode(1, b"x")[:8] + struct.pack(">I", 0),
        frame.encode(1, b"x")[:8] + struct.pack(">I", 3585),
        frame.encode(1, b"x")[:8] + struct.pack(">II", 1, 0x7FFFFFFF) + bytes(4096),
    ],
    ids=["http", "no blocks", "too many blocks", "a huge block"],
)
def test_what_is_no_frame_ends_the_connection(house: House, garbage: bytes) -> None:
    """The original leaves the connection open and deaf; every client recovers from a close."""
    for port in ports(house):
        with closing(socket.create_connection(("127.0.0.1", port), 5)) as link:
            link.settimeout(5)
            link.sendall(garbage)

            with suppress(ConnectionResetError):
                assert link.recv(1) == b""


def test_answers_to_original_clients_come_in_small_blocks(house: House) -> None:
    """C++ closes on a block of more than 8192 bytes."""
    _, broker = ports(house)
    ask(broker, call(1, 13, message(bytes(300_000))))
    claim = {"clientId": "r1", "groupName": "gg", "topicName": TOPIC, "partitionId": 0}
    register = broker_pb.RegisterRequestC2B(opType=31, readStatus=0, **claim).SerializeToString()
    pull = broker_pb.GetMessageRequestC2B(**claim).SerializeToString()
    with closing(socket.create_connection(("127.0.0.1", broker), 5)) as link:
        link.settimeout(5)
        link.sendall(call(1, 15, register))
        link.recv(65536)
        link.sendall(call(2, 17, pull))
        data = b""
        while len(data) < 300_000:
            data += link.recv(1 << 20)
    count = int.from_bytes(data[8:12], "big")
    at, sizes = 12, []
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        sizes.append(length)
        at += 4 + length

    assert max(sizes) <= BLOCK_BYTES_MAX
    assert min(sizes) > 0
    assert len(sizes) <= count <= 1024


@pytest.fixture(autouse=True, scope="module")
def standby(house: House, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second master on the same database."""
    house.start_standby()
    return tmp_path_factory.getbasetemp()
