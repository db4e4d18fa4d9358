"""Events leave one at a time, and a connect only when the partition is free."""

from __future__ import annotations

import pytest

from tube.master.balance import Change
from tube.master.events import GIVE_UP_S, RESEND_S, ROUNDS_MAX, Action, Events
from tube.values import ClientId, GroupName, Partition

G = GroupName("g")
A, B, C = ClientId("a"), ClientId("b"), ClientId("c")
P = [Partition("t", 1, n) for n in range(4)]


def change(drop=(), take=()):
    return Change(frozenset(drop), frozenset(take))


@pytest.fixture
def events():
    rounds = iter(range(1000, 2000))
    return Events(lambda: next(rounds))


def test_a_connect_waits_for_the_disconnect_of_its_partition(events):
    """B gets the partition only after A has let go of it, and said so."""
    events.set_plan(G, 7, {A: change(drop=[P[0]]), B: change(take=[P[0]])}, "why", 0)

    assert events.next(G, B, {A: {P[0]}, B: set()}, 0) is None
    told = events.next(G, A, {A: {P[0]}, B: set()}, 0)
    assert (told.round_id, told.action, told.reason) == (7, Action.ONLY_DISCONNECT, "why")
    assert events.next(G, B, {A: set(), B: set()}, 0) is None  # reported, not acknowledged
    assert events.acknowledge(G, A, 7, Action.ONLY_DISCONNECT) is told
    assert events.next(G, B, {A: {P[0]}, B: set()}, 0) is None  # acknowledged, but still held
    taken = events.next(G, B, {A: set(), B: set()}, 0)
    assert (taken.action, taken.partitions) == (Action.ONLY_CONNECT, {P[0]})


def test_a_slow_member_holds_up_only_its_own_partitions(events):
    """What is free goes out at once; the rest follows in an event with a round of its own."""
    events.set_plan(
        G, 7, {A: change(drop=[P[0]]), B: change(drop=[P[1]]), C: change(take=P[:2])}, "why", 0
    )
    held = {A: {P[0]}, B: {P[1]}, C: set()}
    events.next(G, A, held, 0)
    events.next(G, B, held, 0)
    events.acknowledge(G, B, 7, Action.ONLY_DISCONNECT)

    first = events.next(G, C, {A: {P[0]}, B: set(), C: set()}, 0)
    events.acknowledge(G, A, 7, Action.ONLY_DISCONNECT)
    assert events.next(G, C, {A: set(), B: set(), C: set()}, 0) is None  # one event at a time
    events.acknowledge(G, C, first.round_id, first.action)
    second = events.next(G, C, {A: set(), B: set(), C: {P[1]}}, 0)

    assert (first.partitions, second.partitions) == ({P[1]}, {P[0]})
    assert (first.round_id, first.action) != (second.round_id, second.action)


def test_a_member_drops_before_it_takes_in_the_same_round(events):
    """DISCONNECT and CONNECT of one member have the codes of a pair, and one round."""
    events.set_plan(G, 7, {A: change(drop=[P[0]], take=[P[1]])}, "why", 0)

    first = events.next(G, A, {A: {P[0]}}, 0)
    events.acknowledge(G, A, 7, Action.DISCONNECT)
    second = events.next(G, A, {A: set()}, 0)

    assert (first.round_id, first.action) == (7, Action.DISCONNECT)
    assert (second.round_id, second.action) == (7, Action.CONNECT)


def test_a_lost_event_is_sent_again(events):
    """A client that asks again after a while without acknowledging gets the same event."""
    events.set_plan(G, 7, {A: change(take=[P[0]])}, "why", 0)
    sent = events.next(G, A, {A: set()}, 0)

    assert events.next(G, A, {A: set()}, RESEND_S - 0.1) is None
    assert events.next(G, A, {A: set()}, RESEND_S) is sent
    assert events.next(G, A, {A: set()}, RESEND_S + 0.1) is None


@pytest.mark.parametrize(
    ("round_id", "action"), [(6, Action.ONLY_CONNECT), (7, Action.CONNECT), (7, 99)]
)
def test_an_acknowledgement_of_another_event_is_ignored(events, round_id, action):
    """Events are matched by round and action, so a late or doubled answer does no harm."""
    events.set_plan(G, 7, {A: change(take=[P[0]])}, "why", 0)
    sent = events.next(G, A, {A: set()}, 0)

    assert events.acknowledge(G, A, round_id, action) is None
    assert events.sent(G, A) is sent
    assert events.acknowledge(G, B, 7, Action.ONLY_CONNECT) is None


def test_what_is_on_its_way_counts_as_done_for_the_next_plan(events):
    """A plan in the middle of a move does not order the same again."""
    events.set_plan(G, 7, {A: change(drop=[P[0]]), B: change(take=[P[1]])}, "why", 0)
    events.next(G, A, {A: {P[0]}, B: set()}, 0)
    events.next(G, B, {A: {P[0]}, B: set()}, 0)

    assert events.effective(G, {A: {P[0]}, B: set()}) == {A: set(), B: {P[1]}}


def test_a_new_plan_replaces_what_was_not_sent(events):
    """Only the newest wish counts."""
    events.set_plan(G, 7, {A: change(take=[P[0]])}, "why", 0)
    events.set_plan(G, 8, {B: change(take=[P[0]])}, "because", 0)

    assert events.next(G, A, {A: set(), B: set()}, 0) is None
    assert events.next(G, B, {A: set(), B: set()}, 0).round_id == 8


def test_an_event_is_given_up_after_ten_rounds_and_a_while(events):
    """A client that never answers does not freeze its partitions for ever."""
    events.set_plan(G, 7, {A: change(take=[P[0]])}, "why", 0)
    events.next(G, A, {A: set(), B: set()}, 0)

    for i in range(ROUNDS_MAX - 1):
        events.set_plan(G, 8 + i, {}, "again", GIVE_UP_S)
    assert events.sent(G, A) is not None
    events.set_plan(G, 20, {B: change(take=[P[0]])}, "again", GIVE_UP_S)

    assert events.sent(G, A) is None
    assert events.next(G, B, {A: set(), B: set()}, GIVE_UP_S).partitions == {P[0]}


def test_a_client_that_is_gone_has_nothing_on_its_way(events):
    """Its partitions are free for others."""
    events.set_plan(G, 7, {A: change(take=[P[0]])}, "why", 0)
    events.next(G, A, {A: set()}, 0)
    assert events.busy(G)

    events.drop_client(G, A)

    assert not events.busy(G)
    events.drop_client(G, A)
