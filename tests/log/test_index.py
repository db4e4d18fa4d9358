"""The sparse index: searches, and its file."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tube.log.index import ENTRY_BYTES, HEADER_BYTES, Entry, Index, decode

HOME = 0x12345678
GOLDEN = Path(__file__).parent.parent / "golden" / "log" / "index.hex"

steps = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9)), max_size=20)


def build(rows: list[tuple[int, int, int]]) -> tuple[Index, list[Entry]]:
    """Return an index whose columns grow by the rows, and its entries."""
    index = Index(100, 1)
    start = [(100, 0, 0)]
    sums = list(accumulate(start + rows, lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2])))
    for row in sums[1:]:
        index.add(*row)
    return index, [Entry(*row) for row in sums[1:]]


def content(index: Index) -> bytes:
    """Return the whole file."""
    return index.encode_header(HOME) + index.encode_entries(0, len(index))


def read(some: bytes) -> Index | None:
    """Decode a file."""
    return decode(some, base_offset=100, home=HOME, interval_bytes=1)


@given(steps, st.integers(0, 300))
def test_searches_find_the_last_entry_that_is_safe(
    rows: list[tuple[int, int, int]], wanted: int
) -> None:
    """By offset: the last at or before it; by time: the last with only earlier blocks before."""
    index, entries = build(rows)
    by_offset = [e for e in entries if e.offset <= wanted]
    by_time = [e for e in entries if e.max_time_ms < wanted]

    assert index.by_offset(wanted) == (by_offset[-1] if by_offset else index.entry(-1))
    assert index.by_time(wanted) == (by_time[-1] if by_time else index.entry(-1))


@given(steps, st.data())
def test_the_file_round_trips_and_shows_harm(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """A whole file gives all entries, a cut one fewer, a changed one none."""
    index, entries = build(rows)
    whole = content(index)
    cut = data.draw(st.integers(0, len(whole)))
    harmed = bytearray(whole)
    harmed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    back = read(whole)
    assert back is not None
    assert [back.entry(i) for i in range(len(back))] == entries
    short = read(whole[:cut])
    assert (short is None) == (cut < HEADER_BYTES)
    if short is not None:
        kept = (cut - HEADER_BYTES) // ENTRY_BYTES
        assert [short.entry(i) for i in range(len(short))] == entries[:kept]
    assert read(bytes(harmed)) is None


def test_entries_that_go_back_are_refused() -> None:
    """An index whose columns do not grow is none."""
    for row in ((101, 5, 9), (103, 4, 9), (103, 9, 0)):
        index = Index(100, 1)
        index.add(102, 5, 5)
        index.add(*row)
        assert read(content(index)) is None


def test_entries_are_cut_and_spaced() -> None:
    """Blocks closer than the interval get no entry; a cut forgets those behind it."""
    index = Index(0, 100)
    for i in range(50):
        index.note(i, i * 30, i)
    assert [index.entry(i).position for i in range(3)] == [120, 240, 360]
    index.cut(240)

    assert len(index) == 1


def test_the_golden_index_is_read_and_written() -> None:
    """The bytes on the disk stay what they are."""
    lines = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    golden = bytes.fromhex("".join(lines))
    index = Index(100, 1)
    index.add(164, 65_600, 1_700_000_000_000)
    index.add(230, 131_300, 1_700_000_000_500)

    assert content(index) == golden
    assert read(golden) is not None
