"""The packed strings of TubeMQ, parsed and built here only, and what names are legal.

==================  ===================================================  =================================
broker              ``id:host:port``                                     ``1:10.0.0.1:8123``
partition           ``id:host:port#topic:partition``                     ``1:10.0.0.1:8123#demo:10001``
subscription        ``client@group#`` partition                          ``c1@g#1:10.0.0.1:8123#demo:0``
failure             ``code:`` partition                                  ``411:1:10.0.0.1:8123#demo:77``
topic route         ``topic#id:partitions:stores,...#max_bytes``         ``demo#1:2:2,2:3:1#1048576``
topic meta          ``topic#id:stores:partitions:status,...``            ``demo#1:2:2:1``
topic condition     ``topic#filter,...``                                 ``demo#t1,t2``
held partitions     ``topic#id:partition,...``                           ``demo#1:0,1:10001``
partition key       ``id:topic:partition``                               ``1:demo:10001``
required offsets    key ``=offset,...``                                  ``1:demo:0=280,1:demo:1=0``
broker client id    ``id:host:port:version``                             ``1:10.0.0.1:8123:2.5.0``
visit tokens        ``valid,fresh``                                      ``1795212127000,1795212367000``
signed token        ``user timestamp nonce signature``                   ``usr 1795212498588 4 ql0%3D``
==================  ===================================================  =================================

All parsers raise BadRequestError with what is wrong.  A client id may contain any separator, so
subscriptions are taken apart from the right.

Source: spec section 2.8 (TokenConstants.java, captures), 7.3 (signed token).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tube.errors import BadRequestError
from tube.limits import (
    CLIENT_ID_CHARS_MAX,
    FILTER_CHARS_MAX,
    FILTERS_PER_TOPIC_MAX,
    GROUP_NAME_CHARS_MAX,
    HOST_NAME_CHARS_MAX,
    PARTITIONS_PER_STORE_MAX,
    TOPIC_NAME_CHARS_MAX,
    TOPICS_PER_CLIENT_MAX,
    USER_NAME_CHARS_MAX,
)
from tube.values import Broker, ClientId, GroupName, Partition

PORT_DEFAULT = 8123
"""Port of a broker whose port is blank."""

TLS_PORT_DEFAULT = 8124
"""The same when the string came over TLS."""

SUBSCRIBABLE = 1
"""Status of a topic in its meta record that consumers may read."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_TOPIC = re.compile(r"[a-zA-Z]\w+", re.ASCII)
_GROUP = re.compile(r"[a-zA-Z][\w-]+", re.ASCII)
_FILTER = re.compile(r"[_A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition and where its broker listens."""

    broker: Broker
    topic: str
    partition_id: int

    @property
    def partition(self) -> Partition:
        """The partition without the address."""
        return Partition(self.topic, self.broker.broker_id, self.partition_id)


@dataclass(frozen=True, slots=True)
class Subscription:
    """A partition that a consumer of a group has, or shall take or drop."""

    client_id: str
    group: str
    place: PlacedPartition


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a client does not hold a partition: ``code`` is 411, 412 or 415."""

    code: int
    place: PlacedPartition


@dataclass(frozen=True, slots=True)
class RoutePart:
    """How many partitions of a topic a broker writes: ``partitions`` in each of ``stores``."""

    broker_id: int
    partitions: int
    stores: int


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """Where producers write a topic; ``message_bytes_max`` None = the cluster's limit holds."""

    topic: str
    parts: tuple[RoutePart, ...]
    message_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class MetaPart:
    """What a broker has of a topic; ``status`` is ``SUBSCRIBABLE`` or not."""

    broker_id: int
    stores: int
    partitions: int
    status: int


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """Where client-balancing consumers find a topic.  On the wire stores come *before* partitions."""

    topic: str
    parts: tuple[MetaPart, ...]


@dataclass(frozen=True, slots=True)
class TopicCondition:
    """The message types of a topic that a consumer wants, in its order."""

    topic: str
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """A broker as it names itself to the master."""

    broker: Broker
    version: str


@dataclass(frozen=True, slots=True)
class VisitTokens:
    """The two visit tokens that brokers accept."""

    valid: int
    fresh: int


@dataclass(frozen=True, slots=True)
class SignedToken:
    """A consumer's signature in a broker call, see ``message.signature``."""

    user: str
    timestamp_ms: int
    nonce: int
    signature: str


def check_topic(name: str) -> str:
    """Return the name of a topic that clients may use.

    Raises:
        BadRequestError: not a letter followed by at least one letter, digit or ``_``, or too long.
    """
    return _matching(_TOPIC, name, "topic", TOPIC_NAME_CHARS_MAX)


def check_topics(names: Collection[str]) -> None:
    """Check the topics of one client, and how many they are.

    Raises:
        BadRequestError: see ``check_topic``, or too many.
    """
    if len(names) > TOPICS_PER_CLIENT_MAX:
        raise BadRequestError(f"{len(names)} topics, limit is {TOPICS_PER_CLIENT_MAX}")
    for name in names:
        check_topic(name)


def check_group(name: str) -> GroupName:
    """Return the name of a consumer group.

    Raises:
        BadRequestError: not a letter followed by at least one letter, digit, ``_`` or ``-``, or too
            long.
    """
    return GroupName(_matching(_GROUP, name, "group", GROUP_NAME_CHARS_MAX))


def check_client_id(client_id: str) -> ClientId:
    """Return the id of a client; every implementation has its own form, so it is opaque.

    Raises:
        BadRequestError: blank or too long.
    """
    return ClientId(_not_blank(client_id, "client id", CLIENT_ID_CHARS_MAX))


def check_host(host: str) -> str:
    """Return the host that a client names as its own; Go puts the master's address here.

    Raises:
        BadRequestError: blank or too long.
    """
    return _not_blank(host, "host name", HOST_NAME_CHARS_MAX)


def check_user(name: str) -> str:
    """Return the name of a user.

    Raises:
        BadRequestError: blank or too long.
    """
    return _not_blank(name, "user name", USER_NAME_CHARS_MAX)


def check_filter(item: str) -> str:
    """Return a filter item: a message type that a consumer wants.

    Raises:
        BadRequestError: not letters, digits and ``_``, or too long.
    """
    return _matching(_FILTER, item, "filter", FILTER_CHARS_MAX)


def check_filters(items: Collection[str]) -> None:
    """Check the filter items of one topic, and how many they are.

    Raises:
        BadRequestError: see ``check_filter``, or too many.
    """
    if len(items) > FILTERS_PER_TOPIC_MAX:
        raise BadRequestError(f"{len(items)} filters, limit is {FILTERS_PER_TOPIC_MAX}")
    for item in items:
        check_filter(item)


def partition_ids(partitions: int, stores: int) -> list[int]:
    """Return the partition ids of a topic on a broker: store x 10000 + n."""
    return [
        store * PARTITIONS_PER_STORE_MAX + n for store in range(stores) for n in range(partitions)
    ]


def parse_broker(text: str, port_default: int = PORT_DEFAULT) -> Broker:
    """Return the broker of ``id:host:port``; a blank or absent port is ``port_default``."""
    head, _, rest = text.partition(":")
    host, _, port = rest.rpartition(":") if ":" in rest else (rest, "", "")
    if not host.strip():
        raise BadRequestError(f"broker {_shown(text)} is not id:host:port")
    number = integer(port, "port", 1, 65535) if port.strip() else port_default
    return Broker(integer(head, "broker id", 0), host.strip(), number)


def format_broker(broker: Broker) -> str:
    """Return ``id:host:port``, always with the number: every client takes that."""
    return f"{broker.broker_id}:{broker.host}:{broker.port}"


def parse_partition(text: str) -> PlacedPartition:
    """Return the partition of ``id:host:port#topic:partition``."""
    broker, separator, rest = text.partition("#")
    topic, colon, partition_id = rest.rpartition(":")
    if not (separator and colon and topic):
        raise BadRequestError(f"partition {_shown(text)} is not id:host:port#topic:partition")
    return PlacedPartition(parse_broker(broker), topic, _partition_id(partition_id))


def format_partition(place: PlacedPartition) -> str:
    """Return ``id:host:port#topic:partition``."""
    return f"{format_broker(place.broker)}#{place.topic}:{place.partition_id}"


def parse_subscription(text: str) -> Subscription:
    """Return the subscription of ``client@group#id:host:port#topic:partition``."""
    parts = text.rsplit("#", 2)
    client_id, separator, group = parts[0].rpartition("@")
    if len(parts) < 3 or not separator or not client_id or not group:
        raise BadRequestError(
            f"subscription {_shown(text)} is not client@group#id:host:port#topic:partition"
        )
    return Subscription(client_id, group, parse_partition(f"{parts[1]}#{parts[2]}"))


def format_subscription(subscription: Subscription) -> str:
    """Return ``client@group#id:host:port#topic:partition``."""
    return f"{subscription.client_id}@{subscription.group}#{format_partition(subscription.place)}"


def parse_failure(text: str) -> Failure:
    """Return the failure of ``code:id:host:port#topic:partition``."""
    code, _, place = text.partition(":")
    return Failure(integer(code, "code"), parse_partition(place))


def format_failure(failure: Failure) -> str:
    """Return ``code:id:host:port#topic:partition``."""
    return f"{failure.code}:{format_partition(failure.place)}"


def parse_route(text: str) -> TopicRoute:
    """Return the route of ``topic#id:partitions:stores,...#max_bytes``; the end may be absent."""
    topic, parts, size = _segments(text, "topic route", 3)
    counted = [_integers(part, "topic route", 3) for part in parts.split(",") if part]
    limit = integer(size, "message size", 1) if size.strip() else None
    return TopicRoute(topic, tuple(RoutePart(*numbers) for numbers in counted), limit)


def format_route(route: TopicRoute) -> str:
    """Return ``topic#id:partitions:stores,...#max_bytes``."""
    parts = ",".join(f"{p.broker_id}:{p.partitions}:{p.stores}" for p in route.parts)
    return f"{route.topic}#{parts}#{route.message_bytes_max or ''}"


def parse_meta(text: str) -> TopicMeta:
    """Return the meta record of ``topic#id:stores:partitions:status,...``."""
    topic, parts = _segments(text, "topic meta", 2)
    counted = [_integers(part, "topic meta", 4) for part in parts.split(",") if part]
    return TopicMeta(topic, tuple(MetaPart(*numbers) for numbers in counted))


def format_meta(meta: TopicMeta) -> str:
    """Return ``topic#id:stores:partitions:status,...``."""
    parts = (f"{p.broker_id}:{p.stores}:{p.partitions}:{p.status}" for p in meta.parts)
    return f"{meta.topic}#{','.join(parts)}"


def parse_condition(text: str) -> TopicCondition:
    """Return the filters of ``topic#filter,...``, not yet checked."""
    topic, filters = _segments(text, "topic condition", 2)
    return TopicCondition(topic, tuple(item for item in filters.split(",") if item))


def format_condition(condition: TopicCondition) -> str:
    """Return ``topic#filter,...``."""
    return f"{condition.topic}#{','.join(condition.filters)}"


def parse_held(text: str) -> list[Partition]:
    """Return the partitions of ``topic#id:partition,...``."""
    topic, parts = _segments(text, "held partitions", 2)
    pairs = [_integers(part, "held partitions", 2) for part in parts.split(",") if part]
    return [Partition(topic, broker_id, partition_id) for broker_id, partition_id in pairs]


def format_held(partitions: Iterable[Partition]) -> list[str]:
    """Return one ``topic#id:partition,...`` per topic, in the order of the partitions."""
    topics: dict[str, list[str]] = {}
    for partition in partitions:
        entry = f"{partition.broker_id}:{partition.partition_id}"
        topics.setdefault(partition.topic, []).append(entry)
    return [f"{topic}#{','.join(entries)}" for topic, entries in topics.items()]


def parse_key(text: str) -> Partition:
    """Return the partition of ``id:topic:partition``."""
    parts = text.split(":")
    if len(parts) != 3 or not parts[1]:
        raise BadRequestError(f"partition key {_shown(text)} is not id:topic:partition")
    return Partition(parts[1], integer(parts[0], "broker id", 0), _partition_id(parts[2]))


def format_key(partition: Partition) -> str:
    """Return ``id:topic:partition``."""
    return f"{partition.broker_id}:{partition.topic}:{partition.partition_id}"


def parse_required(text: str) -> dict[Partition, int]:
    """Return the offsets by partition of ``id:topic:partition=offset,...``."""
    offsets = {}
    for item in text.split(","):
        if item.strip():
            key, _, offset = item.partition("=")
            offsets[parse_key(key)] = integer(offset, "offset")
    return offsets


def format_required(offsets: Mapping[Partition, int]) -> str:
    """Return ``id:topic:partition=offset,...``."""
    return ",".join(f"{format_key(partition)}={offset}" for partition, offset in offsets.items())


def parse_identity(text: str) -> BrokerIdentity:
    """Return the broker of ``id:host:port:version``."""
    broker, separator, version = text.rpartition(":")
    if not separator:
        raise BadRequestError(f"broker {_shown(text)} is not id:host:port:version")
    return BrokerIdentity(parse_broker(broker), version)


def format_identity(identity: BrokerIdentity) -> str:
    """Return ``id:host:port:version``."""
    return f"{format_broker(identity.broker)}:{identity.version}"


def parse_visit_tokens(text: str) -> VisitTokens:
    """Return the tokens of ``valid,fresh``."""
    valid, _, fresh = text.partition(",")
    return VisitTokens(integer(valid, "valid token"), integer(fresh, "fresh token"))


def format_visit_tokens(tokens: VisitTokens) -> str:
    """Return ``valid,fresh``."""
    return f"{tokens.valid},{tokens.fresh}"


def parse_signed_token(text: str) -> SignedToken:
    """Return the parts of ``user timestamp nonce signature``; the text itself stays unsaid."""
    parts = text.split(" ")
    if len(parts) != 4 or not (parts[0] and parts[3]):
        raise BadRequestError("signed token is not: user timestamp nonce signature")
    timestamp_ms, nonce = integer(parts[1], "timestamp"), integer(parts[2], "nonce")
    return SignedToken(parts[0], timestamp_ms, nonce, parts[3])


def format_signed_token(token: SignedToken) -> str:
    """Return ``user timestamp nonce signature``."""
    return f"{token.user} {token.timestamp_ms} {token.nonce} {token.signature}"


def parse_address(number: int) -> str:
    """Return the dotted IPv4 address of a ``sentAddr``."""
    return str(ipaddress.IPv4Address(number & 0xFFFF_FFFF))


def format_address(address: str) -> int:
    """Return the ``sentAddr`` of an IPv4 address: big-endian as a *signed* 32-bit integer.

    Raises:
        BadRequestError: not a dotted IPv4 address.
    """
    try:
        number = int(ipaddress.IPv4Address(address))
    except ipaddress.AddressValueError as error:
        raise BadRequestError(f"address {_shown(address)}: {error}") from error
    return number - (number >> 31 << 32)


def integer(text: str, what: str, lowest: int = -(2**63), highest: int = 2**63 - 1) -> int:
    """Return the decimal number in ``text``, which may have spaces around it.

    Raises:
        BadRequestError: not digits, or not in ``lowest``..``highest``; names ``what``.
    """
    if not _INTEGER.fullmatch(text.strip(" ")):
        raise BadRequestError(f"{what} {_shown(text)} is not a number")
    number = int(text)
    if not lowest <= number <= highest:
        raise BadRequestError(f"{what} {number} is not in {lowest}..{highest}")
    return number


def _partition_id(text: str) -> int:
    return integer(text, "partition id", 0, 2**31 - 1)


def _integers(text: str, what: str, count: int) -> list[int]:
    """The non-negative numbers of ``a:b:c``."""
    parts = text.split(":")
    if len(parts) != count:
        raise BadRequestError(f"{what} entry {_shown(text)} has {len(parts)} parts, not {count}")
    return [integer(part, what, 0, 2**31 - 1) for part in parts]


def _segments(text: str, what: str, count: int) -> list[str]:
    """The ``#`` segments of a text that starts with a topic; a missing last one is empty."""
    parts = text.split("#")
    if not 2 <= len(parts) <= count or not parts[0]:
        raise BadRequestError(f"{what} {_shown(text)} is not a topic and up to {count - 1} more")
    return parts + [""] * (count - len(parts))


def _shown(text: str) -> str:
    """The text for an error message, cut."""
    return repr(text[:200])


def _matching(pattern: re.Pattern[str], text: str, what: str, chars_max: int) -> str:
    _not_blank(text, what, chars_max)
    if not pattern.fullmatch(text):
        raise BadRequestError(f"{what} {text!r} does not match {pattern.pattern}")
    return text


def _not_blank(text: str, what: str, chars_max: int) -> str:
    """Length first, so that no pattern runs over a megabyte; ``bytes`` come from bad UTF-8."""
    if not isinstance(text, str):
        raise BadRequestError(f"{what} is not UTF-8")
    if len(text) > chars_max:
        raise BadRequestError(
            f"{what} {text[:40]!r}... has {len(text)} characters, limit is {chars_max}"
        )
    if not text.strip():
        raise BadRequestError(f"{what} is blank")
    return text
