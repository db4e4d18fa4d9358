"""Producers that must sign, over a real socket; who counts as whom."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from pytest_twisted import async_yield_fixture
from twisted.internet import reactor
from twisted.internet.task import Clock

from tests.master.conftest import configuration
from tests.master.peers import Http, Peer, serving
from tests.master.signing import SECRET, add_user, shows, sign, tokens
from tube.auth.signatures import Replays
from tube.auth.tokens import AuthTokens
from tube.config import TokenConfig
from tube.master import access, app
from tube.master.access import Access, Claim, Waiting
from tube.net.caller import connect
from tube.pb import MasterService_pb2 as pb
from tube.values import Address
from tube.wire.rpc import Method


@async_yield_fixture
async def signing(tmp_path):
    """A master where all must sign, a broker with the topic demo, the user ann: master, peer, http."""
    async with AsyncExitStack() as stack:
        config = configuration(tmp_path, tokens=tokens(tmp_path))
        master = await app.serve(reactor, config, stack, upgrade=True)
        caller = await connect(reactor, Address("127.0.0.1", master.port))
        stack.callback(caller.close)
        peer, http = Peer(caller), Http(master.http_port)
        await serving(peer, http)
        await add_user(http, produce=["demo"], consume=["demo"])
        yield master, peer, http


async def register(peer, info, topics=("demo",), client="p"):
    request = pb.RegisterRequestP2M(
        clientId=client, brokerCheckSum=-1, hostName="h", topicList=topics, authInfo=info
    )
    return await peer.call(Method.REGISTER_PRODUCER, request, pb.RegisterResponseM2P)


async def close(peer, info):
    request = pb.CloseRequestP2M(clientId="p", authInfo=info)
    return await peer.call(Method.CLOSE_PRODUCER, request, pb.CloseResponseM2P)


async def test_a_producer_that_signs_gets_a_token_with_its_user_s_rights(signing):
    """The token is good for heartbeats, and for closing."""
    master, peer, http = signing
    answer = await register(peer, sign())
    assert (answer.errCode, list(answer.brokerInfos)) == (200, ["1:127.0.0.1:8123"])
    token = answer.authorizedInfo.authAuthorizedToken
    rights = master.core.auth.verify(token, 0)
    assert (rights.user, rights.produce, rights.consume) == ("ann", ("demo",), ("demo",))

    beat = await peer.produce(authInfo=shows(token))

    assert (beat.errCode, beat.requireAuth, len(beat.topicInfos)) == (200, False, 1)
    later = master.core.auth.verify(beat.authorizedInfo.authAuthorizedToken, 0)
    assert later.expires_at_ms == rights.expires_at_ms, "a token does not prolong itself"
    assert (await close(peer, None)).errCode == 415
    assert len((await http("GET", "/api/v1/producers"))["producers"]) == 1
    assert (await close(peer, shows(token))).success
    assert (await http("GET", "/api/v1/producers"))["producers"] == []


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (lambda: None, "wants signed clients"),
        (lambda: shows(""), "wants signed clients"),
        (lambda: shows("tube1.x.y.z"), "wants signed clients"),
        (lambda: sign(secret="wrong horse"), "signature is wrong"),
        (lambda: sign(user="eve"), "signature is wrong"),
        (lambda: sign(user="", secret=""), "signature is wrong"),
        (lambda: sign(late_ms=21_000), "ms from the master's"),
        (lambda: sign(late_ms=-21_000), "ms from the master's"),
    ],
)
async def test_a_producer_that_signs_wrongly_is_refused(signing, info, text):
    """With 415, and told nothing else."""
    _, peer, http = signing

    for method in (register, close):
        answer = await method(peer, info())
        assert (answer.success, answer.errCode) == (False, 415)
        assert text in answer.errMsg

    assert (await http("GET", "/api/v1/producers"))["producers"] == []


async def test_a_signature_is_good_once(signing):
    """Whoever recorded it cannot use it, on any call."""
    _, peer, _ = signing
    info = sign()
    assert (await register(peer, info)).success

    again = await register(peer, info)
    beat = await peer.produce("q", authInfo=info)

    assert (again.errCode, beat.errCode) == (415, 415)
    assert "used before" in again.errMsg


async def test_a_heartbeat_without_proof_is_asked_to_sign_once(signing):
    """A stranger is told nothing; then it signs, or is refused."""
    _, peer, http = signing
    first = await peer.produce()
    assert (first.success, first.requireAuth) == (True, True)
    assert not first.HasField("authorizedInfo")
    assert not first.brokerInfos
    assert not first.topicInfos
    assert (await http("GET", "/api/v1/producers"))["producers"] == []

    signed = await peer.produce(authInfo=sign())
    assert (signed.success, signed.requireAuth, len(signed.topicInfos)) == (True, False, 1)

    assert (await peer.produce("q")).requireAuth
    assert (await peer.produce("q", authInfo=sign(secret="wrong horse"))).errCode == 415
    assert (await peer.produce("q")).errCode == 415


async def test_an_expired_token_is_renewed_by_a_signature(signing):
    """A known producer keeps its routes while it is asked."""
    master, peer, _ = signing
    await register(peer, sign())
    rights = master.core.auth.verify(
        (await peer.produce(authInfo=sign())).authorizedInfo.authAuthorizedToken, 0
    )
    old = access.Rights(user="ann", produce=("*",), expires_at_ms=1)
    for expired in (master.core.auth.issue(old), "nonsense"):
        asked = await peer.produce(authInfo=shows(expired))
        assert (asked.success, asked.requireAuth, len(asked.topicInfos)) == (True, True, 1)

        renewed = await peer.produce(authInfo=sign(token=expired))
        token = renewed.authorizedInfo.authAuthorizedToken
        assert master.core.auth.verify(token, 0).expires_at_ms >= rights.expires_at_ms


async def test_rights_are_those_of_now(signing):
    """A topic that the user has no right to is refused, and a deleted user's token is worth nothing."""
    _, peer, http = signing
    token = (await register(peer, sign())).authorizedInfo.authAuthorizedToken
    refused = await register(peer, sign(), topics=["demo", "other"])
    assert (refused.errCode, refused.errMsg) == (403, "user 'ann' may not produce to other")
    assert (await peer.produce(topicList=["other"], authInfo=shows(token))).errCode == 403

    await http("DELETE", "/api/v1/users/ann")

    assert (await peer.produce(authInfo=shows(token))).requireAuth
    assert (await register(peer, sign())).errCode == 415


