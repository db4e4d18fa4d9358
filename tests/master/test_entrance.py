"""Consumers that must sign wait outside until they have, over a real socket."""

from __future__ import annotations

import pytest

from tests.master.peers import assigned
from tests.master.signing import add_user, shows, sign
from tests.master.test_access import signing  # noqa: F401  a fixture
from tube.auth.tokens import Rights
from tube.pb import MasterService_pb2 as pb
from tube.wire.rpc import Method


async def leave(peer, client, info=None, group="readers"):
    request = pb.CloseRequestC2M(clientId=client, groupName=group, authInfo=info)
    return await peer.call(Method.CLOSE_CONSUMER, request, pb.CloseResponseM2C)


async def enter(peer, client="a", group="readers"):
    """Register and sign as a Java consumer does; its token."""
    assert (await peer.join(client, group, authInfo=shows(""))).success
    assert (await peer.beat(client, group, held=[], authInfo=shows(""))).requireAuth
    answer = await peer.beat(client, group, held=[], authInfo=sign())
    assert (answer.success, answer.requireAuth) == (True, False)
    return answer.authorizedInfo.authAuthorizedToken


async def test_a_consumer_waits_outside_until_it_has_signed(signing):  # noqa: F811
    """No member, no plan, no group in the database, no token; then it is like any other."""
    master, peer, http = signing
    joined = await peer.join("a", authInfo=shows(""))
    assert (joined.success, joined.notAllocated) == (True, True)
    assert not joined.HasField("authorizedInfo")
    first = await peer.beat("a", held=[], authInfo=shows(""))
    assert (first.success, first.requireAuth, first.HasField("event")) == (True, True, False)
    assert not first.HasField("authorizedInfo")
    assert (await http("GET", "/api/v1/groups"))["groups"] == []

    answer = await peer.beat("a", held=[], authInfo=sign())
    assert (answer.success, answer.requireAuth) == (True, False)
    token = answer.authorizedInfo.authAuthorizedToken
    rights = master.core.auth.verify(token, 0)
    assert (rights.user, rights.produce, rights.consume) == ("ann", ("demo",), ("demo",))

    event = answer
    while not event.HasField("event"):
        event = await peer.beat("a", wait_ms=2000, authInfo=shows(token))
    assert len(event.event.subscribeInfo) == 4
    assert [m["client_id"] for m in (await http("GET", "/api/v1/groups/readers"))["members"]] == [
        "a"
    ]


async def test_a_consumer_that_signs_its_register_is_a_member_at_once(signing):  # noqa: F811
    """As our own do; with a token it may register again."""
    _, peer, http = signing
    answer = await peer.join("a", authInfo=sign())
    token = answer.authorizedInfo.authAuthorizedToken
    assert token
    assert len((await http("GET", "/api/v1/groups/readers"))["members"]) == 1

    again = await peer.join("a", authInfo=shows(token))

    assert again.authorizedInfo.authAuthorizedToken


@pytest.mark.parametrize(
    "info",
    [
        lambda: None,
        lambda: sign(secret="wrong horse"),
        lambda: sign(user="eve"),
        lambda: sign(late_ms=30_000),
    ],
)
async def test_who_signs_wrongly_after_being_asked_is_sent_away(signing, info):  # noqa: F811
    """With 415; its next heartbeat must register again."""
    _, peer, http = signing
    await peer.join("a")
    assert (await peer.beat("a")).requireAuth

    assert (await peer.beat("a", authInfo=info())).errCode == 415

    assert (await peer.beat("a", authInfo=sign())).errCode == 411
    assert (await http("GET", "/api/v1/groups"))["groups"] == []


async def test_a_wrong_signature_at_register_is_refused(signing):  # noqa: F811
    """And a replayed one."""
    _, peer, _ = signing
    assert (await peer.join("a", authInfo=sign(secret="wrong horse"))).errCode == 415
    info = sign()
    assert (await peer.join("a", authInfo=info)).success

    assert (await peer.join("b", authInfo=info)).errCode == 415


async def test_nobody_speaks_in_the_name_of_a_member(signing):  # noqa: F811
    """Neither register, nor heartbeats, nor goodbyes without proof reach a member."""
    _, peer, http = signing
    token = await enter(peer)

    assert (await peer.join("a")).errCode == 415
    assert (await leave(peer, "a")).errCode == 415
    assert (await leave(peer, "a", sign(secret="wrong horse"))).errCode == 415
    assert (await peer.beat("a", authInfo=sign(secret="wrong horse"))).errCode == 415
    assert len((await http("GET", "/api/v1/groups/readers"))["members"]) == 1

    assert (await peer.beat("a", authInfo=shows(token))).success
    assert (await leave(peer, "a", shows(token))).success
    assert (await leave(peer, "a")).success
    assert (await http("GET", "/api/v1/groups/readers"))["members"] == []


