"""Clients and brokers in the hands of a test: they say exactly what the test wants."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from tube.net.caller import Caller
from tube.pb import MasterService_pb2 as pb
from tube.wire import feature
from tube.wire.rpc import Method


async def eventually(condition, within_s: float = 5.0):
    """Wait until the condition holds, and return what it said."""
    until_s = reactor.seconds() + within_s
    while True:
        found = condition()
        if hasattr(found, "__await__"):
            found = await found
        if found:
            return found
        assert reactor.seconds() < until_s, "the condition did not come true"
        await deferLater(reactor, 0.01, lambda: None)


class Http:
    """Requests to the JSON API; ``last_status`` is that of the last answer."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.last_status = 0

    async def __call__(
        self, method: str, path: str, body: Any = None, raw: bytes | None = None
    ) -> Any:
        content = (
            raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        )
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", method=method, data=content
        )
        status, text = await deferToThread(self._send, request)
        self.last_status = status
        try:
            return json.loads(text)
        except ValueError:
            return text.decode()

    def _send(self, request: urllib.request.Request) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


class Peer:
    """A connection that speaks the master's calls."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    async def call(self, method: Method, request, answer, timeout_s: float = 5.0):
        """One call."""
        body = await self.caller.call(method, request.SerializePartialToString(), timeout_s)
        return answer.FromString(body)

    async def join(self, client: str, group: str = "readers", **fields: Any):
        """Register a consumer."""
        values = {"hostName": "h", "topicList": ["demo"]} | fields
        request = pb.RegisterRequestC2M(clientId=client, groupName=group, **values)
        return await self.call(Method.REGISTER_CONSUMER, request, pb.RegisterResponseM2C)

    async def beat(self, client: str, group: str = "readers", held=None, done=None, **fields: Any):
        """Heartbeat of a consumer; ``held`` texts, ``done`` the event it acknowledges."""
        request = pb.HeartRequestC2M(
            clientId=client,
            groupName=group,
            reportSubscribeInfo=held is not None,
            subscribeInfo=held or (),
            **fields,
        )
        if done is not None:
            request.event.CopyFrom(done)
            request.event.status = 2
        return await self.call(Method.HEARTBEAT_CONSUMER, request, pb.HeartResponseM2C, 20.0)

    async def produce(self, client: str = "p", **fields: Any):
        """Heartbeat of a producer."""
        values = {"hostName": "h", "brokerCheckSum": -1, "topicList": ["demo"]} | fields
        request = pb.HeartRequestP2M(clientId=client, **values)
        return await self.call(Method.HEARTBEAT_PRODUCER, request, pb.HeartResponseM2P)

    async def broker(self, broker_id: int = 1, port: int = 8123, **fields: Any):
        """Register a broker of ours."""
        values = {
            "brokerOnline": False,
            "enableTls": False,
            "readStatusRpt": 0,
            "writeStatusRpt": 0,
            "curBrokerConfId": 0,
            "confCheckSumId": 0,
            "brokerDefaultConfInfo": "",
            "client_features": feature.ALL,
        } | fields
        request = pb.RegisterRequestB2M(clientId=f"{broker_id}:127.0.0.1:{port}:t", **values)
        return await self.call(Method.REGISTER_BROKER, request, pb.RegisterResponseM2B)

    async def broker_beat(self, seen, broker_id: int = 1, **fields: Any):
        """Heartbeat of a broker that has applied everything in the answer ``seen``."""
        values = {
            "brokerOnline": True,
            "readStatusRpt": 0,
            "writeStatusRpt": 0,
            "curBrokerConfId": seen.curBrokerConfId,
            "confCheckSumId": seen.confCheckSumId,
            "takeConfInfo": False,
            "takeRemovedTopicInfo": False,
            "flowCheckId": seen.flowCheckId,
            "topic_facts_id": seen.topic_facts_id,
        } | fields
        request = pb.HeartRequestB2M(brokerId=str(broker_id), **values)
        return await self.call(Method.HEARTBEAT_BROKER, request, pb.HeartResponseM2B, 20.0)


async def serving(peer: Peer, http: Http, partitions: int = 4, topic: str = "demo"):
    """A broker that serves a new topic; returns its last answer."""
    await peer.broker()
    created = await http("POST", "/api/v1/topics", {"name": topic, "partitions": partitions})
    assert http.last_status == 200, created
    seen = await peer.broker_beat(await peer.broker())
    return await peer.broker_beat(seen)


async def assigned(peer: Peer, client: str, group: str = "readers"):
    """Take the next event, acknowledge it, and return what the client holds then."""
    answer = await peer.beat(client, group, wait_ms=4000)
    held = list(answer.event.subscribeInfo)
    await peer.beat(client, group, held=held, done=answer.event)
    return held