async def test_networks_may_be_let_in_without_signature(tmp_path):
    """For clients that cannot sign; who signs there all the same must do it right."""
    options = tokens(tmp_path, unsigned_networks=["192.0.2.0/24", "127.0.0.0/8", "::1"])
    async with AsyncExitStack() as stack:
        config = configuration(tmp_path, tokens=options)
        master = await app.serve(reactor, config, stack, upgrade=True)
        caller = await connect(reactor, Address("127.0.0.1", master.port))
        stack.callback(caller.close)
        peer = Peer(caller)
        await serving(peer, Http(master.http_port))

        answer = await peer.produce()
        assert (answer.success, answer.requireAuth, len(answer.topicInfos)) == (True, False, 1)
        rights = master.core.auth.verify(answer.authorizedInfo.authAuthorizedToken, 0)
        assert (rights.user, rights.produce, rights.consume) == ("client:p", ("*",), ("*",))
        assert (await peer.produce(authInfo=sign(secret="wrong horse"))).errCode == 415
        assert (await peer.join("a")).success
        assert not (await peer.beat("a")).requireAuth


async def test_who_need_not_sign_gets_no_right_that_others_sign_for(tmp_path):
    """A consumer's open token does not make a producer."""
    async with AsyncExitStack() as stack:
        config = configuration(tmp_path, tokens=tokens(tmp_path, sign_consumers=False))
        master = await app.serve(reactor, config, stack, upgrade=True)
        caller = await connect(reactor, Address("127.0.0.1", master.port))
        stack.callback(caller.close)
        peer = Peer(caller)
        await serving(peer, Http(master.http_port))

        token = (await peer.join("a")).authorizedInfo.authAuthorizedToken
        rights = master.core.auth.verify(token, 0)

        assert (rights.produce, rights.consume) == ((), ("*",))
        assert (await peer.produce(authInfo=shows(token))).requireAuth


def made(**options) -> Access:
    auth = AuthTokens()
    auth.set_keys([("k", b"k")])
    config = TokenConfig(**options)
    return Access(config, auth, lambda: 0, lambda: 0.0, replays=Replays(1), asked_s=1)


def test_an_address_is_in_a_network_in_both_families() -> None:
    """An IPv4 address on an IPv6 socket is itself; a connection without an address is in none."""
    one = made(sign_producers=True, unsigned_networks=["10.0.0.0/8", "fd00::/8"])

    for host, known in [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("11.1.2.3", False),
        ("fe80::1", False),
        ("", False),
    ]:
        assert (one.identify(Claim(host=host), signs=True) is not None) == known


def test_the_waiting_are_bounded_and_forgotten(monkeypatch) -> None:
    """The oldest first; and all after their time."""
    monkeypatch.setattr(access, "WAITING_MAX", 3)
    clock = Clock()
    waiting: Waiting[int] = Waiting(10, clock.seconds)
    for i in range(5):
        waiting.put(("g", str(i)), i)
    assert len(waiting) == 3
    assert (waiting.get(("g", "1")), waiting.get(("g", "4"))) == (None, 4)

    clock.advance(10)
    assert waiting.get(("g", "4")) is None
    waiting.put(("g", "5"), 5)

    assert len(waiting) == 1
    waiting.drop(("g", "5"))
    waiting.drop(("g", "5"))
    assert len(waiting) == 0
    assert SECRET not in repr(access.User("ann", SECRET, (), ()))
