"""A lagging group is slowed down as its rules say."""

from __future__ import annotations

from tube.broker.flow import FlowControl
from tube.broker.holders import Claim
from tube.values import GroupName
from tube.wire.flow import parse_flow_control

MIB = 1024 * 1024
CLAIM = Claim(GroupName("g1"), "t1", 0)
RULES = (
    '[{"type":0,"rule":[{"start":"08:00","end":"17:59","dltInM":100,"limitInM":12,"freqInMs":300},'
    '{"start":"08:00","end":"17:59","dltInM":1000,"limitInM":0,"freqInMs":5000}]}]'
)
TEN_O_CLOCK_MS = 2 * 3600 * 1000
"""10:00 in GMT+8."""


def flow() -> FlowControl:
    control = FlowControl()
    control.set_default(parse_flow_control(RULES))
    return control


def test_no_rule_and_no_lag_need_no_wait() -> None:
    """Rules only hold for lags above theirs, in their time of the day."""
    assert FlowControl().wait_ms(CLAIM, 10**12, 0, TEN_O_CLOCK_MS) == 0
    control = flow()
    control.sent(CLAIM, 100 * MIB, 0)

    assert control.wait_ms(CLAIM, 100 * MIB, 1, TEN_O_CLOCK_MS) == 0
    assert control.wait_ms(CLAIM, 101 * MIB, 1, 0) > 0  # 08:00 in GMT+8
    assert control.wait_ms(CLAIM, 101 * MIB, 1, 12 * 3600 * 1000) == 0  # 20:00


def test_a_twelfth_of_the_limit_in_five_seconds_and_all_of_it_in_a_minute() -> None:
    """Twelve MiB a minute are one MiB per slice."""
    control, lag, t = flow(), 200 * MIB, TEN_O_CLOCK_MS
    control.sent(CLAIM, MIB, 0)
    assert control.wait_ms(CLAIM, lag, 4.9, t) == 300
    assert control.wait_ms(CLAIM, lag, 5.1, t) == 0
    for second in range(6, 60, 5):
        control.sent(CLAIM, MIB, second)
    assert control.wait_ms(CLAIM, lag, 59.9, t) == 300
    assert control.wait_ms(CLAIM, lag, 66, t) == 0


def test_the_rule_for_the_larger_lag_wins_and_a_limit_of_nothing_stops() -> None:
    """Limit 0 means: not at all."""
    assert flow().wait_ms(CLAIM, 1001 * MIB, 0, TEN_O_CLOCK_MS) == 5000


def test_rules_of_a_group_replace_the_default() -> None:
    """A group with rules of its own does not look at the default; forgetting a claim empties its meter."""
    control = flow()
    own = '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":1,"freqInMs":777}]}]'
    control.set_groups({CLAIM.group: parse_flow_control(own)})
    control.sent(CLAIM, MIB, 0)
    assert control.wait_ms(CLAIM, 1001 * MIB, 0, TEN_O_CLOCK_MS) == 777
    control.forget(CLAIM)

    assert control.wait_ms(CLAIM, 1001 * MIB, 0, TEN_O_CLOCK_MS) == 0
