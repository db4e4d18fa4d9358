"""Packed strings come back as they were, and wrong ones are refused with a reason."""

from __future__ import annotations

import contextlib
import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.vectors import OTHER, named
from tube.errors import BadRequestError
from tube.values import Broker, Partition
from tube.wire import records
from tube.wire.records import (
    BrokerIdentity,
    Failure,
    MetaPart,
    PlacedPartition,
    RoutePart,
    SignedToken,
    Subscription,
    TopicCondition,
    TopicMeta,
    TopicRoute,
    VisitTokens,
)

BROKER = Broker(1, "10.0.0.1", 8123)
PLACE = PlacedPartition(BROKER, "demo", 10001)
CLIENT = "g_10.0.0.6-1-2-3-Pull-2.5.0"

GOLDEN = [  # text, its value, parse, format: the examples of spec 2.8
    ("1:10.0.0.1:8123", BROKER, records.parse_broker, records.format_broker),
    (
        "1:10.0.0.1:8123#demo:10001",
        PLACE,
        records.parse_partition,
        records.format_partition,
    ),
    (
        f"{CLIENT}@g#1:10.0.0.1:8123#demo:10001",
        Subscription(CLIENT, "g", PLACE),
        records.parse_subscription,
        records.format_subscription,
    ),
    (
        "411:1:10.0.0.1:8123#demo:10001",
        Failure(411, PLACE),
        records.parse_failure,
        records.format_failure,
    ),
    (
        "demo#1:2:2,2:3:1#1048576",
        TopicRoute("demo", (RoutePart(1, 2, 2), RoutePart(2, 3, 1)), 1048576),
        records.parse_route,
        records.format_route,
    ),
    (
        "demo#1:2:2#",
        TopicRoute("demo", (RoutePart(1, 2, 2),)),
        records.parse_route,
        records.format_route,
    ),
    (
        "demo#1:2:3:1",
        TopicMeta("demo", (MetaPart(1, stores=2, partitions=3, status=1),)),
        records.parse_meta,
        records.format_meta,
    ),
    (
        "demo#t1,t2",
        TopicCondition("demo", ("t1", "t2")),
        records.parse_condition,
        records.format_condition,
    ),
    ("1:demo:10001", PLACE.partition, records.parse_key, records.format_key),
    (
        "1:demo:0=280,1:demo:1=0",
        {Partition("demo", 1, 0): 280, Partition("demo", 1, 1): 0},
        records.parse_required,
        records.format_required,
    ),
    (
        "1:127.0.0.1:18123:2.5.0",
        BrokerIdentity(Broker(1, "127.0.0.1", 18123), "2.5.0"),
        records.parse_identity,
        records.format_identity,
    ),
    (
        "1795212127000,1795212367000",
        VisitTokens(1795212127000, 1795212367000),
        records.parse_visit_tokens,
        records.format_visit_tokens,
    ),
    (
        OTHER["auth_signature"][0]["brokerTokenString"],
        SignedToken("usr", 1795212498588, 405062434, "ql0eRBbFVZLbjGPA5PD9bLAC66A%3D"),
        records.parse_signed_token,
        records.format_signed_token,
    ),
]
PARSERS = [f for name, f in inspect.getmembers(records) if name.startswith("parse_")]
TEXT_PARSERS = [f for f in PARSERS if f is not records.parse_address]


@pytest.mark.parametrize(("text", "value", "parse", "format_"), GOLDEN)
def test_golden_strings_are_read_and_written(text, value, parse, format_):
    """Both directions of every string."""
    assert parse(text) == value
    assert format_(value) == text


def test_strings_of_golden_frames_are_read():
    """What real frames carry is what the parsers take."""
    fields = named("consumer_heartbeat_response_connect")["decoded"]["fields"]
    for text in fields["event"]["subscribeInfo"]:
        assert records.format_subscription(records.parse_subscription(text)) == text
    fields = named("producer_heartbeat_response")["decoded"]["fields"]
    for text in fields["topicInfos"]:
        assert records.format_route(records.parse_route(text)) == text
    fields = named("v2_partmeta_response")["decoded"]["fields"]
    for text in fields["topicMetaInfoList"]:
        assert records.format_meta(records.parse_meta(text)) == text
    for text in named("producer_register_response")["decoded"]["fields"]["brokerInfos"]:
        assert records.parse_broker(text).port == 8123  # one of them is blank


@pytest.mark.parametrize("text", ["1:10.0.0.1: ", "1:10.0.0.1:", "1:10.0.0.1"])
def test_a_blank_port_is_the_default(text):
    """The original master writes a space for its default port."""
    assert records.parse_broker(text) == BROKER
    assert records.parse_broker(text, records.TLS_PORT_DEFAULT).port == 8124


def test_separators_in_client_ids_and_hosts_do_no_harm():
    """Client ids are opaque, IPv6 addresses have colons."""
    odd = Subscription("a@b#c:d@", "g", PlacedPartition(Broker(2, "fe80::1", 81), "demo", 0))
    assert records.parse_subscription(records.format_subscription(odd)) == odd


def test_held_partitions_are_grouped_by_topic():
    """One string per topic, in the order of the partitions."""
    held = [Partition("demo", 1, 0), Partition("other", 2, 5), Partition("demo", 1, 10001)]
    texts = records.format_held(held)

    assert texts == ["demo#1:0,1:10001", "other#2:5"]
    assert records.parse_held(texts[0]) == [held[0], held[2]]
    assert records.parse_held("demo#") == []


def test_empty_lists_are_legal():
    """Nothing required, no brokers, no filters."""
    assert records.parse_required("") == {}
    assert records.parse_route("demo#") == TopicRoute("demo", ())
    assert records.parse_condition("demo#") == TopicCondition("demo", ())


