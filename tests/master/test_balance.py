"""The balancer gives every partition to one member and moves as little as possible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.master.balance import changes, members_needed, plan
from tube.values import ClientId, Partition

partitions = st.frozensets(
    st.builds(Partition, st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 4)), max_size=24
)
clients = st.sets(st.sampled_from([ClientId(f"c{i}") for i in range(7)]), min_size=1)


@st.composite
def groups(draw):
    """Members, available partitions, and holdings with conflicts and things that are gone."""
    members, available = draw(clients), draw(partitions)
    everything = sorted(available | draw(partitions))
    holders = sorted(members | draw(clients))
    some = st.sets(st.sampled_from(everything)) if everything else st.just(set())
    return members, available, {client: draw(some) for client in holders}


def exclusive(holdings, available):
    """Holdings without conflicts."""
    seen: set[Partition] = set()
    found = {}
    for client, held in holdings.items():
        found[client] = (set(held) & available) - seen
        seen |= found[client]
    return found


@given(groups())
def test_every_partition_has_one_member_and_loads_are_within_one(group):
    """Nothing is given twice or left over, and nobody has two more than another."""
    members, available, holdings = group

    result = plan(members, available, holdings)

    assert set(result) == members
    given = [p for held in result.values() for p in held]
    assert sorted(given) == sorted(available)
    sizes = [len(held) for held in result.values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_planning_again_changes_nothing(group):
    """A plan is a fixed point."""
    members, available, holdings = group

    result = plan(members, available, holdings)

    assert plan(members, available, result) == result
    assert changes(result, result) == {}


@given(groups(), st.randoms())
def test_the_order_of_the_input_does_not_matter(group, rng):
    """The same values in another order give the same plan."""
    members, available, holdings = group
    shuffled = list(members)
    rng.shuffle(shuffled)
    listed = sorted(available, reverse=True)
    turned = {client: sorted(holdings[client], reverse=True) for client in reversed(holdings)}

    assert plan(shuffled, listed, turned) == plan(members, available, holdings)


@given(groups())
def test_as_few_partitions_move_as_possible(group):
    """No fair assignment keeps more: the fullest members keep the larger shares."""
    members, available, holdings = group
    holdings = {c: h for c, h in exclusive(holdings, available).items() if c in members}

    result = plan(members, available, holdings)

    kept = sum(len(result[client] & held) for client, held in holdings.items())
    share, surplus = divmod(len(available), len(members))
    sizes = sorted((len(holdings.get(client, ())) for client in members), reverse=True)
    best = sum(min(size, share + (i < surplus)) for i, size in enumerate(sizes))
    assert kept == best


@given(groups(), st.sampled_from([ClientId("new")]))
def test_a_joiner_moves_only_its_share(group, joiner):
    """Partitions move to the newcomer and to nobody else."""
    members, available, _ = group
    before = plan(members, available, {})

    after = plan({*members, joiner}, available, before)

    assert all(after[client] <= before[client] for client in members)
    assert len(after[joiner]) in {
        len(available) // (len(members) + 1),
        -(-len(available) // (len(members) + 1)),
    }


def test_a_joiner_gets_some_of_each_topic():
    """What is given away comes from the topics of which the holder has most."""
    available = [Partition(topic, 1, n) for topic in "ab" for n in range(4)]

    after = plan(["x", "y"], available, {"x": available})

    assert sorted(p.topic for p in after["y"]) == ["a", "a", "b", "b"]


def test_a_group_without_members_gets_nothing():
    """There is nobody to give anything to."""
    assert plan([], [Partition("a", 1, 0)], {}) == {}


def test_a_group_needs_enough_members_for_its_brokers():
    """The rule of TubeMQ's resource check (spec section 5.4)."""
    assert members_needed(10, 2, 5) == 0
    assert members_needed(10, 1, 5) == 2
    assert members_needed(10, 0, 5) == 2
    assert members_needed(0, 1, 5) == 0
