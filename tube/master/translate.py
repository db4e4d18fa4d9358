"""Between the messages of TubeMQ and the values of the master's verbs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tube.auth.signatures import Signed
from tube.errors import BadRequestError
from tube.limits import MESSAGE_BYTES_DEFAULT, WAIT_MS_MAX
from tube.master.access import Claim
from tube.master.brokers import BrokerBeat, BrokerView
from tube.master.consumers import (
    ConsumerView,
    FlowView,
    Heartbeat,
    parse_subscriptions,
)
from tube.master.consumers_v2 import HeldVersions, SelfBalancedView
from tube.master.core import Core
from tube.master.entrance import FlowIds, Registration
from tube.master.events import Event
from tube.master.producers import ProducerView
from tube.master.registry import Kind, Wanted
from tube.pb import MasterService_pb2 as pb
from tube.values import ClientId, GroupName, Partition
from tube.wire import feature, records

OK = 200
OK_TEXT = "OK!"
CONFIG_ID = 1
"""Version of the cluster's limits for producers; they never change, topics have their own."""

ANSWER_MARGIN_MS = 500
"""A held heartbeat is answered this long before its caller gives up."""


FromClient = (
    pb.RegisterRequestP2M
    | pb.HeartRequestP2M
    | pb.CloseRequestP2M
    | pb.RegisterRequestC2M
    | pb.HeartRequestC2M
    | pb.CloseRequestC2M
    | pb.RegisterRequestC2MV2
    | pb.HeartRequestC2MV2
    | pb.GetPartMetaRequestC2M
)
"""Calls of clients; each shows who sends it."""


def wait_s(wait_ms: int, timeout_ms: int) -> float:
    """How long a heartbeat may be held, 0 for not at all."""
    return max(0, min(wait_ms, WAIT_MS_MAX, timeout_ms - ANSWER_MARGIN_MS)) / 1000


def wanted(request: pb.RegisterRequestC2M) -> Wanted:
    """What a consumer registers with.

    Raises:
        BadRequestError: a filter or a required offset is malformed.
    """
    if not request.requireBound:
        return Wanted(
            kind=Kind.BALANCED,
            topics=frozenset(request.topicList),
            filters=_filters(request.topicCondition),
        )
    if not request.sessionKey.strip() or request.totalCount < 1:
        raise BadRequestError("a bound consumer gives a session key and a positive total count")
    return Wanted(
        kind=Kind.BOUND,
        topics=frozenset(request.topicList),
        filters=_filters(request.topicCondition),
        session_key=request.sessionKey,
        select_big=request.selectBig if request.HasField("selectBig") else True,
        source_count=request.totalCount,
        required=records.parse_required(request.requiredPartition),
    )


def registration(request: pb.RegisterRequestC2M) -> Registration:
    """A consumer's registration.

    Raises:
        BadRequestError: a text is malformed.
    """
    return Registration(
        client_id=ClientId(request.clientId),
        group=GroupName(request.groupName),
        host=request.hostName,
        wanted=wanted(request),
        held=parse_subscriptions(request.subscribeInfo),
        flow=_flow_ids(request),
    )


def heartbeat(request: pb.HeartRequestC2M, timeout_ms: int, owner: object) -> Heartbeat:
    """A consumer's heartbeat.

    Raises:
        BadRequestError: a text is malformed.
    """
    done = None
    if request.HasField("event"):
        done = (request.event.rebalanceId, request.event.opType)
    reports = request.reportSubscribeInfo
    return Heartbeat(
        client_id=ClientId(request.clientId),
        group=GroupName(request.groupName),
        held=parse_subscriptions(request.subscribeInfo) if reports else None,
        done=done,
        flow=_flow_ids(request),
        wait_s=wait_s(request.wait_ms, timeout_ms),
        owner=owner,
    )


def registration_v2(request: pb.RegisterRequestC2MV2) -> Registration:
    """The registration of a consumer that balances itself.

    Raises:
        BadRequestError: a text is malformed.
    """
    return Registration(
        client_id=ClientId(request.clientId),
        group=GroupName(request.groupName),
        host=request.hostName,
        wanted=Wanted(
            kind=Kind.CLIENT,
            topics=frozenset(request.topicList),
            filters=_filters(request.topicCondition),
            source_count=request.sourceCount,
            node_id=request.nodeId,
        ),
        held=_held(request.subRepInfo.partSubInfo),
        flow=_flow_ids(request.opsTaskInfo),
    )


