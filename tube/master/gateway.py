"""The listener for clients and brokers: translates frames to the master's verbs and back, decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from google.protobuf.message import Message
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tube.errors import (
    StaleEpochError,
    StandbyError,
    TubeError,
    UnknownMethodError,
    WireError,
)
from tube.limits import SMALL_CALL_BYTES_MAX
from tube.master import translate
from tube.master.access import Claim
from tube.master.brokers import Brokers
from tube.master.consumers import Consumers
from tube.master.consumers_v2 import SelfBalanced
from tube.master.core import Core
from tube.master.producers import Producers
from tube.net.framed import FramedProtocol
from tube.pb import MasterService_pb2 as pb
from tube.values import ClientId, GroupName
from tube.wire import records, rpc
from tube.wire.frame import Frame
from tube.wire.rpc import Call, Method

log = Logger(namespace="tube.master.gateway")

Verb = Callable[[FramedProtocol, Call], Coroutine[Deferred[Any], Any, Message | None]]


class MasterGateway:
    """Serves methods 1-9 and 20-22 on connections."""

    def __init__(self, core: Core, brokers: Brokers) -> None:
        self._core = core
        self._brokers = brokers
        self._producers = Producers(core)
        self._consumers = Consumers(core)
        self._self_balanced = SelfBalanced(core)
        self.calls = 0
        self.calls_refused = 0
        self._verbs: dict[int, Verb] = {
            Method.REGISTER_PRODUCER: self._register_producer,
            Method.HEARTBEAT_PRODUCER: self._heartbeat_producer,
            Method.CLOSE_PRODUCER: self._close_producer,
            Method.REGISTER_CONSUMER: self._register_consumer,
            Method.HEARTBEAT_CONSUMER: self._heartbeat_consumer,
            Method.CLOSE_CONSUMER: self._close_consumer,
            Method.REGISTER_BROKER: self._register_broker,
            Method.HEARTBEAT_BROKER: self._heartbeat_broker,
            Method.CLOSE_BROKER: self._close_broker,
            Method.REGISTER_CONSUMER_V2: self._register_v2,
            Method.HEARTBEAT_CONSUMER_V2: self._heartbeat_v2,
            Method.GET_PARTITION_META: self._metadata,
        }

    # connections

    def received(self, connection: FramedProtocol, frames: list[Frame]) -> None:
        """All frames of one read."""
        for frame in frames:
            self.calls += 1
            try:
                call = rpc.decode_call(frame)
            except rpc.MalformedCallError as error:
                self.calls_refused += 1
                name = rpc.refusal_name(error, None)
                connection.write(rpc.encode_refusal(error.serial, None, True, name, str(error)))
                continue
            self._begin(connection, call)

    def lost(self, connection: FramedProtocol, _reason: Failure) -> None:
        """A connection ended: nobody waits for its held heartbeats any more."""
        self._core.held_consumers.drop(connection)
        self._core.held_brokers.drop(connection)

    def limit(self, _connection: FramedProtocol, _prefix: bytes) -> int:
        """How long a frame may be: no call to a master carries messages."""
        return SMALL_CALL_BYTES_MAX

    # calls

    def _begin(self, connection: FramedProtocol, call: Call) -> None:
        verb = self._verbs.get(call.method)
        if verb is None:
            text = f"IPC server handle request error :Unsupported method ID :{call.method}"
            self._refuse(connection, call, UnknownMethodError(text), fatal=True)
            return
        connection.begin(1, len(call.body))
        Deferred.fromCoroutine(self._answer(connection, call, verb))

    async def _answer(self, connection: FramedProtocol, call: Call, verb: Verb) -> None:
        """Await the verb and write what it says; never raises."""
        try:
            answer = await verb(connection, call)
            if not connection.admitted:
                connection.admit()
            if answer is not None:
                self._write(connection, call, answer)
        except WireError as error:
            self._refuse(connection, call, error, fatal=True)
        except StandbyError as error:
            if not connection.admitted:
                connection.admit()
            self._refuse(connection, call, error, fatal=False)
        except StaleEpochError as error:
            self._core.leader.step_down(str(error))
            standby = StandbyError(f"this is not the master now: {error}")
            self._refuse(connection, call, standby, fatal=False)
        except TubeError as error:
            self.calls_refused += 1
            log.debug(
                "method {method}: {error}",
                method=call.method,
                error=str(error),
                peer=connection.connected_to,
            )
            self._write(connection, call, _REFUSALS[call.method](error))
        except Exception:
            log.failure("method {method}: failed", method=call.method, peer=connection.connected_to)
            self._write(connection, call, _REFUSALS[call.method](TubeError("internal error")))
        finally:
            connection.end(1, len(call.body))

    def _write(self, connection: FramedProtocol, call: Call, answer: Message) -> None:
        body = answer.SerializeToString()
        connection.write(rpc.encode_reply(call.serial, call.method, call.protocol_version, body))

    def _refuse(
        self, connection: FramedProtocol, call: Call, error: TubeError, *, fatal: bool
    ) -> None:
        self.calls_refused += 1
        name = rpc.refusal_name(error, call.protocol_version)
        version = None if fatal else call.protocol_version
        connection.write(rpc.encode_refusal(call.serial, version, fatal, name, str(error)))

    # producers

    async def _register_producer(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.RegisterRequestP2M, call.body)
        view = self._producers.register(
            ClientId(request.clientId),
            request.hostName,
            request.topicList,
            request.brokerCheckSum,
            _claim(request, connection),
        )
        return translate.producer_registered(request, view)

    async def _heartbeat_producer(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.HeartRequestP2M, call.body)
        view = self._producers.heartbeat(
            ClientId(request.clientId),
            request.hostName,
            request.topicList,
            request.brokerCheckSum,
            _claim(request, connection),
        )
        return translate.producer_answer(request, view)

    async def _close_producer(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.CloseRequestP2M, call.body)
        self._producers.close(ClientId(request.clientId), _claim(request, connection))
        return pb.CloseResponseM2P(success=True, errCode=translate.OK, errMsg=translate.OK_TEXT)

    # consumers

    async def _register_consumer(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.RegisterRequestC2M, call.body)
        asked = translate.registration(request)
        view = await self._consumers.register(asked, _claim(request, connection))
        return translate.consumer_registered(request, view)

    async def _heartbeat_consumer(self, connection: FramedProtocol, call: Call) -> Message | None:
        request = rpc.parse(pb.HeartRequestC2M, call.body)
        beat = translate.heartbeat(request, call.timeout_ms, connection)
        view = await self._consumers.heartbeat(beat, _claim(request, connection))
        if view is None:
            return None
        return translate.consumer_answer(request, view, self._core, secure=connection.secure)

    async def _close_consumer(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.CloseRequestC2M, call.body)
        self._consumers.close(
            GroupName(request.groupName),
            ClientId(request.clientId),
            _claim(request, connection),
        )
        return pb.CloseResponseM2C(success=True, errCode=translate.OK, errMsg=translate.OK_TEXT)

    async def _register_v2(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.RegisterRequestC2MV2, call.body)
        view = await self._self_balanced.register(
            translate.registration_v2(request),
            translate.versions(request),
            _claim(request, connection),
        )
        return translate.self_balanced_registered(view)

    async def _heartbeat_v2(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.HeartRequestC2MV2, call.body)
        view = await self._self_balanced.heartbeat(
            ClientId(request.clientId),
            GroupName(request.groupName),
            translate.reported_v2(request),
            translate.flow_ids_v2(request),
            translate.versions(request),
            _claim(request, connection),
        )
        return translate.self_balanced_answer(view, push=request.HasField("subRepInfo"))

    async def _metadata(self, connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.GetPartMetaRequestC2M, call.body)
        view = self._self_balanced.metadata(
            ClientId(request.clientId),
            GroupName(request.groupName),
            translate.versions(request),
            _claim(request, connection),
        )
        return translate.metadata_answer(view)

    # brokers

    async def _register_broker(self, _connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.RegisterRequestB2M, call.body)
        view = await self._brokers.register(
            records.parse_identity(request.clientId).broker,
            request.http_port,
            request.flowCheckId if request.HasField("flowCheckId") else -2,
            online=request.brokerOnline,
            tls_port=request.tlsPort if request.enableTls else 0,
        )
        return translate.broker_registered(request, view, self._core)

    async def _heartbeat_broker(self, connection: FramedProtocol, call: Call) -> Message | None:
        request = rpc.parse(pb.HeartRequestB2M, call.body)
        view = await self._brokers.heartbeat(translate.beat(request, call.timeout_ms, connection))
        return None if view is None else translate.broker_answer(view, self._core)

    async def _close_broker(self, _connection: FramedProtocol, call: Call) -> Message:
        request = rpc.parse(pb.CloseRequestB2M, call.body)
        self._brokers.close(records.integer(request.brokerId, "broker id", 0))
        return pb.CloseResponseM2B(success=True, errCode=translate.OK, errMsg=translate.OK_TEXT)


def _claim(request: translate.FromClient, connection: FramedProtocol) -> Claim:
    return translate.claim(
        request.clientId, request.authInfo, connection.connected_to, secure=connection.secure
    )


def _plain(kind: Callable[..., Message], **extra: Any) -> Callable[[TubeError], Message]:
    """A refusal that fills success, errCode and errMsg, and ``extra``."""
    return lambda error: kind(success=False, errCode=error.code, errMsg=str(error), **extra)


def _bare(kind: Callable[..., Message]) -> Callable[[TubeError], Message]:
    """A refusal of a message without ``success``."""
    return lambda error: kind(errCode=error.code, errMsg=str(error))


_REFUSALS: dict[int, Callable[[TubeError], Message]] = {
    Method.REGISTER_PRODUCER: _plain(pb.RegisterResponseM2P, brokerCheckSum=-1),
    Method.HEARTBEAT_PRODUCER: _plain(pb.HeartResponseM2P, brokerCheckSum=-1),
    Method.CLOSE_PRODUCER: _plain(pb.CloseResponseM2P),
    Method.REGISTER_CONSUMER: _plain(pb.RegisterResponseM2C),
    Method.HEARTBEAT_CONSUMER: _plain(pb.HeartResponseM2C),
    Method.CLOSE_CONSUMER: _plain(pb.CloseResponseM2C),
    Method.REGISTER_BROKER: _plain(
        pb.RegisterResponseM2B, stopRead=False, stopWrite=False, takeConfInfo=False
    ),
    Method.HEARTBEAT_BROKER: _plain(
        pb.HeartResponseM2B,
        stopRead=False,
        stopWrite=False,
        curBrokerConfId=-1,
        confCheckSumId=-1,
        needReportData=False,
        takeConfInfo=False,
        takeRemoveTopicInfo=False,
    ),
    Method.CLOSE_BROKER: _plain(pb.CloseResponseM2B),
    Method.REGISTER_CONSUMER_V2: _bare(pb.RegisterResponseM2CV2),
    Method.HEARTBEAT_CONSUMER_V2: _bare(pb.HeartResponseM2CV2),
    Method.GET_PARTITION_META: _bare(pb.GetPartMetaResponseM2C),
}
