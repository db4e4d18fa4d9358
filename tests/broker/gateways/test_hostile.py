"""Hostile and broken peers: each gets a clear answer or its connection is closed, and nobody else notices."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet.defer import Deferred, gatherResults

from tests.broker.conftest import BrokerFixture, get, register, send
from tests.broker.raw import Peer, call, dial, eventually
from tube.auth.tokens import AuthTokens, Rights
from tube.errors import FrameTooLargeError, TubeError, UnknownMethodError
from tube.limits import BATCH_BYTES_MAX, BUFFERED_BYTES_MAX, REPLY_BYTES_MAX
from tube.net.clock import wall_ms
from tube.pb import BrokerService_pb2 as pb
from tube.pb import TubeExtensions_pb2 as ext
from tube.wire import rpc, run
from tube.wire.message import check_sum
from tube.wire.rpc import Method, Refusal
from tube.wire.settings import TopicConfig

ALL_METHODS = (13, 15, 16, 17, 18, 64, 65, 66, 67)


@async_yield_fixture
async def peers(broker: BrokerFixture) -> AsyncIterator[list[Peer]]:
    """Peers that are gone after the test."""
    dialled: list[Peer] = []
    yield dialled
    for peer in dialled:
        peer.leave()
    await eventually(lambda: all(peer.closed for peer in dialled))


async def stranger(broker: BrokerFixture, peers: list[Peer]) -> Peer:
    """A connection that has not said anything."""
    assert broker.running is not None
    peer = await dial(broker.running.port)
    peers.append(peer)
    return peer


def message(data: bytes = b"x", **fields: object) -> bytes:
    """The body of a SendMessage."""
    request = pb.SendMessageRequestP2B(
        clientId="producer",
        topicName="demo",
        partitionId=0,
        data=data,
        flag=0,
        checkSum=-1,
        sentAddr=0,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request.SerializeToString()


def pull(**fields: object) -> bytes:
    """The body of a GetMessage."""
    request = pb.GetMessageRequestC2B(
        clientId="c1", groupName="group1", topicName="demo", partitionId=0
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request.SerializeToString()


def fetch(offset: int = 0, **fields: object) -> bytes:
    """The body of a Fetch."""
    request = ext.FetchRequestC2B(
        clientId="c1", topicName="demo", partitionId=0, offset=offset, bytesMax=1 << 20, waitMs=0
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request.SerializeToString()


def batch(*messages: bytes, **fields: object) -> bytes:
    """The body of a SendBatch."""
    request = ext.SendBatchRequestP2B(
        clientId="producer",
        topicName="demo",
        partitionId=0,
        messages=b"".join(
            run.encode_message(i, check_sum(data), data, 0, None)
            for i, data in enumerate(messages, 1)
        ),
        count=len(messages),
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request.SerializeToString()


@pytest.mark.parametrize(
    "bytes_",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">IIII", 0xFF7FF4FE, 1, 0, 0),
        struct.pack(">IIII", 0xFF7FF4FE, 1, 3585, 0),
        struct.pack(">IIII", 0xFF7FF4FE, 1, 1, 2**31),
        struct.pack(">IIII", 0xFF7FF4FE, 1, 1, 2**32 - 1),
        struct.pack(">IIII", 0xFF7FF4FF, 1, 1, 4) + b"abcd",
    ],
)
async def test_what_is_no_frame_closes_only_its_connection(
    broker: BrokerFixture, peers: list[Peer], bytes_: bytes
) -> None:
    """Wrong token bytes and lying lengths: closed before anything is kept; others are served."""
    honest = await broker.connect()
    await send(honest, b"before")
    peer = await stranger(broker, peers)
    peer.send(bytes_ + bytes(2000))

    assert await peer.gone()
    assert (await send(honest, b"after")).appendOffset == 1


async def test_frames_before_garbage_are_served(broker: BrokerFixture, peers: list[Peer]) -> None:
    """A message that came before the fault is taken; the connection closes after it."""
    peer = await stranger(broker, peers)
    peer.send(call(1, Method.SEND_MESSAGE, message(b"kept")) + b"\x00" * 16)
    assert await peer.gone()
    caller = await broker.connect()
    await register(caller)
    await eventually(lambda: broker.running.store.bounds(1, 0).next_offset == 1)

    assert [m.payLoadData for m in (await get(caller)).messages] == [b"kept"]


async def test_unknown_methods_are_refused_by_name(broker: BrokerFixture) -> None:
    """Methods of the master and of nobody get the fatal answer that clients know; the connection stays."""
    caller = await broker.connect()
    for method in (0, 1, 14, 19, 63, 68, 127):
        with pytest.raises(UnknownMethodError, match=f"Unsupported method ID :{method}"):
            await caller.call(method, b"", 5)

    assert (await send(caller, b"x")).success


@pytest.mark.parametrize("method", ALL_METHODS)
async def test_missing_fields_are_named(broker: BrokerFixture, method: int) -> None:
    """A body without its required fields, or that is no protobuf, is refused; the connection stays."""
    caller = await broker.connect()
    if method != Method.DESCRIBE:
        with pytest.raises(TubeError):
            await caller.call(method, b"", 5)
    with pytest.raises(TubeError):
        await caller.call(method, b"\xff\xff\xff\xff", 5)
    with pytest.raises(TubeError):
        await caller.call(method, b"\x0a\x7f", 5)

    assert (await send(caller, b"x")).success


async def test_an_envelope_that_is_no_call_is_answered(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """A whole frame with garbage inside gets a fatal answer with its serial; the next call is served."""
    peer = await stranger(broker, peers)
    peer.send(rpc.frame.encode(77, b"\x05garbage"))
    peer.send(rpc.frame.encode(78, b""))
    peer.send(call(79, Method.SEND_MESSAGE, message()))
    first, second, third = await peer.answers(3)

    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert (first.serial, first.fatal, second.serial) == (77, True, 78)
    assert pb.SendMessageResponseB2P.FromString(third.body).success


@pytest.mark.parametrize("method", [15, 16, 17, 18, 65, 66, 67])
@pytest.mark.parametrize("admitted", [False, True])
async def test_small_calls_have_a_small_limit(
    broker: BrokerFixture, peers: list[Peer], method: int, admitted: bool
) -> None:
    """A heartbeat of 2 MiB is an attack, before and after admission: cut off at its announced length."""
    peer = await stranger(broker, peers)
    if admitted:
        peer.send(call(1, Method.SEND_MESSAGE, message()))
        await peer.answers(1)
    whole = call(2, method, bytes(2 * 1024 * 1024), block_bytes=4 * 1024 * 1024)
    peer.send(whole[:4096])

    assert await peer.gone()


async def test_sends_may_be_large_but_not_endless(broker: BrokerFixture, peers: list[Peer]) -> None:
    """A stranger's first message may be large; more than the largest frame is cut off at once."""
    peer = await stranger(broker, peers)
    peer.send(call(1, Method.SEND_MESSAGE, message(bytes(900_000)), block_bytes=1 << 20))
    (answer,) = await peer.answers(1)
    assert pb.SendMessageResponseB2P.FromString(answer.body).success
    for method, size in ((13, 28 * 1024 * 1024), (64, BATCH_BYTES_MAX + 2 * 1024 * 1024)):
        greedy = await stranger(broker, peers)
        head = call(1, method, bytes(64))[16:80]
        greedy.send(struct.pack(">IIII", 0xFF7FF4FE, 1, 1, size + 1) + head + bytes(64))
        assert await greedy.gone()