def reported_v2(request: pb.HeartRequestC2MV2) -> set[Partition] | None:
    """What a self-balanced consumer says it holds, None when it does not say.

    Raises:
        BadRequestError: a text is malformed.
    """
    return _held(request.subRepInfo.partSubInfo) if request.subRepInfo.reportSubInfo else None


def versions(
    request: pb.RegisterRequestC2MV2 | pb.HeartRequestC2MV2 | pb.GetPartMetaRequestC2M,
) -> HeldVersions:
    """Versions of the metadata that the client holds."""
    if isinstance(request, pb.GetPartMetaRequestC2M):
        return HeldVersions(brokers=request.brokerConfigId, topics=request.topicMetaInfoId)
    if not request.HasField("subRepInfo"):
        return HeldVersions()
    known = request.subRepInfo
    return HeldVersions(brokers=known.brokerConfigId, topics=known.topicMetaInfoId)


def flow_ids_v2(request: pb.HeartRequestC2MV2) -> FlowIds:
    """Check ids that a self-balanced consumer holds."""
    return _flow_ids(request.opsTaskInfo)


def beat(request: pb.HeartRequestB2M, timeout_ms: int, owner: object) -> BrokerBeat:
    """A broker's heartbeat.

    Raises:
        BadRequestError: the id is no number.
    """
    return BrokerBeat(
        broker_id=records.integer(request.brokerId, "broker id", 0),
        online=request.brokerOnline,
        read_fails=request.readStatusRpt < 0,
        write_fails=request.writeStatusRpt < 0,
        config=(request.curBrokerConfId, request.confCheckSumId),
        facts_id=request.topic_facts_id,
        flow_check_id=request.flowCheckId if request.HasField("flowCheckId") else -2,
        removed=request.removedTopicsInfo,
        results=[(result.order_id, result.json) for result in request.results],
        wait_s=wait_s(request.wait_ms, timeout_ms),
        owner=owner,
    )


def producer_registered(
    request: pb.RegisterRequestP2M, view: ProducerView
) -> pb.RegisterResponseM2P:
    """The answer to a producer that registers."""
    answer = pb.RegisterResponseM2P(
        success=True,
        errCode=OK,
        errMsg=OK_TEXT,
        brokerCheckSum=view.broker_checksum,
        brokerInfos=view.brokers or (),
        authorizedInfo=_authorized(view),
        epoch=view.epoch,
    )
    if request.HasField("appdConfig"):
        _limits(request.appdConfig, answer.appdConfig)
    if request.client_features:
        answer.server_features = feature.ALL
    return answer


def producer_answer(request: pb.HeartRequestP2M, view: ProducerView) -> pb.HeartResponseM2P:
    """The answer to a producer's heartbeat."""
    answer = pb.HeartResponseM2P(
        success=True,
        errCode=OK,
        errMsg=OK_TEXT,
        brokerCheckSum=view.broker_checksum,
        topicInfos=view.topics,
        brokerInfos=view.brokers or (),
        requireAuth=view.require_auth,
        authorizedInfo=_authorized(view),
        epoch=view.epoch,
    )
    if request.HasField("appdConfig"):
        _limits(request.appdConfig, answer.appdConfig)
    return answer


def consumer_registered(
    request: pb.RegisterRequestC2M, view: ConsumerView
) -> pb.RegisterResponseM2C:
    """The answer to a consumer that registers; it never has partitions."""
    answer = pb.RegisterResponseM2C(
        success=True,
        errCode=OK,
        errMsg=OK_TEXT,
        notAllocated=view.not_allocated,
        authorizedInfo=_authorized(view),
        epoch=view.epoch,
    )
    _add_flow(answer, view.flow)
    if request.client_features:
        answer.server_features = feature.ALL
    return answer


def consumer_answer(
    request: pb.HeartRequestC2M, view: ConsumerView, core: Core, *, secure: bool
) -> pb.HeartResponseM2C:
    """The answer to a consumer's heartbeat."""
    answer = pb.HeartResponseM2C(
        success=True,
        errCode=OK,
        errMsg=OK_TEXT,
        notAllocated=view.not_allocated,
        requireAuth=view.require_auth,
        authorizedInfo=_authorized(view),
        epoch=view.epoch,
    )
    if view.event is not None:
        _add_event(answer.event, view.event, request, core, secure=secure)
    _add_flow(answer, view.flow)
    return answer


