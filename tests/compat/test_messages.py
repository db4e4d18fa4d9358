"""What any client sends, every client reads as it was sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.conftest import KINDS, House
from tests.compat.peers import Peer, outgoing, sha
from tests.faults.processes import wait_until

MIB = 1024 * 1024
SIZES = (1, 2, 100, 8191, 8192, 8193, 300_000, MIB)
"""One byte, around a block of a frame, many blocks, and the default limit."""

FILTERED = [("java", "go"), ("java-old", "java"), ("tube", "java-old"), ("java", "tube")]
"""Who sends and who reads with filters.  The Go client cannot send a message type."""

Peers = Callable[[str], Peer]


def body_of(size: int) -> bytes:
    """Bytes of every kind, the same each time."""
    return random.Random(size).randbytes(size)


def messages_to(topic: str) -> list[dict[str, Any]]:
    """Plain messages of all sizes, one with a type, one with attributes too."""
    made = [outgoing(topic, body_of(size)) for size in SIZES]
    made.append(outgoing(topic, b"typed", type="t1", time="202401010000"))
    both = {"colour": "blue", "size": "12"}
    made.append(outgoing(topic, b"both", type="t2", time="202401010000", attributes=both))
    made.append(outgoing(topic, "grüße".encode(), attributes={"lang": "de"}))
    return made


def essence(message: dict[str, Any]) -> tuple[Any, ...]:
    """What every client tells of a message; the order of attributes is not kept by all."""
    pairs = [p for p in (message.get("attributes") or "").split(",") if p]
    pairs = [pair for pair in pairs if not pair.startswith("$msgTime$")]  # ours does not tell it
    return message["size"], message["sha256"], message.get("type") or None, tuple(sorted(pairs))


def expected(sent: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The essence of messages as they were handed to a client."""
    rows = []
    for body, message in zip(
        [*map(body_of, SIZES), b"typed", b"both", "grüße".encode()], sent, strict=True
    ):
        pairs = [f"{k}={v}" for k, v in message.get("attributes", {}).items()]
        if "type" in message:
            pairs.append(f"$msgType$={message['type']}")
        rows.append((len(body), sha(body), message.get("type"), tuple(sorted(pairs))))
    return sorted(rows, key=repr)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_sends_all_clients_read(
    kind: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """1 byte to the limit, types and attributes: bytes, type and attributes are the same for everybody."""
    topic, group = names
    shared_house.create_topic(topic, 3)
    sender = shared_peers(kind)
    sender.ask("open_producer", topic, master=shared_house.master_address, topics=[topic])
    sent = messages_to(topic)
    half = len(sent) // 2
    results = sender.ask("send", topic, messages=sent[:half])["results"]
    results += sender.ask("send", topic, messages=sent[half:], **{"async": True})["results"]
    readers = [shared_peers(other) for other in KINDS if available(other)]
    for reader in readers:
        read_all(reader, shared_house, topic, f"{group}{reader.kind.replace('-', '')}")
    for reader in readers:
        wait_until(
            lambda reader=reader: len(reader.messages(f"{topic}-in")) >= len(sent), 20, reader.kind
        )
    sender.ask("close", topic)

    assert [result["success"] for result in results] == [True] * len(sent), results
    for reader in readers:
        read = sorted((essence(m) for m in reader.messages(f"{topic}-in")), key=repr)
        assert read == expected(sent), reader.kind
        reader.ask("close", f"{topic}-in")


def read_all(reader: Peer, house: House, topic: str, group: str) -> None:
    """Let a client read the topic from its beginning."""
    reader.ask(
        "open_consumer",
        f"{topic}-in",
        master=house.master_address,
        group=group,
        topics={topic: []},
        position="first",
        auto=True,
    )


def available(kind: str) -> bool:
    """Whether a kind of client can be had here."""
    from tests.compat.conftest import command_of

    try:
        command_of(kind)
    except pytest.skip.Exception:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_over_the_limit_is_refused_and_the_next_one_taken(
    kind: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """The client is told of the failure, and its connection goes on."""
    topic, _ = names
    shared_house.create_topic(topic, 1, max_message_bytes=100_000)
    sender = shared_peers(kind)
    sender.ask("open_producer", topic, master=shared_house.master_address, topics=[topic])
    sizes = (100_000, 200_000, 100_000)
    answers = [
        sender.try_("send", topic, messages=[outgoing(topic, body_of(size))]) for size in sizes
    ]
    sender.ask("close", topic)

    taken = [a["ok"] and a["results"][0]["success"] for a in answers]
    assert taken == [True, False, True], answers


@pytest.mark.parametrize(("first", "second"), FILTERED)
def test_filters_let_only_the_wanted_types_through(
    first: str, second: str, shared_house: House, shared_peers: Peers, names: tuple[str, str]
) -> None:
    """Messages of other types, and of none, do not reach a filtered consumer of another language."""
    topic, group = names
    shared_house.create_topic(topic, 2)
    sender, reader = shared_peers(first), shared_peers(second)
    sender.ask("open_producer", topic, master=shared_house.master_address, topics=[topic])
    sent = [
        outgoing(topic, f"{kind}-{i}".encode(), type=kind, time="202401010000")
        for i in range(10)
        for kind in ("t1", "t2", "t3")
    ]
    sender.ask("send", topic, messages=[*sent, outgoing(topic, b"plain")])
    reader.ask(
        "open_consumer",
        f"{topic}-in",
        master=shared_house.master_address,
        group=group,
        topics={topic: ["t1", "t3"]},
        position="first",
        auto=True,
    )
    wait_until(lambda: len(reader.messages(f"{topic}-in")) >= 20, 15, "20 messages")
    reader.ask("close", f"{topic}-in")
    sender.ask("close", topic)

    assert sorted(reader.bodies(f"{topic}-in")) == sorted(
        f"{kind}-{i}".encode() for i in range(10) for kind in ("t1", "t3")
    )
