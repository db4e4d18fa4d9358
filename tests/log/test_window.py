"""What a commit window refuses, and how errors are named."""

from __future__ import annotations

import errno

import pytest

from tests.log.disks import opened, run, texts
from tube.errors import BadRequestError, DiskFullError, StoreError
from tube.limits import BATCH_BYTES_MAX
from tube.log.window import check_notes, store_error


def test_errors_of_the_system_get_our_classes():
    """A full disk may be tried again, everything else is the store's failure."""
    assert isinstance(store_error(OSError(errno.ENOSPC, "x"), "w"), DiskFullError)
    assert isinstance(store_error(OSError(errno.EDQUOT, "x"), "w"), DiskFullError)
    error = store_error(OSError(errno.EIO, "broken"), "file")
    assert type(error) is StoreError
    assert str(error) == "file: broken (EIO)"


def test_notes_have_a_limit():
    """A note of the longest length passes, a longer one does not."""
    check_notes([b"", b"x" * BATCH_BYTES_MAX])
    with pytest.raises(BadRequestError):
        check_notes([b"x" * (BATCH_BYTES_MAX + 1)])


def test_a_window_keeps_the_order_within_a_partition(tmp_path):
    """Durable and written appends of one window, in pieces and whole, keep their order."""
    store = opened(tmp_path / "d", partitions=2)
    window = [run(f"{i}", partition=i % 2, durable=i % 3 == 0) for i in range(40)]
    window[4].payload = [b"fo", b"ur"]
    window[6].payload = memoryview(b"six")
    store.commit(window)

    assert texts(store)[:4] == ["0", "2", "four", "six"]
    assert texts(store, partition=1) == [str(i) for i in range(1, 40, 2)]
    assert store.commit([]) == []
    store.close()
