"""Events are worked on one at a time, and what is reported is what is held."""

from __future__ import annotations

import pytest

from tube.client.membership import (
    CONNECT,
    DISCONNECT,
    ONLY_CONNECT,
    REPORT,
    REPORT_EVERY,
    Membership,
)
from tube.errors import StaleAssignmentError
from tube.wire.records import parse_partition

TEXT = "c1@g1#1:h:8123#demo:0"
PLACE = parse_partition("1:h:8123#demo:0")


def member() -> Membership:
    return Membership("c1", "g1")


def test_an_event_is_taken_reported_and_forgotten_when_the_master_heard() -> None:
    """The report repeats until a heartbeat is answered."""
    m = member()
    m.reported(m.report())
    event = m.event(3, ONLY_CONNECT, [TEXT], "joined")
    assert event is not None
    assert (event.takes, event.drops, event.reason) == (True, False, "joined")
    assert m.event(3, ONLY_CONNECT, [TEXT]) is None  # repeated while it is worked on
    m.took(PLACE)
    m.finished(event)
    for _ in range(2):
        report = m.report()
        assert (report.full, report.held, report.done, report.done_texts) == (
            True,
            [TEXT],
            event,
            [TEXT],
        )
    m.reported(report)

    assert m.report().done is None


def test_a_repeated_event_that_is_done_is_acknowledged_again() -> None:
    """Its acknowledgement was lost; the work is not done twice."""
    m = member()
    event = m.event(3, CONNECT, [TEXT])
    assert event is not None
    m.took(PLACE)
    m.finished(event)
    m.reported(m.report())
    assert m.event(3, CONNECT, [TEXT]) is None
    assert m.report().done == event
    m.reported(m.report())
    m.lost(PLACE.partition)

    assert m.event(3, CONNECT, [TEXT]) is not None  # no longer so: work


def test_drops_reports_and_nonsense() -> None:
    """A disconnect drops, a report order makes the next heartbeat full, the rest is passed over."""
    m = member()
    for _ in range(2):
        m.reported(m.report())
    assert m.event(0, CONNECT, [TEXT]) is None
    assert m.event(5, 99, []) is None
    assert not m.report().full
    assert m.event(5, REPORT, []) is None
    assert m.report().full
    event = m.event(6, DISCONNECT, [TEXT])

    assert event is not None
    assert event.drops


def test_everything_is_reported_now_and_then_and_after_a_loss() -> None:
    """The first heartbeat, every sixth, and the one after a partition was lost."""
    m = member()
    full = []
    for _ in range(REPORT_EVERY * 2):
        report = m.report()
        m.reported(report)
        full.append(report.full)
    assert [i for i, f in enumerate(full) if f] == [0, REPORT_EVERY]
    m.took(PLACE)
    m.check(PLACE.partition)
    m.lost(PLACE.partition)
    assert m.report().full
    m.lost(PLACE.partition)
    with pytest.raises(StaleAssignmentError, match="demo:1:0 was taken from c1"):
        m.check(PLACE.partition)


def test_after_a_re_registration_old_events_mean_nothing() -> None:
    """What is held is reported, what was done is not."""
    m = member()
    event = m.event(3, CONNECT, [TEXT])
    assert event is not None
    m.took(PLACE)
    m.finished(event)
    m.forgotten()
    report = m.report()

    assert (report.full, report.done, report.held) == (True, None, [TEXT])