async def test_an_expired_token_is_asked_to_sign_again(signing):  # noqa: F811
    """The member stays one, and keeps what it holds."""
    master, peer, http = signing
    token = await enter(peer)
    while not (answer := await peer.beat("a", wait_ms=2000, authInfo=shows(token))).HasField(
        "event"
    ):
        pass
    held = list(answer.event.subscribeInfo)
    await peer.beat("a", held=held, done=answer.event, authInfo=shows(token))
    old = master.core.auth.issue(Rights(user="ann", expires_at_ms=1))

    asked = await peer.beat("a", held=held, authInfo=shows(old))
    assert (asked.success, asked.requireAuth) == (True, True)
    renewed = await peer.beat("a", held=held, authInfo=sign())

    assert renewed.authorizedInfo.authAuthorizedToken
    (member,) = (await http("GET", "/api/v1/groups/readers"))["members"]
    assert len(member["partitions"]) == 4


async def test_topics_without_the_right_are_refused(signing):  # noqa: F811
    """450 at the register, or at the heartbeat that shows who it is."""
    _, peer, http = signing
    await add_user(http, "bob", produce=["*"], consume=["other"])
    refused = await peer.join("a", authInfo=sign("bob"))
    assert (refused.errCode, refused.errMsg) == (450, "user 'bob' may not consume demo")
    await peer.join("a")
    assert (await peer.beat("a", authInfo=sign("bob"))).errCode == 450
    assert (await peer.beat("a", authInfo=sign())).errCode == 411

    await enter(peer, "b")

    assert (await peer.beat("b", authInfo=sign("bob"))).errCode == 450


async def test_one_outside_must_agree_with_the_members(signing):  # noqa: F811
    """It hears at once that it never can; and later, when the members came while it waited."""
    _, peer, _ = signing
    await peer.join("late", topicCondition=["demo#x"])
    await enter(peer)
    assert (await peer.join("b", topicCondition=["demo#x"])).errCode == 426

    assert (await peer.beat("late", authInfo=sign())).errCode == 426


async def test_one_outside_may_leave(signing):  # noqa: F811
    """And is nobody then."""
    _, peer, _ = signing
    await peer.join("a")

    assert (await leave(peer, "a")).success

    assert (await peer.beat("a", authInfo=sign())).errCode == 411


async def test_consumers_that_balance_themselves_sign_the_same_way(signing):  # noqa: F811
    """They get brokers, topics and tokens when they have signed."""
    _, peer, _ = signing
    request = pb.RegisterRequestC2MV2(
        clientId="v", groupName="self", hostName="h", sourceCount=-1, nodeId=-1, topicList=["demo"]
    )
    joined = await peer.call(Method.REGISTER_CONSUMER_V2, request, pb.RegisterResponseM2CV2)
    assert (joined.errCode, joined.HasField("authorizedInfo")) == (200, False)
    assert not joined.brokerConfigList
    meta = pb.GetPartMetaRequestC2M(
        clientId="v", groupName="self", brokerConfigId=-2, topicMetaInfoId=-2
    )

    async def ask(info=None):
        meta.authInfo.CopyFrom(info or shows(""))
        return await peer.call(Method.GET_PARTITION_META, meta, pb.GetPartMetaResponseM2C)

    async def beat(info=None):
        request = pb.HeartRequestC2MV2(clientId="v", groupName="self", authInfo=info)
        return await peer.call(Method.HEARTBEAT_CONSUMER_V2, request, pb.HeartResponseM2CV2)

    first = await beat()
    assert (first.errCode, first.opsTaskInfo.requireAuth) == (200, True)
    second = await beat(sign())
    assert (second.errCode, second.opsTaskInfo.requireAuth) == (200, False)
    token = second.authorizedInfo.authAuthorizedToken
    assert token

    assert (await ask()).errCode == 415
    found = await ask(shows(token))
    assert (found.errCode, len(found.topicMetaInfoList)) == (200, 1)
    request.authInfo.CopyFrom(sign(secret="wrong horse"))
    again = await peer.call(Method.REGISTER_CONSUMER_V2, request, pb.RegisterResponseM2CV2)
    assert again.errCode == 415


async def test_where_nobody_must_sign_nothing_changes(peer, http):
    """Signatures are not looked at."""
    from tests.master.peers import serving

    await serving(peer, http)
    assert (await peer.join("a", authInfo=sign(secret="wrong horse"))).success

    assert len(await assigned(peer, "a")) == 4
