"""Open calls: every serial is unique among them, and each ends exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.errors import BufferFullError
from tube.wire.calls import SERIAL_MAX, Calls


def test_a_call_is_closed_once():
    """The second answer to a call, and one to no call, are told apart from the first."""
    calls = Calls()
    serial = calls.open(0.0, 10.0)

    assert (len(calls), calls.next_deadline_s) == (1, 10.0)
    assert calls.close(serial)
    assert not calls.close(serial)
    assert not calls.close(99)
    assert (len(calls), calls.next_deadline_s) == (0, None)


def test_calls_expire_in_the_order_of_their_deadlines():
    """Time over means not open any more, oldest first; others stay."""
    calls = Calls()
    slow, quick, closed = calls.open(0, 10), calls.open(0, 5), calls.open(0, 1)
    calls.close(closed)

    assert calls.expire(4.9) == []
    assert calls.expire(10) == [quick, slow]
    assert not calls.close(quick)
    assert calls.expire(100) == []


def test_serials_wrap_and_skip_open_calls():
    """After 2**31-1 comes 1, and no serial of an open call is given again."""
    calls = Calls(first_serial=SERIAL_MAX - 1)
    first = [calls.open(0, 1) for _ in range(3)]
    assert first == [SERIAL_MAX - 1, SERIAL_MAX, 1]

    calls = Calls(first_serial=1)
    assert [calls.open(0, 1), calls.open(0, 1)] == [1, 2]
    calls._next = SERIAL_MAX
    assert [calls.open(0, 1), calls.open(0, 1)] == [SERIAL_MAX, 3]


def test_too_many_calls_are_refused():
    """The number of open calls is bounded; a closed one makes room."""
    calls = Calls(count_max=2)
    first, _ = calls.open(0, 1), calls.open(0, 1)
    with pytest.raises(BufferFullError, match="2 calls are open, limit is 2"):
        calls.open(0, 1)
    calls.close(first)
    assert calls.open(0, 1) == 3


def test_all_calls_end_with_their_connection():
    """Closing everything names every open call."""
    calls = Calls()
    serials = [calls.open(0, 1), calls.open(0, 2)]
    assert calls.close_all() == serials
    assert calls.expire(100) == []


def test_answered_calls_leave_no_memory_behind():
    """A million quick answers do not fill the queue of deadlines."""
    calls = Calls(count_max=4)
    for _ in range(1000):
        calls.close(calls.open(0, 10))
    assert len(calls._queue) <= 2 * 4 + 1


@given(st.lists(st.tuples(st.sampled_from("oce"), st.integers(0, 5)), max_size=60))
def test_every_call_ends_once(steps):
    """Whatever happens in which order: opened = answered + expired + open."""
    calls, now, opened, ended = Calls(count_max=5), 0, [], []
    for step, number in steps:
        if step == "o" and len(calls) < 5:
            opened.append(calls.open(now, number))
        elif step == "c" and opened:
            serial = opened[number % len(opened)]
            ended += [serial] if calls.close(serial) else []
        elif step == "e":
            now += number
            ended += calls.expire(now)
    ended += calls.close_all()

    assert sorted(ended) == opened == sorted(set(opened))