def self_balanced_registered(view: SelfBalancedView) -> pb.RegisterResponseM2CV2:
    """The answer to a self-balanced consumer that registers."""
    return pb.RegisterResponseM2CV2(
        errCode=OK,
        errMsg=OK_TEXT,
        brokerConfigId=view.brokers_id,
        brokerConfigList=view.brokers or (),
        opsTaskInfo=_tasks(view),
        authorizedInfo=_authorized(view),
    )


def self_balanced_answer(view: SelfBalancedView, *, push: bool) -> pb.HeartResponseM2CV2:
    """The answer to its heartbeat; ``push`` sends new metadata without being asked."""
    answer = pb.HeartResponseM2CV2(
        errCode=OK,
        errMsg=OK_TEXT,
        brokerConfigId=view.brokers_id,
        brokerConfigList=view.brokers or (),
        opsTaskInfo=_tasks(view),
        authorizedInfo=_authorized(view),
    )
    if push and view.topics is not None:
        answer.topicMetaInfoId = view.topics_id
        answer.topicMetaInfoList.extend(view.topics)
    return answer


def metadata_answer(view: SelfBalancedView) -> pb.GetPartMetaResponseM2C:
    """The answer to its question for metadata."""
    return pb.GetPartMetaResponseM2C(
        errCode=OK,
        errMsg=OK_TEXT,
        brokerConfigId=view.brokers_id,
        brokerConfigList=view.brokers or (),
        topicMetaInfoId=view.topics_id,
        topicMetaInfoList=view.topics or (),
    )


def broker_registered(
    request: pb.RegisterRequestB2M, view: BrokerView, core: Core
) -> pb.RegisterResponseM2B:
    """The answer to a broker that registers."""
    answer = pb.RegisterResponseM2B(
        success=True,
        errCode=OK,
        errMsg=OK_TEXT,
        stopRead=view.stop_read,
        stopWrite=view.stop_write,
        takeConfInfo=view.take,
        enableBrokerInfo=_demands(core),
        ssdStoreId=-2,
        qryPriorityId=301,
        clsConfig=pb.ClusterConfig(configId=-2),
    )
    _add_broker_parts(answer, view, core)
    if request.client_features:
        answer.server_features = feature.ALL
    return answer


def broker_answer(view: BrokerView, core: Core) -> pb.HeartResponseM2B:
    """The answer to a broker's heartbeat."""
    answer = pb.HeartResponseM2B(
        success=True,
        errCode=OK,
        errMsg=OK_TEXT,
        stopRead=view.stop_read,
        stopWrite=view.stop_write,
        needReportData=False,
        takeConfInfo=view.take,
        takeRemoveTopicInfo=True,
        removeTopicConfInfo=view.removing,
        ssdStoreId=-2,
        qryPriorityId=301,
        clsConfig=pb.ClusterConfig(configId=-2),
    )
    _add_broker_parts(answer, view, core)
    return answer


def _add_broker_parts(
    answer: pb.RegisterResponseM2B | pb.HeartResponseM2B, view: BrokerView, core: Core
) -> None:
    answer.curBrokerConfId = view.wanted.config_id
    answer.confCheckSumId = view.wanted.checksum
    if view.take:
        answer.brokerDefaultConfInfo = view.wanted.defaults
        answer.brokerTopicSetConfInfo.extend(view.wanted.topics)
    answer.flowCheckId = view.flow_check_id
    if view.flow_text is not None:
        answer.flowControlInfo = view.flow_text
    answer.brokerAuthorizedInfo.visitAuthorizedToken = records.format_visit_tokens(view.tokens)
    answer.epoch = view.epoch
    answer.topic_facts_id = view.facts_id
    if view.facts is not None:
        _add_facts(answer, view, core)
    for order_id, text in view.orders:
        answer.orders.add(order_id=order_id, json=text)


