"""Consumers that balance themselves get metadata and are left alone."""

from __future__ import annotations

import pytest

from tests.master.peers import serving
from tube.pb import MasterService_pb2 as pb
from tube.wire.rpc import Method


async def register(peer, client="a", **fields):
    values = {"hostName": "h", "sourceCount": 2, "nodeId": 0, "topicList": ["demo"]} | fields
    request = pb.RegisterRequestC2MV2(clientId=client, groupName="own", **values)
    return await peer.call(Method.REGISTER_CONSUMER_V2, request, pb.RegisterResponseM2CV2)


async def test_metadata_is_sent_when_the_version_differs(peer, http):
    """Brokers at register, topics when asked; the same version gets no lists."""
    await serving(peer, http, partitions=2)
    registered = await register(peer)
    assert list(registered.brokerConfigList) == ["1:127.0.0.1:8123"]
    assert registered.HasField("opsTaskInfo")
    request = pb.GetPartMetaRequestC2M(
        clientId="a",
        groupName="own",
        brokerConfigId=registered.brokerConfigId,
        topicMetaInfoId=-2,
    )

    told = await peer.call(Method.GET_PARTITION_META, request, pb.GetPartMetaResponseM2C)
    request.topicMetaInfoId = told.topicMetaInfoId
    same = await peer.call(Method.GET_PARTITION_META, request, pb.GetPartMetaResponseM2C)

    assert list(told.topicMetaInfoList) == ["demo#1:1:2:1"]
    assert not told.brokerConfigList
    assert not same.topicMetaInfoList


async def test_a_heartbeat_reports_and_gets_no_event(peer, http):
    """What it holds is shown, and the balancer stays away."""
    await serving(peer, http, partitions=2)
    await register(peer)
    report = pb.ClientSubRepInfo(
        brokerConfigId=-2, topicMetaInfoId=-2, reportSubInfo=True, partSubInfo=["demo#1:0,1:1"]
    )
    request = pb.HeartRequestC2MV2(clientId="a", groupName="own", subRepInfo=report)

    answer = await peer.call(Method.HEARTBEAT_CONSUMER_V2, request, pb.HeartResponseM2CV2)

    assert answer.errCode == 200
    assert list(answer.topicMetaInfoList) == ["demo#1:1:2:1"]
    shown = await http("GET", "/api/v1/groups/own")
    assert len(shown["members"][0]["partitions"]) == 2
    assert shown["state"] == "stable"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"nodeId": 2}, 400),
        ({"nodeId": -1}, 400),
        ({"sourceCount": 3, "nodeId": 1}, 429),
        ({"nodeId": 0}, 430),
        ({"topicList": ["nosuch"], "nodeId": 1}, 431),
        ({"sourceCount": -1, "nodeId": -1}, 429),
    ],
)
async def test_a_wrong_registration_has_its_code(peer, http, fields, code):
    """Node ids are places among the sources."""
    await serving(peer, http)
    await register(peer)

    assert (await register(peer, "b", **fields)).errCode == code


async def test_a_balanced_consumer_may_not_join(peer, http):
    """A group is balanced by the master or by itself."""
    await serving(peer, http)
    await register(peer)

    assert (await peer.join("x", "own")).errCode == 424


@pytest.mark.parametrize(
    ("method", "request_", "answer"),
    [
        (
            Method.HEARTBEAT_CONSUMER_V2,
            pb.HeartRequestC2MV2(clientId="x", groupName="own"),
            pb.HeartResponseM2CV2,
        ),
        (
            Method.GET_PARTITION_META,
            pb.GetPartMetaRequestC2M(
                clientId="x", groupName="own", brokerConfigId=-2, topicMetaInfoId=-2
            ),
            pb.GetPartMetaResponseM2C,
        ),
    ],
)
async def test_a_stranger_must_register(peer, method, request_, answer):
    """411."""
    assert (await peer.call(method, request_, answer)).errCode == 411
