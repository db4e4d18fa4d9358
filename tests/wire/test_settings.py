"""Configuration strings are those of the original master, to the checksum."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.vectors import OTHER
from tube.errors import BadRequestError
from tube.wire import settings
from tube.wire.settings import BrokerDefaults, TopicConfig

GOLDEN = OTHER["broker_config_checksum"]
DEFAULTS = GOLDEN["defConf"]
HISTORY, DEMO = GOLDEN["topicConf"]
counts = st.integers(0, 2**31 - 1)


def test_the_golden_defaults_are_ours():
    """What a fresh original master sends is what BrokerDefaults has."""
    assert settings.parse_defaults(DEFAULTS) == BrokerDefaults()
    assert settings.format_defaults(BrokerDefaults()) == DEFAULTS


def test_the_golden_topics():
    """Blank fields mean the broker's default."""
    demo = TopicConfig(topic="demo", num_partitions=2, num_topic_stores=2)
    assert settings.parse_topic_config(DEMO) == demo
    assert settings.format_topic_config(demo) == DEMO
    assert settings.format_topic_config(settings.parse_topic_config(HISTORY)) == HISTORY


def test_the_golden_checksum():
    """With the zero padding of the original, whatever order the topics come in."""
    assert settings.configuration_checksum(DEFAULTS, [DEMO, HISTORY]) == GOLDEN["checkSumId"]


def test_values_that_equal_the_default_are_left_out():
    """As masters do, when they know the defaults."""
    full = settings.effective(settings.parse_topic_config(DEMO), BrokerDefaults())

    assert full.accept_publish is True
    assert full.delete_policy == "delete,168h"
    assert full.max_msg_size is None
    assert settings.format_topic_config(full, BrokerDefaults()) == DEMO
    assert settings.format_topic_config(full).startswith("demo:2:true:true:1000:10000: :delete")


configs = st.builds(
    TopicConfig,
    topic=st.just("demo"),
    num_partitions=st.none() | counts,
    accept_publish=st.none() | st.booleans(),
    delete_policy=st.none() | st.just("delete,3m"),
    status_id=st.integers(0, 3),
    unflush_data_hold=st.none() | counts,
    mem_cache_flush_intvl=st.none() | counts,
    max_msg_size=st.none() | counts,
)


@given(configs)
def test_configurations_come_back(config):
    """Every field keeps its place."""
    text = settings.format_topic_config(config)

    assert text.count(":") == 14
    assert settings.parse_topic_config(text) == config


@given(configs, st.builds(BrokerDefaults, num_partitions=counts, accept_publish=st.booleans()))
def test_defaults_change_the_text_but_not_the_meaning(config, defaults):
    """Left out or written, the broker understands the same."""
    text = settings.format_topic_config(config, defaults)
    read = settings.parse_topic_config(text)
    assert settings.effective(read, defaults) == settings.effective(config, defaults)
    assert settings.parse_defaults(settings.format_defaults(defaults)) == defaults


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (settings.parse_defaults, "", "has 1 fields, not 12"),
        (settings.parse_defaults, DEFAULTS.replace("3:true", " :true"), "lack num_partitions"),
        (settings.parse_defaults, DEFAULTS.replace("true", "yes"), "accept_publish 'yes'"),
        (settings.parse_defaults, DEFAULTS.replace("1000", "many"), "unflush_threshold 'many'"),
        (settings.parse_topic_config, DEMO + ":", "has 16 fields, not 15"),
        (settings.parse_topic_config, DEMO.replace("demo", " "), "lacks the topic"),
        (settings.parse_topic_config, DEMO.replace("demo:2", "demo:-2"), "num_partitions -2"),
    ],
)
def test_wrong_configurations_are_refused_with_a_reason(parse, text, reason):
    """The field is named."""
    with pytest.raises(BadRequestError) as caught:
        parse(text)
    assert reason in str(caught.value)


@given(st.text("0123456789: truefalsdm,h", max_size=60))
def test_random_texts_are_read_or_refused(text):
    """Nothing but BadRequestError comes out."""
    padded = [text, text + ":" * (11 - text.count(":")), text + ":" * (14 - text.count(":"))]
    for parse in (settings.parse_defaults, settings.parse_topic_config):
        for candidate in padded:
            with contextlib.suppress(BadRequestError):
                parse(candidate)
    with contextlib.suppress(BadRequestError):
        settings.parse_delete_policy(text)


@pytest.mark.parametrize(
    ("text", "retention_ms"),
    [
        ("delete,168h", 604_800_000),
        ("delete,168", 604_800_000),
        ("delete,90s", 90_000),
        (" delete,3m", 180_000),
    ],
)
def test_delete_policies_are_read(text, retention_ms):
    """Hours without a unit."""
    assert settings.parse_delete_policy(text) == retention_ms
    written = settings.format_delete_policy(retention_ms)
    assert settings.parse_delete_policy(written) == retention_ms


def test_delete_policies_are_written_in_their_largest_unit():
    """Exact to the second."""
    written = [settings.format_delete_policy(ms) for ms in (604_800_000, 180_000, 90_000, 90_500)]
    assert written == ["delete,168h", "delete,3m", "delete,90s", "delete,90s"]


@pytest.mark.parametrize("text", ["delete,169h", "delete,0h", "delete,-1h", "keep,1h", "delete,1d"])
def test_other_delete_policies_are_refused(text):
    """At most a week, at least a second, nothing but delete."""
    with pytest.raises(BadRequestError, match="delete policy"):
        settings.parse_delete_policy(text)