def _add_facts(
    answer: pb.RegisterResponseM2B | pb.HeartResponseM2B, view: BrokerView, core: Core
) -> None:
    for topic in view.facts or ():
        answer.topic_facts.add(
            name=topic.row.name,
            topic_id=topic.row.topic_id,
            durable=topic.row.durable,
            retention_bytes=topic.row.retention_bytes,
            max_message_bytes=topic.row.max_message_bytes,
        )
    for key in core.keys:
        answer.signing_keys.add(key_id=key.key_id, secret=key.secret)
    for rule in core.rules.values():
        if rule.scope:
            answer.group_rules.add(
                group=rule.scope,
                flow_check_id=rule.check_id,
                flow_control_info=rule.rules,
                qry_priority_id=301,
            )


def _add_event(
    answer: pb.EventProto,
    event: Event,
    request: pb.HeartRequestC2M,
    core: Core,
    *,
    secure: bool,
) -> None:
    answer.rebalanceId = event.round_id
    answer.opType = event.action
    answer.reason = event.reason
    for partition in sorted(event.partitions):
        subscription = records.Subscription(
            request.clientId, request.groupName, core.topology.place(partition, secure=secure)
        )
        answer.subscribeInfo.append(records.format_subscription(subscription))


def _add_flow(answer: pb.RegisterResponseM2C | pb.HeartResponseM2C, view: FlowView | None) -> None:
    if view is None:
        return
    answer.defFlowCheckId, answer.groupFlowCheckId = view.default_id, view.group_id
    answer.qryPriorityId = view.priority
    if view.default_text is not None:
        answer.defFlowControlInfo = view.default_text
    if view.group_text is not None:
        answer.groupFlowControlInfo = view.group_text


def _tasks(view: SelfBalancedView) -> pb.OpsTaskInfo:
    flow = view.flow
    return pb.OpsTaskInfo(
        defFlowCheckId=flow.default_id,
        groupFlowCheckId=flow.group_id,
        qryPriorityId=flow.priority,
        requireAuth=view.require_auth,
        defFlowControlInfo=flow.default_text,
        groupFlowControlInfo=flow.group_text,
    )


def _demands(core: Core) -> pb.EnableBrokerFunInfo:
    tokens = core.config.tokens
    return pb.EnableBrokerFunInfo(
        enableConsumeAuthenticate=tokens.require_auth_token,
        enableConsumeAuthorize=tokens.require_auth_token,
        enableProduceAuthenticate=tokens.require_auth_token,
        enableProduceAuthorize=tokens.require_auth_token,
        enableVisitTokenCheck=tokens.visit_token_check,
    )


def claim(
    client_id: str, info: pb.MasterCertificateInfo, connected_to: str, *, secure: bool
) -> Claim:
    """What a client shows of itself, on the connection that it came on."""
    signed = None
    if info.HasField("authInfo"):
        given = info.authInfo
        signed = Signed(given.userName, given.timestamp, given.nonce, given.signature)
    host = connected_to.rpartition(":")[0]
    return Claim(
        client_id=client_id,
        signed=signed,
        token=info.authorizedToken,
        host=host,
        secure=secure,
    )


def _authorized(
    view: ProducerView | ConsumerView | SelfBalancedView,
) -> pb.MasterAuthorizedInfo | None:
    """Tokens, for those that are known."""
    if not view.visit_token:
        return None
    return pb.MasterAuthorizedInfo(
        visitAuthorizedToken=view.visit_token, authAuthorizedToken=view.auth_token
    )


def _limits(held: pb.ApprovedClientConfig, answer: pb.ApprovedClientConfig) -> None:
    answer.configId = CONFIG_ID
    if held.configId != CONFIG_ID:
        answer.maxMsgSize = MESSAGE_BYTES_DEFAULT


def _flow_ids(
    request: pb.RegisterRequestC2M | pb.HeartRequestC2M | pb.OpsTaskInfo,
) -> FlowIds:
    return FlowIds(
        default=request.defFlowCheckId if request.HasField("defFlowCheckId") else None,
        group=request.groupFlowCheckId if request.HasField("groupFlowCheckId") else None,
        priority=request.qryPriorityId if request.HasField("qryPriorityId") else None,
    )


def _filters(texts: Sequence[str]) -> dict[str, frozenset[str]]:
    conditions = map(records.parse_condition, texts)
    return {condition.topic: frozenset(condition.filters) for condition in conditions}


def _held(texts: Iterable[str]) -> set[Partition]:
    return {partition for text in texts for partition in records.parse_held(text)}
