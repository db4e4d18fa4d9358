"""Blocks: round trips, truncations, flipped bits."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tube.log.block import HEADER_BYTES, TUBE, Block, Damage, Placed, encode, scan, walk

HOME = 0x12345678
GOLDEN = Path(__file__).parent.parent / "golden" / "log" / "block.hex"

blocks = st.builds(
    Block,
    base_offset=st.just(0),
    span=st.integers(1, 1000),
    count=st.integers(1, 1000),
    payload=st.binary(min_size=1, max_size=60),
    append_time_ms=st.integers(-(2**63), 2**63 - 1),
    max_time_ms=st.integers(-(2**63), 2**63 - 1),
    filter_bits=st.integers(0, 2**64 - 1),
    codec=st.integers(1, 255),
    producer_id=st.integers(-(2**63), 2**63 - 1),
    producer_epoch=st.integers(0, 2**32 - 1),
    sequence=st.integers(0, 2**32 - 1),
)


def placed(run: list[Block], gaps: list[int] | None = None) -> tuple[bytes, list[int]]:
    """Number the blocks, with gaps before them, and return their bytes and ends."""
    offset = 0
    content = b""
    ends = []
    for i, block in enumerate(run):
        offset += gaps[i % len(gaps)] if gaps else 0
        block.base_offset = offset
        offset = block.end_offset
        content += encode(block, HOME) + bytes(block.payload)
        ends.append(len(content))
    return content, ends


def good(content: bytes) -> list[Block]:
    """Return the good blocks, payloads as bytes."""
    found = [each.block() for each in scan(content, home=HOME) if isinstance(each, Placed)]
    for block in found:
        block.payload = bytes(block.payload)
    return found


@given(st.lists(blocks, max_size=5), st.lists(st.integers(0, 50), min_size=1, max_size=5))
def test_blocks_round_trip(run: list[Block], gaps: list[int]) -> None:
    """What is encoded is scanned back, with gaps between offsets and any span."""
    content, _ = placed(run, gaps)

    assert good(content) == run


@given(st.lists(blocks, min_size=1, max_size=4), st.data())
def test_any_truncation_gives_a_prefix(run: list[Block], data: st.DataObject) -> None:
    """A file cut anywhere holds the blocks before the cut and damage behind them."""
    content, ends = placed(run)
    cut = data.draw(st.integers(0, len(content)))

    assert good(content[:cut]) == run[: sum(end <= cut for end in ends)]


@given(st.lists(blocks, min_size=1, max_size=4), st.data())
def test_any_flipped_bit_is_noticed(run: list[Block], data: st.DataObject) -> None:
    """A flipped bit costs its block and no other."""
    content, ends = placed(run)
    at = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = bytearray(content)
    flipped[at] ^= 1 << bit
    hit = sum(end <= at for end in ends)

    assert good(bytes(flipped)) == run[:hit] + run[hit + 1 :]
    found = list(scan(bytes(flipped), home=HOME))
    assert sum(isinstance(each, Damage) for each in found) == 1


def test_every_flipped_bit_of_a_block_is_noticed() -> None:
    """Not one bit of header or payload may change unseen."""
    content, _ = placed([Block(0, 1, 1, b"payload", 1, 2)])
    for i in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[i // 8] ^= 1 << i % 8
        assert good(bytes(flipped)) == []


@given(st.binary(max_size=400), st.lists(blocks, min_size=1, max_size=2))
def test_good_blocks_are_found_behind_anything(junk: bytes, run: list[Block]) -> None:
    """Whatever comes before, the blocks behind it are found; positions cover the file."""
    content, _ = placed(run)

    assert good(junk + content) == run
    at = 0
    for each in scan(junk + content, home=HOME):
        assert each.position == at
        at = each.end if isinstance(each, Damage) else at + HEADER_BYTES + len(each.payload)
    assert at == len(junk) + len(content)


@given(st.lists(blocks, min_size=1, max_size=5), st.integers(81, 300), st.data())
def test_small_chunks_make_no_difference(
    run: list[Block], chunk_bytes: int, data: st.DataObject
) -> None:
    """A walk that reads little at a time finds the same, also behind damage and when skipping."""
    content, _ = placed(run)
    flipped = bytearray(content)
    flipped[data.draw(st.integers(0, len(content) - 1))] ^= 255
    skip_to = data.draw(st.integers(0, run[-1].end_offset))
    end = len(flipped)

    def read(at: int, length: int) -> bytes:
        return bytes(flipped[at : at + length])

    def seen(size: int) -> list[object]:
        found = walk(read, 0, end, home=HOME, skip_to=skip_to, chunk_bytes=size)
        return [(e.position, bytes(e.payload)) if isinstance(e, Placed) else e for e in found]

    assert seen(chunk_bytes) == seen(1 << 20)


def test_an_earlier_offset_is_damage() -> None:
    """Offsets grow; a block that goes back is not served."""
    late, early = Block(10, 1, 1, b"late", 0, 0), Block(5, 1, 1, b"early", 0, 0)
    content = b"".join(encode(b, HOME) + bytes(b.payload) for b in (late, early))

    assert [type(each) for each in scan(content, home=HOME)] == [Placed, Damage]


def test_a_file_shorter_than_said_is_damage() -> None:
    """A walk that is promised more bytes than there are ends."""
    found = list(walk(lambda at, n: b"", 0, 500, home=HOME))

    assert found == [Damage(0, 500, 0, None)]


def test_the_golden_block_is_read_and_written() -> None:
    """The bytes on the disk stay what they are."""
    lines = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    content = bytes.fromhex("".join(lines))
    block = Block(
        base_offset=1000,
        span=5,
        count=3,
        payload=b"three messages",
        append_time_ms=1_700_000_000_123,
        max_time_ms=1_700_000_000_100,
        filter_bits=0x8000000000000001,
        codec=TUBE,
        producer_id=77,
        producer_epoch=2,
        sequence=9,
    )

    assert good(content) == [block]
    assert encode(block, HOME) + bytes(block.payload) == content
