"""The tail cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.log.block import Block
from tube.log.tail import TailCache


def block(base: int, size: int = 10, span: int = 1) -> Block:
    """Return a block."""
    return Block(base, span, 1, b"x" * size, 0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 300), st.integers(1, 3)), max_size=80),
    st.integers(0, 5000),
    st.integers(0, 200),
    st.integers(1, 900),
)
def test_reads_are_right_or_none(
    puts: list[tuple[int, int, int]], bytes_max: int, offset: int, wanted: int
) -> None:
    """What the cache gives is what was put, contiguous from the offset; it stays within its bound."""
    cache = TailCache(bytes_max)
    logs: dict[int, list[Block]] = {}
    for key, size, span in puts:
        log = logs.setdefault(key, [])
        log.append(block(log[-1].end_offset if log else 0, size, span))
        cache.put(key, log[-1])
        assert cache.bytes <= max(bytes_max, 0)

    for key, log in logs.items():
        got = cache.read(key, offset, wanted)
        if got is None:
            continue
        rest = [b for b in log if b.end_offset > offset]
        assert got == rest[: len(got)]
        assert bool(got) == bool(rest)
        assert len(got) == 1 or sum(len(b.payload) for b in got) <= wanted


def test_the_oldest_of_all_go_first() -> None:
    """The bound is over all partitions, and eviction goes by age."""
    cache = TailCache(3 * 410)
    for i in range(2):
        cache.put("a", block(i))
    cache.put("b", block(0))
    cache.put("b", block(1))

    assert cache.read("a", 0, 100) is None
    assert cache.read("a", 1, 100) == [block(1)]
    assert cache.read("a", 2, 100) == []
    assert cache.read("a", 3, 100) is None
    assert cache.read("b", 0, 100) == [block(0), block(1)]


def test_a_hole_empties_a_partition() -> None:
    """A block that does not continue the last one starts anew, so that nothing is skipped."""
    cache = TailCache(10_000)
    cache.put("a", block(0))
    cache.put("a", block(5))

    assert cache.read("a", 0, 100) is None
    assert cache.read("a", 5, 100) == [block(5)]
    assert cache.bytes == 410


def test_dropping_frees_everything() -> None:
    """Dropped partitions leave no bytes behind, however often they come and go."""
    cache = TailCache(100_000)
    for i in range(5000):
        cache.put(i % 3, block(i * 2))
    for key in (0, 1, 2, 3):
        cache.drop(key)

    assert (cache.bytes, len(cache)) == (0, 0)
    assert len(cache._order) < 3000
    cache.put("a", block(0))
    assert cache.read("a", 0, 10) == [block(0)]


def test_long_tails_are_cut() -> None:
    """A partition that is written for ever holds only what is cached."""
    cache = TailCache(410 * 100)
    for i in range(10_000):
        cache.put("a", block(i))

    assert len(cache._tails["a"].blocks) < 3000
    assert cache.read("a", 9_900, 10_000) == [block(i) for i in range(9_900, 10_000)]
    assert cache.read("a", 9_899, 10_000) is None
