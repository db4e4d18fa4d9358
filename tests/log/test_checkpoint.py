"""The checkpoint file."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tube.log.checkpoint import Saved, Synced, decode, encode
from tube.log.values import LogKey

numbers = st.integers(0, 2**63 - 1)
tables = st.dictionaries(
    st.builds(LogKey, numbers, st.integers(0, 2**32 - 1)),
    st.builds(Synced, numbers, numbers, numbers),
    max_size=4,
)


@given(st.integers(0, 2**32 - 1), tables, st.data())
def test_a_checkpoint_round_trips_or_is_refused(
    journal: int, synced: dict[LogKey, Synced], data: st.DataObject
) -> None:
    """Whole it says what was written; cut, changed or of another directory, nothing."""
    content = encode(5, journal, synced)
    harmed = bytearray(content)
    harmed[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    assert decode(content, 5) == Saved(journal, synced)
    assert decode(content, 6) is None
    assert decode(content[: data.draw(st.integers(0, len(content) - 1))], 5) is None
    assert decode(bytes(harmed), 5) is None
