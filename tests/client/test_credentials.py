"""Our own clients at a cluster that wants signatures: masters and brokers are real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor

from tests.broker.raw import eventually
from tests.master.peers import Http
from tests.master.signing import SECRET, add_user
from tube.client import ClientOptions
from tube.client.credentials import Credentials
from tube.client.twisted import Client, TwistedRuntime
from tube.errors import (
    BadRequestError,
    CertificateError,
    ForbiddenError,
    GroupForbiddenError,
    InconsistentGroupError,
    NotFoundError,
    UnreachableError,
)
from tube.net.caller import connected
from tube.pb import BrokerService_pb2 as broker_pb
from tube.pb import MasterService_pb2 as pb
from tube.testing import RunningCluster, running
from tube.values import Address
from tube.wire.rpc import Method

ANN = ClientOptions(user="ann", secret=SECRET, heartbeat_s=0.3, close_s=2)


@async_yield_fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    """All must sign, and show their tokens to brokers; ann may use the topic demo."""
    key = tmp_path / "cluster.key"
    key.write_bytes(Fernet.generate_key())
    overrides = (
        f"tokens.cluster_key_file={key}",
        "tokens.sign_producers=true",
        "tokens.sign_consumers=true",
        "tokens.require_auth_token=true",
        "tokens.visit_token_check=true",
    )
    async with running(reactor, tmp_path, overrides=overrides) as started:
        await started.create_topic("demo", 1)
        await started.create_topic("other", 1)
        await add_user(_http(started), produce=["demo"], consume=["demo"])
        yield started


async def _read(client: Client) -> object:
    consumer = await client.consumer(["demo"], "readers")
    return await consumer.batches(wait_s=5)


def _http(cluster: RunningCluster) -> Http:
    assert cluster.master is not None
    return Http(cluster.master.http_port)


@pytest.mark.limit(20)
async def test_a_client_with_a_user_sends_and_reads(cluster: RunningCluster) -> None:
    """Register, heartbeats, brokers: everything is shown what it wants."""
    async with Client(reactor, cluster.url, ANN) as client:
        await client.producer("demo").send(b"hello")
        consumer = await client.consumer(["demo"], "readers")
        messages = await consumer.batches(wait_s=5)

        assert [message.value for message in messages] == [b"hello"]


@pytest.mark.limit(20)
@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (ClientOptions(close_s=1), "ClientOptions"),
        (ClientOptions(user="ann", secret="wrong horse", close_s=1), "'ann'"),
        (ClientOptions(user="eve", secret=SECRET, close_s=1), "'eve'"),
    ],
)
async def test_the_user_hears_why_it_is_refused(cluster, options, hint) -> None:
    """At once, with a hint, from producers and consumers alike."""
    async with Client(reactor, cluster.url, options) as client:
        with pytest.raises(CertificateError) as caught:
            await client.producer("demo").send(b"x")
        assert hint in caught.value.hint
        with pytest.raises(CertificateError) as caught:
            await _read(client)
        assert hint in caught.value.hint


@pytest.mark.limit(20)
async def test_topics_without_the_right_do_not_stop_the_others(cluster: RunningCluster) -> None:
    """A producer's error names the topic; a group is refused."""
    async with Client(reactor, cluster.url, ANN) as client:
        await client.producer("demo").send(b"1")
        with pytest.raises(ForbiddenError, match="other"):
            await client.producer("other").send(b"x")
        with pytest.raises(GroupForbiddenError, match="other"):
            await client.consumer(["other"], "readers")

        assert (await client.producer("demo").send(b"2")).offset == 1


