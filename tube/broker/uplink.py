"""The broker's own registration and heartbeat with the master.

One heartbeat is always open: our master holds it until it has something to say (``wait_ms``), an original one
answers at once and is asked again after ``heartbeat_s``.  Results of orders wake the loop.  Without any master
the broker serves on with what it knows.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from tube.broker.admission import Admission
from tube.broker.catalogue import Catalogue
from tube.broker.flow import FlowControl
from tube.broker.orders import Orders
from tube.errors import (
    BadRequestError,
    NotRegisteredError,
    StandbyError,
    TubeError,
    UnreachableError,
)
from tube.net.caller import Caller, connect
from tube.net.clock import Reactor
from tube.pb import MasterService_pb2 as pb
from tube.values import Address, Broker, GroupName
from tube.wire import feature, records, rpc
from tube.wire.flow import parse_flow_control
from tube.wire.rpc import Method

log = Logger(namespace="tube.broker.uplink")

CALL_S = 10.0
RETRY_S = 0.5

RESULT_BYTES_MAX = 512 * 1024
"""Longest result of an order; a master takes no heartbeat over ``SMALL_CALL_BYTES_MAX``."""

VERSION = "tube-0.1"


@dataclass(slots=True)
class _Known:
    """What the master told us, by version; it sends only what differs."""

    configuration_id: int = 0
    checksum: int = 0
    defaults: str = ""
    topics: tuple[str, ...] = ()
    flow_check_id: int = -2
    priority_id: int = -2
    facts_id: int = 0


class Uplink:
    """Keeps this broker registered with the leading master and applies what it says.

    ``epoch_seen`` and ``epoch_changed`` remember the highest epoch: orders of a lower one are refused.
    """

    def __init__(
        self,
        reactor: Reactor,
        *,
        masters: Sequence[Address],
        broker: Broker,
        http_port: int,
        tls_port: int = 0,
        heartbeat_s: float,
        catalogue: Catalogue,
        flow: FlowControl,
        admission: Admission,
        orders: Orders,
        epoch: Epoch,
    ) -> None:
        self._reactor = reactor
        self._masters = list(masters)
        self._broker = broker
        self._http_port = http_port
        self._tls_port = tls_port
        self._heartbeat_s = heartbeat_s
        self._catalogue = catalogue
        self._flow = flow
        self._admission = admission
        self._orders = orders
        self._epoch = epoch
        self._known = _Known()
        self._caller: Caller | None = None
        self._results: list[tuple[int, str]] = []
        self._removed: list[str] = []
        self._orders_seen: deque[int] = deque(maxlen=1000)
        self._wake: Deferred[None] | None = None
        self._loop: Deferred[None] | None = None
        self._ours = False
        self._report = False
        self._stopping = False
        self.registered = False
        self.last_heard_s: float | None = None

    def start(self) -> None:
        """Begin to register; goes on for ever, whatever fails."""
        self._loop = Deferred.fromCoroutine(self._run())

    async def stop(self) -> None:
        """Say goodbye to the master and end."""
        self._stopping = True
        if self._loop is not None:
            self._loop.cancel()
        if self._caller is not None and not self._caller.closed:
            if self.registered:
                request = pb.CloseRequestB2M(brokerId=str(self._broker.broker_id))
                try:
                    await self._caller.call(Method.CLOSE_BROKER, request.SerializeToString(), 2.0)
                except TubeError as error:
                    log.info("closing at the master: {error}", error=str(error))
            self._caller.abort()
        self.registered = False

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._register()
                while True:
                    await self._heartbeat()
            except CancelledError:
                return
            except NotRegisteredError:
                log.info("the master does not know this broker any more: registering again")
                self.registered = False
            except TubeError as error:
                self._lost(error)
                await self._sleep(RETRY_S)
            except Exception as error:
                log.failure("the uplink failed")
                self._lost(error)
                await self._sleep(RETRY_S)

    def _lost(self, error: Exception) -> None:
        if self.registered or not isinstance(error, UnreachableError):
            log.warn("master: {error}", error=str(error))
        self.registered = False
        self._known = _Known()
        if self._caller is not None:
            self._caller.abort()
            self._caller = None
        self._masters.append(self._masters.pop(0))

    async def _sleep(self, seconds: float) -> None:
        if self._stopping:  # a connection attempt that is cancelled may end as any other failure
            return
        try:
            await deferLater(self._reactor, seconds, lambda: None)
        except CancelledError:
            if not self._stopping:
                raise

    async def _call(self, method: Method, body: bytes, timeout_s: float) -> bytes:
        if self._caller is None or self._caller.closed:
            self._caller = await connect(self._reactor, self._masters[0])
        return await self._caller.call(method, body, timeout_s)

    async def _register(self) -> None:
        broker = self._broker
        request = pb.RegisterRequestB2M(
            clientId=f"{broker.broker_id}:{broker.host}:{broker.port}:{VERSION}",
            brokerOnline=False,
            enableTls=self._tls_port > 0,
            readStatusRpt=0,
            writeStatusRpt=0,
            curBrokerConfId=0,
            confCheckSumId=0,
            brokerDefaultConfInfo="",
            flowCheckId=-2,
            qryPriorityId=-2,
            tlsPort=self._tls_port,
            clsConfig=pb.ClusterConfig(configId=-2),
            client_features=feature.ALL,
            http_port=max(0, self._http_port),
            epoch_seen=self._epoch.highest,
        )
        body = await self._call(Method.REGISTER_BROKER, request.SerializeToString(), CALL_S)
        answer = rpc.parse(pb.RegisterResponseM2B, body)
        _check(answer)
        self._epoch.check(answer.epoch)
        self._known = _Known()
        self._ours = bool(answer.server_features & feature.WAIT)
        self._admission.registered()
        if answer.HasField("enableBrokerInfo"):
            demands = self._admission.demands
            demands.visit_token = answer.enableBrokerInfo.enableVisitTokenCheck
            demands.producers_sign = answer.enableBrokerInfo.enableProduceAuthenticate
            demands.consumers_sign = answer.enableBrokerInfo.enableConsumeAuthenticate
        await self._apply(answer, take=answer.takeConfInfo)
        self._report = True
        self.registered = True
        log.info(
            "registered with the master {master}", master=str(self._masters[0]), epoch=answer.epoch
        )

    async def _heartbeat(self) -> None:
        known = self._known
        results = self._some_results()
        removed, self._removed = self._removed, []
        reports = self._report
        request = pb.HeartRequestB2M(
            brokerId=str(self._broker.broker_id),
            brokerOnline=True,
            readStatusRpt=0,
            writeStatusRpt=0,
            curBrokerConfId=known.configuration_id,
            confCheckSumId=known.checksum,
            takeConfInfo=reports,
            takeRemovedTopicInfo=bool(removed),
            removedTopicsInfo=removed,
            flowCheckId=known.flow_check_id,
            qryPriorityId=known.priority_id,
            clsConfig=pb.ClusterConfig(configId=-2),
            topic_facts_id=known.facts_id,
            results=[pb.OrderResult(order_id=number, json=text) for number, text in results],
        )
        if reports:
            request.brokerDefaultConfInfo = known.defaults
            request.brokerTopicSetConfInfo.extend(known.topics)
        if self._ours and not reports and not removed and not self._results:
            request.wait_ms = int(self._heartbeat_s * 1000)

        def unheard() -> None:
            self._results = results + self._results
            self._removed = removed + self._removed

        body = await self._call_or_wake(request.SerializeToString(), unheard)
        if body is None:
            return
        answer = rpc.parse(pb.HeartResponseM2B, body)
        _check(answer)
        self._epoch.check(answer.epoch)
        self._report = answer.needReportData
        if await self._apply(answer, take=answer.takeConfInfo):
            self._report = True
        await self._remove(answer.removeTopicConfInfo)
        if not self._ours and not self._report and not self._removed:
            await self._sleep(self._heartbeat_s)

    def _some_results(self) -> list[tuple[int, str]]:
        """Take as many results as a heartbeat has room for, at least one."""
        total = taken = 0
        for _, text in self._results:
            total += len(text)
            if taken and total > RESULT_BYTES_MAX:
                break
            taken += 1
        results, self._results = self._results[:taken], self._results[taken:]
        return results

    async def _call_or_wake(self, body: bytes, unheard: Callable[[], None]) -> bytes | None:
        """The answer of a heartbeat, or None when something here must be told first.

        The held heartbeat that is left behind is answered by the master when the next one comes; what the
        answer says of configurations and orders, later answers say again.

        Args:
            unheard: called when the master has not, or may not have, heard the heartbeat; maybe long after.
        """
        wake: Deferred[None] = Deferred()
        self._wake = wake
        calling = Deferred.fromCoroutine(
            self._call(Method.HEARTBEAT_BROKER, body, self._heartbeat_s + CALL_S)
        )
        done: Deferred[bytes | None] = Deferred()

        def failed(failure: Failure) -> None:
            unheard()
            if not done.called:
                done.errback(failure)

        def answered(answer: bytes) -> None:
            if done.called:
                self._answered_late(answer)
            else:
                done.callback(answer)

        calling.addCallbacks(answered, failed)
        calling.addErrback(lambda failure: log.failure("a late answer", failure=failure))
        wake.addCallback(lambda _none: None if done.called else done.callback(None))
        try:
            return await done
        except CancelledError:
            calling.cancel()
            raise
        finally:
            self._wake = None

    def _answered_late(self, body: bytes) -> None:
        """Take from the answer of a heartbeat that was left behind what is said once only."""
        answer = rpc.parse(pb.HeartResponseM2B, body)
        if answer.success and answer.epoch >= self._epoch.highest:
            self._report = self._report or answer.needReportData
            self._learn(answer)

    async def _apply(
        self, answer: pb.RegisterResponseM2B | pb.HeartResponseM2B, *, take: bool
    ) -> bool:
        """Take over what the answer says; True when the configuration changed."""
        self._learn(answer)
        before = replace(self._known)
        self._apply_rules(answer)
        if answer.topic_facts_id != self._known.facts_id:
            self._catalogue.learn_facts(answer.topic_facts)
            self._known.facts_id = answer.topic_facts_id
        if take:
            known = self._known
            known.configuration_id = answer.curBrokerConfId
            known.checksum = answer.confCheckSumId
            known.defaults = answer.brokerDefaultConfInfo
            known.topics = tuple(answer.brokerTopicSetConfInfo)
        if take or answer.topic_facts:
            try:
                await self._catalogue.configure(self._known.defaults, self._known.topics)
            except TubeError as error:  # a full disk, say: the master tells it again, we serve on
                log.warn("the configuration cannot be applied: {error}", error=str(error))
                self._known = before
                take = False
                await self._sleep(RETRY_S)
        for order in answer.orders:
            if order.order_id in self._orders_seen:  # repeated until the master has its result
                continue
            self._orders_seen.append(order.order_id)
            carried = Deferred.fromCoroutine(self._carry_out(order.order_id, order.json))
            carried.addErrback(lambda failure: log.failure("an order failed", failure=failure))
        return take

    def _learn(self, answer: pb.RegisterResponseM2B | pb.HeartResponseM2B) -> None:
        """Take over the switches and the tokens, which every answer has."""
        self.last_heard_s = self._reactor.seconds()
        self._catalogue.stop(read=answer.stopRead, write=answer.stopWrite)
        if answer.HasField("brokerAuthorizedInfo"):
            tokens = records.parse_visit_tokens(answer.brokerAuthorizedInfo.visitAuthorizedToken)
            self._admission.learn_visit_tokens((tokens.valid, tokens.fresh))
        if answer.signing_keys:
            self._admission.learn_keys((key.key_id, key.secret) for key in answer.signing_keys)

    def _apply_rules(self, answer: pb.RegisterResponseM2B | pb.HeartResponseM2B) -> None:
        if answer.HasField("flowCheckId") and answer.flowCheckId != self._known.flow_check_id:
            self._flow.set_default(parse_flow_control(answer.flowControlInfo))
            self._known.flow_check_id = answer.flowCheckId
        if answer.topic_facts_id != self._known.facts_id:
            self._flow.set_groups(
                {
                    GroupName(r.group): parse_flow_control(r.flow_control_info)
                    for r in answer.group_rules
                }
            )

    async def _remove(self, texts: Sequence[str]) -> None:
        if texts:
            self._removed += await self._catalogue.remove(texts)

    async def _carry_out(self, order_id: int, text: str) -> None:
        result = await self._orders.carry_out(text)
        if len(result) > RESULT_BYTES_MAX:  # its heartbeat would be cut off, again and again
            refusal = BadRequestError(
                f"the result has {len(result)} bytes, the limit is {RESULT_BYTES_MAX}: ask for less"
            )
            result = json.dumps({"error": {"code": refusal.code, "message": str(refusal)}})
        self._results.append((order_id, result))
        if self._wake is not None and not self._wake.called:
            self._wake.callback(None)


class Epoch:
    """The highest epoch of a master that this broker has seen; it survives restarts in a file.

    ``save(number)`` keeps it.
    """

    def __init__(self, highest: int, save: Callable[[int], None]) -> None:
        self.highest = highest
        self._save = save

    def check(self, epoch: int) -> None:
        """Accept an answer of ``epoch`` (0: an original master, which has none).

        Raises:
            StandbyError: its master has been deposed.
        """
        if epoch and epoch < self.highest:
            raise StandbyError(f"the master's epoch {epoch} is over, {self.highest} has begun")
        if epoch > self.highest:
            self.highest = epoch
            try:
                self._save(epoch)
            except OSError as error:  # a full disk must not keep us from the master
                log.warn("epoch {epoch} is not saved: {error}", epoch=epoch, error=str(error))


def load_epoch(path: Path) -> int:
    """The saved epoch, 0 for none."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def save_epoch(path: Path, epoch: int) -> None:
    """Keep the epoch; a lost write costs nothing but the memory of a fail-over during a power cut."""
    draft = path.with_suffix(".new")
    draft.write_text(str(epoch))
    draft.replace(path)


def _check(answer: pb.RegisterResponseM2B | pb.HeartResponseM2B) -> None:
    if not answer.success:
        raise rpc.error_from_code(answer.errCode, answer.errMsg)
