"""Flow-control rules: the example of the specification, and every range."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tube.errors import BadRequestError
from tube.wire import flow
from tube.wire.flow import EmptyReadRule, FlowControl, PullRule, VolumeRule

EXAMPLE = """
[{"type":0,"rule":[{"start":"08:00","end":"17:59","dltInM":1024,"limitInM":20,"freqInMs":1000},
                   {"start":"18:00","end":"22:00","dltInM":1024,"limitInM":20,"freqInMs":5000}]},
 {"type":1,"rule":[{"zeroCnt":3,"freqInMs":300},{"zeroCnt":8,"freqInMs":1000}]},
 {"type":3,"rule":[{"normFreqInMs":0,"filterFreqInMs":100,"minDataFilterFreqInMs":400}]}]
"""
VOLUME = {"start": "00:00", "end": "24:00", "dltInM": 21, "limitInM": 0, "freqInMs": 200}
EMPTY_READ = {"zeroCnt": 1, "freqInMs": 0}
PULL = {"normFreqInMs": 0, "filterFreqInMs": 100, "minDataFilterFreqInMs": 100}


def text_of(kind: object, *rules: object) -> str:
    return json.dumps([{"type": kind, "rule": list(rules)}])


def test_the_example_of_the_specification():
    """All three kinds of rules, and back without the spaces."""
    control = flow.parse_flow_control(EXAMPLE)

    assert control.volumes == (
        VolumeRule(480, 1079, 1024, 20, 1000),
        VolumeRule(1080, 1320, 1024, 20, 5000),
    )
    assert control.empty_reads == (EmptyReadRule(3, 300), EmptyReadRule(8, 1000))
    assert control.pull == PullRule(0, 100, 400)
    assert flow.format_flow_control(control) == "".join(EXAMPLE.split())


@pytest.mark.parametrize("text", ["", " ", "[]", '[{"type":2,"rule":[{"x":1}]}]'])
def test_no_rules_have_one_text(text):
    """One space on the wire; obsolete rules count as none."""
    control = flow.parse_flow_control(text)

    assert control == FlowControl()
    assert not control
    assert flow.format_flow_control(control) == flow.NONE


minutes = st.integers(0, 1440)
volumes = st.tuples(minutes, minutes).filter(lambda pair: pair[0] < pair[1])
rules = st.builds(
    FlowControl,
    st.lists(
        st.builds(
            lambda window, lag, limit, pause: VolumeRule(*window, lag, limit, pause),
            volumes,
            st.integers(21, 5000),
            st.integers(0, 5000),
            st.integers(200, 5000),
        )
    ).map(tuple),
    st.lists(st.builds(EmptyReadRule, st.integers(1, 99), st.integers(0, 99))).map(tuple),
    st.none() | st.builds(PullRule, st.integers(0, 300_000), st.just(5), st.integers(5, 300_000)),
)


@given(rules)
def test_rules_come_back(control):
    """Whatever is legal survives."""
    assert flow.parse_flow_control(flow.format_flow_control(control)) == control
    assert bool(control) == (control != FlowControl())


@pytest.mark.parametrize("rule", [(0, VOLUME), (1, EMPTY_READ), (3, PULL)])
def test_the_smallest_values_are_legal(rule):
    """Limits belong to the range."""
    assert flow.parse_flow_control(text_of(*rule))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 60_000, "not JSON"),
        (" " * 65_536 + "[", "has 65537 characters, limit is 65536"),
        ("{}", "flow control {} is not an array"),
        ("[1]", "rule set 1 is not an object"),
        (text_of(4), "type 4 is not an integer in 0..3"),
        (text_of(True), "type True"),
        ('[{"type":0}]', "rule of type 0 None is not an array"),
        (text_of(0, []), "rule [] is not an object"),
        (text_of(0, {**VOLUME, "start": "24:00"}), "start 24:00 is not before end 24:00"),
        (text_of(0, {**VOLUME, "end": "24:01"}), "end '24:01' is not a time"),
        (text_of(0, {**VOLUME, "end": 5}), "end 5 is not a time"),
        (text_of(0, {**VOLUME, "dltInM": 20}), "dltInM 20"),
        (text_of(0, {**VOLUME, "limitInM": -1}), "limitInM -1"),
        (text_of(0, {**VOLUME, "freqInMs": 199}), "freqInMs 199"),
        (text_of(1, {**EMPTY_READ, "zeroCnt": 0}), "zeroCnt 0"),
        (text_of(1, {**EMPTY_READ, "freqInMs": 1.5}), "freqInMs 1.5"),
        (text_of(3, {**PULL, "normFreqInMs": 300_001}), "normFreqInMs 300001"),
        (text_of(3, {**PULL, "filterFreqInMs": None}), "filterFreqInMs None"),
        (text_of(3, {**PULL, "minDataFilterFreqInMs": 99}), "minDataFilterFreqInMs 99"),
        (text_of(3, PULL, PULL), "2 rules of type 3"),
    ],
)
def test_wrong_rules_are_refused_with_a_reason(text, reason):
    """The field and its range are named."""
    with pytest.raises(BadRequestError) as caught:
        flow.parse_flow_control(text)
    assert reason in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "rule", *VOLUME, *PULL]), inner, max_size=4)
    ),
)


@given(values.map(json.dumps) | st.text(max_size=20))
def test_random_json_is_read_or_refused(text):
    """Nothing but BadRequestError comes out."""
    with contextlib.suppress(BadRequestError):
        flow.parse_flow_control(text)
