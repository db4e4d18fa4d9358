"""Configurations of the master become topics on disk, and go again."""

from __future__ import annotations

import pytest

from tests.broker.conftest import BrokerFixture, register, send
from tube.errors import BadRequestError
from tube.limits import MESSAGE_BYTES_MAX
from tube.wire.settings import (
    BrokerDefaults,
    TopicConfig,
    format_defaults,
    format_topic_config,
    parse_topic_config,
)


async def test_partitions_are_on_disk_before_the_topic_takes_messages(
    broker: BrokerFixture,
) -> None:
    """New topics and more partitions are made; those that are not named are served no more, but stay."""
    await broker.configure(TopicConfig(topic="demo", num_partitions=6))
    caller = await broker.connect()
    assert (await send(caller, b"x", partition_id=5)).success
    assert (await send(caller, b"x", topic="quick")).errCode == 403

    assert (broker.directory / "topics" / "2" / "0").is_dir()


async def test_a_topic_that_is_removed_loses_files_and_offsets(broker: BrokerFixture) -> None:
    """Whether it is still served or not; the result says so in the master's form; its offsets go with it."""
    caller = await broker.connect()
    await send(caller, b"x")
    await register(caller)
    service, catalogue = broker.running.service, broker.running.catalogue
    text = format_topic_config(TopicConfig(topic="demo", num_partitions=4, status_id=2))
    done = await catalogue.remove([text])
    assert [(c.topic, c.status_id) for c in map(parse_topic_config, done)] == [("demo", 3)]
    assert not (broker.directory / "topics" / "1").exists()
    assert service.offsets.groups() == set()
    await catalogue.configure(format_defaults(BrokerDefaults()), [])
    await catalogue.remove([format_topic_config(TopicConfig(topic="quick", num_partitions=1))])

    assert not (broker.directory / "topics" / "2").exists()


async def test_no_topic_allows_more_than_a_block_takes(broker: BrokerFixture) -> None:
    """An original master allows 20 MiB; here what is larger is refused when it is sent, with the limit."""
    await broker.configure(
        TopicConfig(topic="demo", num_partitions=1, max_msg_size=20 * 1024 * 1024)
    )
    topic = broker.running.service.topics.get("demo")

    assert topic.message_bytes_max == MESSAGE_BYTES_MAX


async def test_topics_of_an_original_master_keep_their_place(broker: BrokerFixture) -> None:
    """Without an id of ours the name makes one, the same after every start."""
    catalogue = broker.running.catalogue
    catalogue.learn_facts([])
    text = format_topic_config(TopicConfig(topic="foreign", num_partitions=1))
    await catalogue.configure(format_defaults(BrokerDefaults()), [text])
    before = broker.running.service.topics.get("foreign").topic_id
    caller = await broker.connect()
    await send(caller, b"x", topic="foreign")
    await broker.stop()
    await broker.start()
    broker.running.catalogue.learn_facts([])
    await broker.running.catalogue.configure(format_defaults(BrokerDefaults()), [text])

    assert broker.running.service.topics.get("foreign").topic_id == before
    assert broker.running.service.bounds("foreign", 0).next_offset == 1


async def test_malformed_strings_change_nothing(broker: BrokerFixture) -> None:
    """The configuration of before is served on."""
    with pytest.raises(BadRequestError):
        await broker.running.catalogue.configure("nonsense", ["x"])
    with pytest.raises(BadRequestError):
        await broker.running.catalogue.configure(format_defaults(BrokerDefaults()), [":::::"])
    await broker.running.catalogue.configure("", [])

    assert (await send(await broker.connect(), b"x")).success
