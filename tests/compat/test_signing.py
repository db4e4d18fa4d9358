"""Authentication on: Java clients with right and wrong secrets, Go clients that cannot sign."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from tests.broker.raw import call
from tests.compat.conftest import House, MakeHouse
from tests.compat.peers import outgoing
from tests.compat.test_groups import holders
from tests.faults.processes import wait_until
from tests.master.signing import sign
from tube.broker.admission import VISIT_CHECK_DELAY_S
from tube.cli.main import run
from tube.pb import MasterService_pb2 as pb
from tube.wire import frame, rpc

SECRET = "correct horse battery"


@pytest.fixture
def strict(make_house: MakeHouse, tmp_path: Path, names: tuple[str, str]) -> House:
    """A house where everybody must sign; user *usr* may do everything with the topic."""
    key = tmp_path / "cluster.key"
    assert run(["user", "key", str(key)]) == 0
    house = make_house(
        f"tokens.cluster_key_file={key}",
        "tokens.sign_producers=true",
        "tokens.sign_consumers=true",
        "tokens.visit_token_check=true",
    )
    topic = names[0]
    house.create_topic(topic, 2)
    body = {"name": "usr", "secret": SECRET, "produce": [topic], "consume": [topic]}
    request = urllib.request.Request(f"{house.http}/api/v1/users", data=json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10):
        pass
    return house


@pytest.mark.parametrize("kind", ["java", "java-old"])
def test_java_clients_work_with_the_right_secret_only(
    kind: str, strict: House, names: tuple[str, str]
) -> None:
    """The producer signs its register, the consumer a heartbeat; a wrong secret gets neither in."""
    topic, group = names
    right, wrong = strict.peer(kind), strict.peer(kind)
    common = {"master": strict.master_address, "user": "usr"}
    reading = {"group": group, "topics": {topic: []}, "position": "first", "auto": True}
    right.ask("open_producer", "out", topics=[topic], password=SECRET, **common)
    right.ask("open_consumer", "in", password=SECRET, **common, **reading)
    wrong.begin("open_consumer", "in", password="wrong", **common, **reading)
    refused = wrong.begin("open_producer", "out", topics=[topic], password="wrong", **common)
    sent = right.ask("send", "out", messages=[outgoing(topic, b"%d" % i) for i in range(20)])
    wait_until(lambda: len(right.messages("in")) == 20, 30, "20 messages")
    answer = refused.result(60)
    held = set(holders(strict, group).values())
    right.ask("close", "in")
    right.ask("close", "out")

    assert all(result["success"] for result in sent["results"])
    assert not answer["ok"], answer
    assert len(held) == 1
    assert wrong.messages("in") == []


@pytest.mark.parametrize("kind", ["go"])
def test_a_client_that_cannot_sign_stays_outside(
    kind: str, strict: House, names: tuple[str, str]
) -> None:
    """The Go client has no signature: it gets no topic and no partition."""
    topic, group = names
    peer = strict.peer(kind)
    opened = peer.try_("open_producer", "out", master=strict.master_address, topics=[topic])
    peer.try_(
        "open_consumer",
        "in",
        master=strict.master_address,
        group=group,
        topics={topic: []},
        auto=True,
    )

    assert not opened["ok"], opened
    assert holders(strict, group) == {}


@pytest.mark.parametrize("kind", ["java", "java-old", "go"])
def test_visit_tokens_are_shown_by_all_consumers_and_by_java_producers(
    kind: str, make_house: MakeHouse, names: tuple[str, str]
) -> None:
    """With the check on consumers of all languages read; the Go producer, which shows none, is refused."""
    house, (topic, group) = make_house("tokens.visit_token_check=true"), names
    house.create_topic(topic, 2)
    ours, peer = house.peer("tube"), house.peer(kind)
    common = {"master": house.master_address, "topics": [topic]}
    ours.ask("open_producer", "out", **common)
    peer.ask("open_producer", "out", **common)
    sending = {"messages": [outgoing(topic, b"x")]}
    outcomes: list[bool] = []
    lenient_until_s = time.monotonic() + VISIT_CHECK_DELAY_S + 1

    def settled() -> bool:  # a broker that has just registered is lenient for a moment
        outcomes.append(peer.ask("send", "out", **sending)["results"][0]["success"])
        return time.monotonic() > lenient_until_s

    wait_until(settled, 30, "the check is on")
    ours.ask("send", "out", **sending)
    peer.ask(
        "open_consumer",
        "in",
        master=house.master_address,
        group=group,
        topics={topic: []},
        position="first",
        auto=True,
    )
    wait_until(lambda: len(peer.messages("in")) > outcomes.count(True), 30, "all is read")
    peer.ask("close", "in")

    assert outcomes[-1] is (kind != "go")


def test_a_replayed_signature_is_refused(strict: House) -> None:
    """The bytes of a register count once."""
    request = pb.RegisterRequestP2M(clientId="p1", hostName="h", brokerCheckSum=-1)
    request.authInfo.CopyFrom(sign("usr", SECRET))
    answers = []
    port = strict.ports("master")["master"]
    for serial in (1, 2):
        with closing(socket.create_connection(("127.0.0.1", port), 5)) as link:
            link.settimeout(5)
            link.sendall(call(serial, 1, request.SerializeToString()))
            reply = rpc.decode_reply(frame.FrameDecoder().feed(link.recv(65536))[0])
            assert isinstance(reply, rpc.Reply)
            answers.append(pb.RegisterResponseM2P.FromString(reply.body).errCode)

    assert answers == [200, 415]
