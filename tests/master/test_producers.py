"""Producers over a real socket."""

from __future__ import annotations

import pytest

from tests.master.peers import serving
from tube.pb import MasterService_pb2 as pb
from tube.wire.rpc import Method


async def test_a_producer_learns_where_to_write(peer, http):
    """Brokers at register; topics in heartbeats only, brokers again only when they changed."""
    await serving(peer, http)
    request = pb.RegisterRequestP2M(
        clientId="p", brokerCheckSum=-1, hostName="h", client_features=15
    )
    request.appdConfig.configId = -2
    registered = await peer.call(Method.REGISTER_PRODUCER, request, pb.RegisterResponseM2P)
    assert list(registered.brokerInfos) == ["1:127.0.0.1:8123"]
    assert registered.appdConfig.maxMsgSize == 1024 * 1024
    assert registered.server_features

    answer = await peer.produce(brokerCheckSum=registered.brokerCheckSum)
    assert not answer.brokerInfos
    assert list(answer.topicInfos) == ["demo#1:4:1#1048576"]
    assert not answer.requireAuth
    await peer.broker(2, port=9000)
    moved = await peer.produce(brokerCheckSum=registered.brokerCheckSum)

    assert list(moved.brokerInfos) == ["1:127.0.0.1:8123", "2:127.0.0.1:9000"]


async def test_a_producer_s_heartbeat_registers_it(peer, http):
    """C++ and Go do not survive a 411; an empty list of topics is fine."""
    answer = await peer.produce("stranger", topicList=[])

    assert (answer.success, answer.errCode) == (True, 200)
    shown = await http("GET", "/api/v1/producers")
    assert [p["client_id"] for p in shown["producers"]] == ["stranger"]


async def test_a_producer_leaves(peer, http):
    """And may say so twice."""
    await peer.produce()
    request = pb.CloseRequestP2M(clientId="p")

    for _ in range(2):
        assert (await peer.call(Method.CLOSE_PRODUCER, request, pb.CloseResponseM2P)).success

    assert (await http("GET", "/api/v1/producers"))["producers"] == []


@pytest.mark.parametrize(
    "fields", [{"client": ""}, {"client": "x" * 1025}, {"hostName": ""}, {"topicList": ["a b"]}]
)
async def test_malformed_names_are_refused(peer, fields):
    """With 400, and the checksum filled."""
    answer = await peer.produce(**fields)

    assert (answer.success, answer.errCode, answer.brokerCheckSum) == (False, 400, -1)