async def test_strangers_share_a_limit_for_large_first_calls(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """Many strangers with large unfinished calls: some are cut off, an admitted client is served."""
    caller = await broker.connect()
    await send(caller, b"x")
    start = (
        struct.pack(">IIII", 0xFF7FF4FE, 1, 1, 20_000_000)
        + call(1, 13, message())[16:]
        + bytes(2000)
    )
    crowd = [await stranger(broker, peers) for _ in range(10)]
    for peer in crowd:
        peer.send(start)
    await eventually(lambda: sum(peer.closed for peer in crowd) >= 5)
    assert (await send(caller, bytes(500_000))).success
    for peer in crowd:
        peer.leave()
    await eventually(lambda: all(peer.closed for peer in crowd))
    late = await stranger(broker, peers)
    late.send(call(1, Method.SEND_MESSAGE, message(bytes(500_000))))

    (answer,) = await late.answers(1)
    assert pb.SendMessageResponseB2P.FromString(answer.body).success


async def test_a_slow_loris_is_cut_off(
    tmp_path, peers: list[Peer], broker: BrokerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame, or calls that are refused, keep a connection no longer than the greeting's limit."""
    monkeypatch.setattr("tube.net.framed.UNAUTHENTICATED_S_MAX", 0.2)
    silent, half, refused, good = [await stranger(broker, peers) for _ in range(4)]
    half.send(call(1, 13, message())[:30])
    refused.send(call(1, 13, message(topicName="none")))
    good.send(call(1, 13, message()))

    assert [await peer.gone() for peer in (silent, half, refused)] == [True] * 3
    assert not good.closed


async def test_a_pull_that_waits_is_no_stranger(
    broker: BrokerFixture, peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that comes back on a new connection may wait longer than a greeting may take."""
    await register(await broker.connect())
    monkeypatch.setattr("tube.net.framed.UNAUTHENTICATED_S_MAX", 0.1)
    peer, fetcher = await stranger(broker, peers), await stranger(broker, peers)
    peer.send(call(1, Method.GET_MESSAGE, pull(wait_ms=500)))
    fetcher.send(call(1, Method.FETCH, fetch(waitMs=500)))

    (answer,) = await peer.answers(1)
    assert pb.GetMessageResponseB2C.FromString(answer.body).errCode == 404
    (fetched,) = await fetcher.answers(1)
    assert ext.FetchResponseB2C.FromString(fetched.body).success


@pytest.mark.limit(30)
async def test_a_peer_that_reads_nothing_costs_bounded_memory(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """160 MiB of answers are asked for and not read: 64 are made; others are served meanwhile."""
    honest = await broker.connect()
    for i in range(4):
        await send(honest, bytes([i]) * 1_000_000)
    peer = await stranger(broker, peers)
    peer.stop_reading()
    asked = 40
    peer.send(b"".join(call(i + 1, Method.FETCH, fetch(bytesMax=4 << 20)) for i in range(asked)))
    service = broker.running.service
    await eventually(lambda: service.pulled_bytes > 10_000_000)
    connection = next(c for c in broker.running.connections.connections if c.in_flight > 10)
    await eventually(lambda: len(connection._room) > 10)
    for _ in range(20):
        await send(honest, b"x", partition_id=1)
    assert connection._unsent_bytes + connection._reserved_bytes <= BUFFERED_BYTES_MAX + (8 << 20)
    assert service.pulled_bytes <= BUFFERED_BYTES_MAX + (8 << 20)
    peer.go_on()
    await peer.answers(asked, 20)
    assert service.pulled_bytes > asked * 3_900_000
    assert (connection.in_flight, connection._reserved_bytes) == (0, 0)
    peer.stop_reading()
    peer.send(b"".join(call(i + 1, Method.FETCH, fetch(bytesMax=4 << 20)) for i in range(asked)))
    await eventually(lambda: len(connection._room) > 10)
    peer.leave()

    await eventually(lambda: connection.in_flight == 0)
    assert (await send(honest, b"x")).success


async def test_thousands_of_small_frames_are_each_answered(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """Five thousand calls in one write, sends and pulls mixed: an answer each, nothing left in flight."""
    peer = await stranger(broker, peers)
    frames = [
        call(i, Method.SEND_MESSAGE, message(b"%d" % i))
        if i % 2
        else call(i, Method.COMMIT_OFFSET, _commit())
        for i in range(1, 5001)
    ]
    peer.send(b"".join(frames))
    answers = await peer.answers(5000, 8)

    assert sorted(answer.serial for answer in answers) == list(range(1, 5001))
    (connection,) = broker.running.connections.connections
    assert connection.in_flight == 0
    assert broker.running.store.bounds(1, 0).next_offset == 2500


def _commit() -> bytes:
    return pb.CommitOffsetRequestC2B(
        clientId="c1", groupName="group1", topicName="demo", partitionId=0, lastPackConsumed=True
    ).SerializeToString()


async def test_what_original_clients_vary_does_not_matter(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """Trailing zeros (C++), flag 10 (Go), timeout 0, and blocks of one byte: all served."""
    peer = await stranger(broker, peers)
    peer.send(call(1, Method.SEND_MESSAGE, message(b"1"), after=bytes(50)))
    peer.send(call(2, Method.SEND_MESSAGE, message(b"2"), flag=10, timeout_ms=0))
    peer.send(call(3, Method.SEND_MESSAGE, message(b"3"), block_bytes=1))
    peer.send(call(4, Method.GET_MESSAGE, pull(wait_ms=60_000), timeout_ms=0))
    answers = await peer.answers(4)
    by_serial = {answer.serial: answer.body for answer in answers}

    for serial in (1, 2, 3):
        assert pb.SendMessageResponseB2P.FromString(by_serial[serial]).success
    assert pb.GetMessageResponseB2C.FromString(by_serial[4]).errCode == 411


async def test_refusals_name_the_exception_of_the_clients_version(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """Java instantiates the exception by name: each protocol version has its own package."""
    peer = await stranger(broker, peers)
    cpp = message(b"", clientId="PRODUCER_10.0.0.1-C-1")
    for version in (1, 2, 3):
        peer.send(call(version, Method.SEND_MESSAGE, cpp, version=version))
    answers = await peer.answers(3)

    names = [answer.exception_name for answer in answers if isinstance(answer, Refusal)]
    assert [name.split(".corerpc")[0] for name in names] == [
        "com.tencent.tubemq",
        "com.apache.tubemq",
        "org.apache.inlong.tubemq",
    ]
    assert {answer.fatal for answer in answers if isinstance(answer, Refusal)} == {False}


async def test_cpp_clients_get_exceptions_for_refused_sends(broker: BrokerFixture) -> None:
    """They take any reply for a success; everybody else gets the reply with its number."""
    caller = await broker.connect()
    with pytest.raises(TubeError, match="empty"):
        await send(caller, b"", clientId="PRODUCER_10.0.0.1-C-1")
    assert (await send(caller, b"", clientId="PRODUCER_10.0.0.1-J-1")).errCode == 400
    with pytest.raises(TubeError, match="is not on this broker"):
        await send(caller, b"x", clientId="PRODUCER_10.0.0.1-C-1", topic="none")


async def test_names_as_long_as_a_frame_are_refused_in_short(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """A topic name of 8 MiB of unprintable characters: its refusal has a kilobyte, and others are served."""
    honest = await broker.connect()
    peer = await stranger(broker, peers)
    name = "\x01" * (8 * 1024 * 1024)
    peer.send(call(1, Method.SEND_MESSAGE, message(topicName=name), block_bytes=16 << 20))
    (answer,) = await peer.answers(1)
    refused = pb.SendMessageResponseB2P.FromString(answer.body)
    assert (refused.errCode, len(refused.errMsg) < 1100) == (403, True)
    peer.send(call(2, Method.GET_MESSAGE, pull(topicName="\x01" * 900_000), block_bytes=16 << 20))
    answers = await peer.answers(2)

    assert len(answers[1].body) < 2000
    assert (await send(honest, b"x")).success


async def test_connections_beyond_the_limit_are_refused(tmp_path, peers: list[Peer]) -> None:
    """The third of two is closed at once; when one leaves there is room again."""
    small = BrokerFixture(tmp_path / "small", overrides=("connections_max=2",))
    await small.start()
    try:
        first, _second = await small.connect(), await small.connect()
        third = await stranger(small, peers)
        assert await third.gone()
        assert (await send(first, b"x")).success
        first.abort()
        await eventually(lambda: len(small.running.connections.connections) == 1)
        fourth = await small.connect()

        assert (await send(fourth, b"x")).success
    finally:
        await small.stop()


async def test_a_message_through_many_blocks_comes_back_in_many(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """300 kB in blocks of 8192 bytes, as C++ sends and wants them; our client gets one block."""
    peer = await stranger(broker, peers)
    data = bytes(range(256)) * 1200
    peer.send(call(1, Method.SEND_MESSAGE, message(data)))
    await peer.answers(1)
    peer.send(call(2, Method.REGISTER_PARTITION, _register()))
    await peer.answers(2)
    peer.send(call(3, Method.GET_MESSAGE, pull()))
    answers = await peer.answers(3)
    pulled = pb.GetMessageResponseB2C.FromString(answers[2].body)
    assert [m.payLoadData for m in pulled.messages] == [data]
    sizes = peer.block_sizes()[2]
    assert len(sizes) > 35
    assert max(sizes) == 8192
    peer.send(call(4, Method.GET_MESSAGE, pull(client_features=1)))
    await peer.answers(4)

    assert len(peer.block_sizes()[3]) == 1


def _register(**fields: object) -> bytes:
    request = pb.RegisterRequestC2B(
        opType=31,
        clientId="c1",
        groupName="group1",
        topicName="demo",
        partitionId=0,
        readStatus=0,
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request.SerializeToString()


@pytest.mark.limit(30)
async def test_answers_for_original_clients_stay_below_eight_mebibytes(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """Even when one stored block has 16 MiB: at most 1024 blocks, each of at most 8192 bytes."""
    await broker.configure(TopicConfig(topic="demo", num_partitions=4, max_msg_size=8_000_000))
    caller = await broker.connect()
    body = batch(*[bytes([i]) * 1_000_000 for i in range(16)])
    answer = ext.SendBatchResponseB2P.FromString(await caller.call(Method.SEND_BATCH, body, 10))
    assert answer.success
    peer = await stranger(broker, peers)
    peer.send(call(1, Method.REGISTER_PARTITION, _register()))
    await peer.answers(1)
    peer.send(call(2, Method.GET_MESSAGE, pull(bytes_max=2**31 - 1)))
    answers = await peer.answers(2, 10)
    pulled = pb.GetMessageResponseB2C.FromString(answers[1].body)

    assert 1 <= len(pulled.messages) < 9
    sizes = peer.block_sizes()[1]
    assert max(sizes) <= 8192
    assert len(sizes) <= 1024
    assert sum(sizes) <= REPLY_BYTES_MAX + 64 * 1024


async def test_hostile_batches_harm_nobody_in_their_window(broker: BrokerFixture) -> None:
    """Fields that fit no block, counts that lie, runs that are none: refused alone, with a number."""
    hostile, honest = await broker.connect(), await broker.connect()
    cases: list[tuple[bytes, int]] = [
        (batch(b"x", producerId=5, producerEpoch=-1), 400),
        (batch(b"x", producerId=-5), 400),
        (batch(b"x", count=2), 400),
        (batch(b"x", count=-1), 400),
        (batch(b"x", count=0), 400),
        (batch(b"x", messages=b""), 400),
        (batch(b"x", messages=b"\x22\xff\xff\xff\x7f"), 400),
        (batch(b"x", topicName="none"), 403),
        (batch(b"x", partitionId=-1), 403),
        (batch(bytes(1_100_000)), 400),
        (batch(b"x", maxTimeMs=-(2**63)), 200),
        (batch(b"x", maxTimeMs=2**63 - 1, filterBits=2**64 - 1), 200),
        (batch(b"x", producerId=2**63 - 1, producerEpoch=2**31 - 1, sequence=-1), 200),
    ]
    asked = [hostile.call(Method.SEND_BATCH, body, 5) for body, _ in cases]
    others = [Deferred.fromCoroutine(send(honest, b"%d" % i)) for i in range(50)]
    bodies = await gatherResults(asked)
    answers = await gatherResults(others)

    codes = [ext.SendBatchResponseB2P.FromString(body).errCode for body in bodies]
    assert codes == [code for _, code in cases]
    assert all(answer.success for answer in answers)


async def test_two_batches_of_many_tiny_messages_are_both_taken(broker: BrokerFixture) -> None:
    """They fit one block by their bytes, but not by their number: they are not put together."""
    caller = await broker.connect()
    tiny = run.encode_message(1, check_sum(b"x"), b"x", 0, None)
    body = batch(b"x", messages=tiny * 35_000, count=35_000)
    asked = [caller.call(Method.SEND_BATCH, body, 10) for _ in range(4)]
    answers = [ext.SendBatchResponseB2P.FromString(answer) for answer in await gatherResults(asked)]

    assert [answer.errCode for answer in answers] == [200] * 4
    assert broker.running.store.bounds(1, 0).next_offset == 4 * 35_000


@pytest.mark.limit(30)
async def test_the_largest_message_is_taken_with_what_comes_behind_it(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """A topic may not allow more than a block takes; the largest it may comes back whole."""
    await broker.configure(
        TopicConfig(topic="demo", num_partitions=4, max_msg_size=20 * 1024 * 1024)
    )
    topic = broker.running.service.topics.get("demo")
    largest = bytes(topic.message_bytes_max)
    peer = await stranger(broker, peers)
    small = b"".join(call(i, Method.SEND_MESSAGE, message(bytes(500))) for i in range(2, 120))
    peer.send(call(1, Method.SEND_MESSAGE, message(largest), block_bytes=1 << 25) + small)
    answers = await peer.answers(119, 15)
    results = [pb.SendMessageResponseB2P.FromString(answer.body) for answer in answers]
    assert {result.errCode for result in results} == {200}
    peer.send(call(200, Method.SEND_MESSAGE, message(largest + bytes(20_000)), block_bytes=1 << 25))

    answers = await peer.answers(120, 15)
    assert pb.SendMessageResponseB2P.FromString(answers[119].body).errCode == 400


async def test_visit_tokens_are_demanded_when_the_master_says_so(broker: BrokerFixture) -> None:
    """None, a forged and a forgotten one are refused with 415 on every call that has a token."""
    admission = broker.running.service, _admission(broker)
    admission[1].demands.visit_token = True
    admission[1].learn_visit_tokens([100, 101])
    caller = await broker.connect()
    for token, code in ((None, 415), (99, 415), (0, 415), (100, 200), (101, 200)):
        info = pb.AuthorizedInfo(visitAuthorizedToken=token) if token is not None else None
        assert await _codes(caller, info) == [code] * 4
    admission[1].learn_visit_tokens(range(102, 108))

    assert await _codes(caller, pb.AuthorizedInfo(visitAuthorizedToken=100)) == [415] * 4


async def test_auth_tokens_are_demanded_when_the_master_says_so(broker: BrokerFixture) -> None:
    """Missing, malformed, of another key, changed, expired: 415; for another topic: 403; else served."""
    admission = _admission(broker)
    admission.demands.producers_sign = admission.demands.consumers_sign = True
    admission.learn_keys([("k1", b"secret")])
    ours, others = AuthTokens(), AuthTokens()
    ours.set_keys([("k1", b"secret")])
    others.set_keys([("k1", b"guess")])
    future, past = wall_ms() + 60_000, wall_ms() - 60_000
    good = ours.issue(Rights(user="u", produce=("*",), consume=("*",), expires_at_ms=future))
    wrong = ours.issue(Rights(user="u", produce=("a",), consume=("b",), expires_at_ms=future))
    old = ours.issue(Rights(user="u", produce=("*",), consume=("*",), expires_at_ms=past))
    forged = others.issue(Rights(user="u", produce=("*",), consume=("*",), expires_at_ms=future))
    caller = await broker.connect()
    cases = [
        ("", 415),
        ("tube1.k1.x.y", 415),
        ("x" * 5000, 415),
        (forged, 415),
        (old, 415),
        (good[:-2] + ("AA" if not good.endswith("AA") else "BB"), 415),
        ("é" + good, 415),
        (wrong, 403),
        (good, 200),
    ]
    for token, code in cases:
        info = pb.AuthorizedInfo(visitAuthorizedToken=0, authAuthorizedToken=token)
        assert await _codes(caller, info) == [code] * 4
    admission.learn_keys([("k2", b"other")])

    info = pb.AuthorizedInfo(visitAuthorizedToken=0, authAuthorizedToken=good)
    assert await _codes(caller, info) == [415] * 4


def _admission(broker: BrokerFixture):
    return broker.running.uplink._admission


async def _codes(caller, info: pb.AuthorizedInfo | None) -> list[int]:
    """Codes of register, heartbeat, send and fetch with a token."""
    bodies = {
        Method.REGISTER_PARTITION: pb.RegisterRequestC2B.FromString(_register()),
        Method.HEARTBEAT_PARTITIONS: pb.HeartBeatRequestC2B(
            clientId="c1",
            groupName="group1",
            readStatus=0,
            partitionInfo=["1:127.0.0.1:8123#demo:0"],
        ),
        Method.SEND_MESSAGE: pb.SendMessageRequestP2B.FromString(message()),
        Method.FETCH: ext.FetchRequestC2B.FromString(fetch()),
    }
    kinds = (
        pb.RegisterResponseB2C,
        pb.HeartBeatResponseB2C,
        pb.SendMessageResponseB2P,
        ext.FetchResponseB2C,
    )
    codes = []
    for (method, request), kind in zip(bodies.items(), kinds, strict=True):
        if info is not None:
            request.authInfo.CopyFrom(info)
        body = await caller.call(method, request.SerializeToString(), 5)
        codes.append(kind.FromString(body).errCode)
    return codes


async def test_too_many_partitions_in_one_question_are_refused(broker: BrokerFixture) -> None:
    """ListOffsets of more partitions than a topic can have is no question but an attack."""
    caller = await broker.connect()
    request = ext.ListOffsetsRequestC2B(clientId="c1", topicName="demo", partitionId=[0] * 20_000)
    body = await caller.call(Method.LIST_OFFSETS, request.SerializeToString(), 5)

    assert ext.ListOffsetsResponseB2C.FromString(body).errCode == 400


async def test_waiting_pulls_end_with_their_connection(
    broker: BrokerFixture, peers: list[Peer]
) -> None:
    """A peer that asks, waits and leaves, again and again, leaves nothing behind."""
    reader = broker.running.service.reader
    for _ in range(3):
        peer = await stranger(broker, peers)
        peer.send(b"".join(call(i, Method.FETCH, fetch(waitMs=4000)) for i in range(1, 101)))
        await eventually(lambda: sum(map(len, reader._waiting.values())) == 100)
        peer.leave()
        await eventually(lambda: not reader._waiting)


async def test_the_answer_frame_limit_is_an_error_of_the_decoder() -> None:
    """A frame over the limit names both numbers."""
    with pytest.raises(FrameTooLargeError, match="limit is"):
        rpc.frame.encode(1, bytes(29 * 1024 * 1024))
