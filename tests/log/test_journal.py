"""The journal's records: round trips, truncations, flipped bits."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tube.log.block import Block, encode
from tube.log.checksum import checksum
from tube.log.files import FileSystem
from tube.log.journal import (
    HEADER_BYTES,
    Journal,
    Record,
    Unreadable,
    encode_header,
    encode_record,
    number_of,
    records,
)

HOME = 0x12345678
NUMBER = 3
GOLDEN = Path(__file__).parent.parent / "golden" / "log" / "journal.hex"

items = st.one_of(
    st.builds(lambda b: (2, b), st.binary(max_size=40)),
    st.builds(lambda b: (1, b), st.binary(min_size=1, max_size=40)),
    st.just((3, b"")),
)


def build(rows: list[tuple[int, bytes]]) -> tuple[bytes, list[int], list[bytes]]:
    """Return a journal file, where its records end, and their bodies."""
    content = encode_header(HOME, NUMBER)
    ends, bodies = [], []
    for i, (kind, payload) in enumerate(rows):
        body, crc = payload, checksum(payload)
        if kind == 1:
            body, crc = encode(Block(i, 1, 1, payload, 5, 5), HOME) + payload, 0
        content += encode_record(
            kind,
            HOME,
            NUMBER,
            i + 1,
            body_length=len(body),
            topic_id=7,
            partition_id=i,
            segment_base=0,
            position=i * 100,
            body_crc=crc,
        )
        content += body
        ends.append(len(content))
        bodies.append(body)
    return content, ends, bodies


def found(content: bytes) -> list[Record | Unreadable]:
    """Read a journal file."""
    return list(records(memoryview(content), HOME, NUMBER))


def bodies_of(content: bytes) -> list[bytes]:
    """Return the good records' bodies."""
    return [bytes(each.body) for each in found(content) if isinstance(each, Record)]


@given(st.lists(items, max_size=6))
def test_records_round_trip(rows: list[tuple[int, bytes]]) -> None:
    """What is written is read back, of every kind."""
    content, _, bodies = build(rows)

    assert bodies_of(content) == bodies
    assert [each.kind for each in found(content) if isinstance(each, Record)] == [
        k for k, _ in rows
    ]


@given(st.lists(items, min_size=1, max_size=5), st.data())
def test_any_truncation_gives_a_prefix(rows: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """A journal cut anywhere holds the records before the cut; the rest is called torn."""
    content, ends, bodies = build(rows)
    cut = data.draw(st.integers(0, len(content)))

    assert bodies_of(content[:cut]) == bodies[: sum(end <= cut for end in ends)]
    torn = [each for each in found(content[:cut]) if isinstance(each, Unreadable)]
    assert all(each.torn for each in torn)
    assert bool(torn) == (cut not in (0, HEADER_BYTES, *ends))


@given(st.lists(items, min_size=1, max_size=5), st.data())
def test_any_flipped_bit_is_noticed(rows: list[tuple[int, bytes]], data: st.DataObject) -> None:
    """A flipped bit costs one record and hides none of the later ones."""
    content, ends, bodies = build(rows)
    at = data.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    hit = sum(end <= at for end in ends)
    left = bodies if at < HEADER_BYTES else bodies[:hit] + bodies[hit + 1 :]

    assert bodies_of(bytes(flipped)) == left
    assert any(isinstance(each, Unreadable) for each in found(bytes(flipped)))


def test_records_of_another_file_are_not_taken() -> None:
    """Number and home are part of every record."""
    content, _, _ = build([(2, b"note")])

    assert not any(isinstance(e, Record) for e in records(memoryview(content), HOME, NUMBER + 1))
    assert not any(isinstance(e, Record) for e in records(memoryview(content), HOME + 1, NUMBER))


def test_a_journal_grows_by_what_is_synced(tmp_path: Path) -> None:
    """What was written and not synced can be taken back."""
    journal = Journal(FileSystem(), tmp_path, HOME, NUMBER)
    journal.sync(journal.write([journal.note(b"kept"), b"kept"]))
    journal.write([journal.note(b"lost"), b"lost"])
    journal.cut()

    assert journal.path.stat().st_size == journal.size
    assert bodies_of(journal.path.read_bytes()) == [b"kept"]
    assert number_of(journal.path.name) == NUMBER
    assert number_of("other") is None


def test_the_golden_journal_is_read_and_written() -> None:
    """The bytes on the disk stay what they are."""
    lines = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    golden = bytes.fromhex("".join(lines))
    content, _, bodies = build([(3, b""), (1, b"message"), (2, b"note")])

    assert content == golden
    assert bodies_of(golden) == bodies