def test_partition_ids_count_stores_by_ten_thousands():
    """Two stores of two partitions, as measured."""
    assert records.partition_ids(2, 2) == [0, 1, 10000, 10001]


def test_the_golden_addresses():
    """IPv4 as a signed integer."""
    for golden in OTHER["sent_addr"]:
        assert records.format_address(golden["ip"]) == golden["int32"]
        assert records.parse_address(golden["int32"]) == golden["ip"]
    with pytest.raises(BadRequestError, match="address 'localhost'"):
        records.format_address("localhost")


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (records.parse_broker, "1", "is not id:host:port"),
        (records.parse_broker, "1: :8123", "is not id:host:port"),
        (records.parse_broker, "x:h:8123", "broker id 'x' is not a number"),
        (records.parse_broker, "1:h:0", "port 0 is not in 1..65535"),
        (records.parse_broker, "1:h:٣", "is not a number"),  # a digit for int()
        (records.parse_partition, "1:h:1", "is not id:host:port#topic:partition"),
        (records.parse_partition, "1:h:1#demo", "is not id:host:port#topic:partition"),
        (records.parse_partition, "1:h:1#:1", "is not id:host:port#topic:partition"),
        (records.parse_partition, "1:h:1#demo:-1", "partition id -1"),
        (records.parse_subscription, "c#1:h:1#demo:0", "subscription"),
        (records.parse_subscription, "@g#1:h:1#demo:0", "subscription"),
        (records.parse_subscription, "c@#1:h:1#demo:0", "subscription"),
        (records.parse_subscription, "c@g#1:h:1", "subscription"),
        (records.parse_failure, "x:1:h:1#demo:0", "code 'x'"),
        (records.parse_route, "demo", "topic route 'demo'"),
        (records.parse_route, "#1:2:2", "topic route"),
        (records.parse_route, "demo#1:2:2#1#2", "topic route"),
        (records.parse_route, "demo#1:2", "has 2 parts, not 3"),
        (records.parse_route, "demo#1:2:-2", "-2 is not in"),
        (records.parse_route, "demo#1:2:2#0", "message size 0"),
        (records.parse_meta, "demo#1:2:3", "has 3 parts, not 4"),
        (records.parse_held, "demo#1", "has 1 parts, not 2"),
        (records.parse_key, "1:demo", "partition key"),
        (records.parse_key, "1::0", "partition key"),
        (records.parse_required, "1:demo:0", "offset '' is not a number"),
        (records.parse_identity, "1", "is not id:host:port:version"),
        (records.parse_visit_tokens, "1", "fresh token"),
        (records.parse_signed_token, "usr 1 2", "signed token"),
        (records.parse_signed_token, "usr 1 2 ", "signed token"),
        (records.parse_signed_token, "usr x 2 s", "timestamp"),
        (records.integer, "9223372036854775808", ""),
    ],
)
def test_wrong_strings_are_refused_with_a_reason(parse, text, reason):
    """The text goes back to the sender."""
    arguments = ("number",) if parse is records.integer else ()
    with pytest.raises(BadRequestError) as caught:
        parse(text, *arguments)
    assert reason in str(caught.value)


@given(st.text("1234:#@=,ab -", max_size=40) | st.text(max_size=40))
def test_random_strings_are_read_or_refused(text):
    """Nothing but BadRequestError comes out of any parser."""
    for parse in TEXT_PARSERS:
        with contextlib.suppress(BadRequestError):
            parse(text)


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_address_comes_back(number):
    """All 2**32 addresses have one text."""
    assert records.format_address(records.parse_address(number)) == number


def test_legal_names_pass():
    """Up to the limits of the original."""
    assert records.check_topic("a" * 64) == "a" * 64
    assert records.check_group("G-1_" + "x" * 1020)
    assert records.check_client_id("#@ any " + "x" * 1017)
    assert records.check_host("10.0.0.5:8715") == "10.0.0.5:8715"
    assert records.check_filter("_" * 256)
    assert records.check_user("usr") == "usr"
    records.check_topics([f"t{i}" for i in range(1024)])
    records.check_filters([str(i) for i in range(500)])


@pytest.mark.parametrize(
    ("check", "wrong", "reason"),
    [
        (records.check_topic, "a", "does not match"),
        (records.check_topic, "1a", "does not match"),
        (records.check_topic, "a-b", "does not match"),
        (records.check_topic, "ab\n", "does not match"),
        (records.check_topic, "aé", "does not match"),
        (records.check_topic, "a" * 65, "has 65 characters, limit is 64"),
        (records.check_topic, b"\xff", "topic is not UTF-8"),
        (records.check_group, "g", "does not match"),
        (records.check_group, "-gg", "does not match"),
        (records.check_group, "g" * 1025, "limit is 1024"),
        (records.check_client_id, " \t", "client id is blank"),
        (records.check_client_id, "x" * 1025, "limit is 1024"),
        (records.check_host, "", "host name is blank"),
        (records.check_host, "x" * 257, "limit is 256"),
        (records.check_filter, "a b", "does not match"),
        (records.check_filter, "a" * 257, "limit is 256"),
        (records.check_user, "u" * 65, "limit is 64"),
        (records.check_topics, ["ab"] * 1025, "1025 topics, limit is 1024"),
        (records.check_topics, ["ab", "a"], "does not match"),
        (records.check_filters, ["a"] * 501, "501 filters, limit is 500"),
        (records.check_filters, ["-"], "does not match"),
    ],
)
def test_illegal_names_are_refused_with_value_and_limit(check, wrong, reason):
    """The original answers 400, so do we, and we say why."""
    with pytest.raises(BadRequestError) as caught:
        check(wrong)
    assert reason in str(caught.value)