@pytest.mark.limit(20)
async def test_a_token_that_expires_is_renewed(tmp_path: Path) -> None:
    """The master asks, the client signs; nothing is lost and nobody leaves its group."""
    key = tmp_path / "cluster.key"
    key.write_bytes(Fernet.generate_key())
    overrides = (
        f"tokens.cluster_key_file={key}",
        "tokens.sign_producers=true",
        "tokens.sign_consumers=true",
        "tokens.auth_token_valid_s=1",
    )
    async with running(reactor, tmp_path, overrides=overrides) as cluster:
        await cluster.create_topic("demo", 1)
        await add_user(_http(cluster))
        assert cluster.master is not None
        core = cluster.master.core
        wall_ms, skew = core.access._wall_ms, [0]
        core.access._wall_ms = lambda: wall_ms() + skew[0]
        async with Client(reactor, cluster.url, ANN) as client:
            await client.producer("demo").send(b"1")
            consumer = await client.consumer(["demo"], "readers")
            assert await consumer.batches(wait_s=5)
            members = core.registry.groups["readers"].members
            since_s = [member.since_s for member in members.values()]

            old = [
                client._core._session.tokens.authAuthorizedToken,
                consumer._core.tokens.authAuthorizedToken,
            ]
            core.access._window_ms = 120_000
            skew[0] = 40_000  # tokens are over, with the skew that is granted

            def renewed() -> bool:
                now = [
                    client._core._session.tokens.authAuthorizedToken,
                    consumer._core.tokens.authAuthorizedToken,
                ]
                return all(a != b for a, b in zip(old, now, strict=True))

            await eventually(renewed)
            await client.producer("demo").send(b"2")
            assert [m.value for m in await consumer.batches(wait_s=5)] == [b"2"]
            assert [member.since_s for member in members.values()] == since_s


async def test_a_broker_refuses_what_the_token_does_not_allow(cluster: RunningCluster) -> None:
    """Without asking the master: 415 without a token, 403 without the right."""
    async with Client(reactor, cluster.url, ANN) as client:
        await client.producer("demo").send(b"1")
        token = client._core._session.tokens
    request = broker_pb.SendMessageRequestP2B(
        clientId="p", topicName="other", partitionId=0, data=b"x", flag=0, checkSum=-1, sentAddr=1
    )
    async with connected(reactor, Address("127.0.0.1", cluster.brokers[1].port)) as caller:

        async def send(info: broker_pb.AuthorizedInfo) -> int:
            request.authInfo.CopyFrom(info)
            body = await caller.call(Method.SEND_MESSAGE, request.SerializeToString(), 5)
            return broker_pb.SendMessageResponseB2P.FromString(body).errCode

        assert await send(token) == 403
        visit = broker_pb.AuthorizedInfo(visitAuthorizedToken=token.visitAuthorizedToken)
        assert await send(visit) == 415
        request.topicName = "demo"
        assert await send(visit) == 415


def test_a_secret_is_never_shown() -> None:
    """Neither by the options, nor alone."""
    assert SECRET not in repr(ANN)
    with pytest.raises(BadRequestError):
        ClientOptions(user="ann")
    with pytest.raises(BadRequestError):
        ClientOptions(secret=SECRET)


def test_a_signature_comes_when_it_is_wanted() -> None:
    """Once asked, in every heartbeat until the master is content; the nonce differs."""
    tokens = broker_pb.AuthorizedInfo(visitAuthorizedToken=1, authAuthorizedToken="t")
    mine = Credentials(TwistedRuntime(reactor), ANN, tokens)
    assert not mine.show().HasField("authInfo")
    first, second = mine.show(sign=True), mine.show(sign=True)
    assert first.authInfo.nonce != second.authInfo.nonce
    assert first.authorizedToken == "t"

    assert mine.asked(True)
    assert not mine.asked(True), "no reason to hurry again"
    assert mine.show().authInfo.userName == "ann"
    assert not mine.asked(False)
    assert not mine.show().HasField("authInfo")


def test_what_is_final() -> None:
    """A refused member may register again; who cannot sign need not try."""
    tokens = broker_pb.AuthorizedInfo(visitAuthorizedToken=1)
    signs = Credentials(TwistedRuntime(reactor), ANN, tokens)
    cannot = Credentials(TwistedRuntime(reactor), ClientOptions(), tokens)

    assert not signs.final(CertificateError("x"), registered=True)
    assert signs.final(CertificateError("x"), registered=False)
    assert cannot.final(CertificateError("x"), registered=True)
    assert signs.final(InconsistentGroupError(425, "x"), registered=True)
    assert not signs.final(NotFoundError("x"), registered=False)
    assert not signs.final(UnreachableError("x"), registered=False)
    with pytest.raises(CertificateError, match="x") as caught:
        cannot.check(pb.HeartResponseM2P(success=False, errCode=415, errMsg="x", brokerCheckSum=0))
    assert "ClientOptions" in caught.value.hint
