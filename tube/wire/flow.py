"""Flow-control rules: the JSON that masters keep for the cluster and for groups.

An array of rule sets ``{"type": n, "rule": [...]}``; "no rules" is one space on the wire and ``[]``
in the admin API.

Source: spec section 9.1.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tube.errors import BadRequestError
from tube.limits import FLOW_CONTROL_CHARS_MAX

NONE = " "
"""The text of no rules."""

_VOLUME, _EMPTY_READ, _SSD, _PULL = 0, 1, 2, 3  # rule types; 2 is obsolete and ignored
_TIME = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")
_DAY_MINUTES = 24 * 60
_PULL_MS_MAX = 300_000
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class VolumeRule:
    """How much a lagging consumer may read in a window of the day (GMT+8).

    It holds from ``start_minute`` to ``end_minute`` while the lag is over ``lag_mb`` MiB: at most
    ``limit_mb`` MiB per minute (0 = nothing), then a pause of ``pause_ms``.
    """

    start_minute: int
    end_minute: int
    lag_mb: int
    limit_mb: int
    pause_ms: int


@dataclass(frozen=True, slots=True)
class EmptyReadRule:
    """After ``zero_count`` empty reads in a row, wait ``pause_ms``."""

    zero_count: int
    pause_ms: int


@dataclass(frozen=True, slots=True)
class PullRule:
    """How long a client waits between pulls: unfiltered, filtered, filtered with little data."""

    normal_ms: int
    filter_ms: int
    little_filter_ms: int


@dataclass(frozen=True, slots=True)
class FlowControl:
    """All rules of the cluster or of a group; false when there are none."""

    volumes: tuple[VolumeRule, ...] = ()
    empty_reads: tuple[EmptyReadRule, ...] = ()
    pull: PullRule | None = None

    def __bool__(self) -> bool:
        return bool(self.volumes or self.empty_reads or self.pull)


def parse_flow_control(text: str) -> FlowControl:
    """Return the rules of a text, in its order.

    Raises:
        BadRequestError: not such JSON, or a value out of range; says which.
    """
    if not text.strip():
        return FlowControl()
    volumes, empty_reads, pulls = list[VolumeRule](), list[EmptyReadRule](), list[PullRule]()
    for rule_set in _array(_json(text), "flow control"):
        if not isinstance(rule_set, dict):
            raise BadRequestError(f"rule set {_shown(rule_set)} is not an object")
        kind = _integer(rule_set, "type", 0, _PULL)
        rules = _array(rule_set.get("rule"), f"rule of type {kind}")
        if kind == _VOLUME:
            volumes += map(_volume, rules)
        elif kind == _EMPTY_READ:
            empty_reads += map(_empty_read, rules)
        elif kind == _PULL:
            pulls += map(_pull, rules)
    if len(pulls) > 1:
        raise BadRequestError(f"{len(pulls)} rules of type {_PULL}, at most one may be")
    return FlowControl(tuple(volumes), tuple(empty_reads), pulls[0] if pulls else None)


def format_flow_control(control: FlowControl) -> str:
    """Return the JSON of the rules, or one space when there are none."""
    sets: list[tuple[int, list[dict[str, object]]]] = [
        (_VOLUME, [_volume_fields(rule) for rule in control.volumes]),
        (
            _EMPTY_READ,
            [{"zeroCnt": r.zero_count, "freqInMs": r.pause_ms} for r in control.empty_reads],
        ),
        (_PULL, [_pull_fields(control.pull)] if control.pull else []),
    ]
    present = [{"type": kind, "rule": rules} for kind, rules in sets if rules]
    return json.dumps(present, separators=(",", ":")) if present else NONE


def _volume(rule: object) -> VolumeRule:
    fields = _object(rule)
    start, end = _minute(fields, "start"), _minute(fields, "end")
    if start >= end:
        raise BadRequestError(f"start {fields['start']} is not before end {fields['end']}")
    return VolumeRule(
        start,
        end,
        _integer(fields, "dltInM", 21, _INT_MAX),
        _integer(fields, "limitInM", 0, _INT_MAX),
        _integer(fields, "freqInMs", 200, _INT_MAX),
    )


def _volume_fields(rule: VolumeRule) -> dict[str, object]:
    return {
        "start": f"{rule.start_minute // 60:02}:{rule.start_minute % 60:02}",
        "end": f"{rule.end_minute // 60:02}:{rule.end_minute % 60:02}",
        "dltInM": rule.lag_mb,
        "limitInM": rule.limit_mb,
        "freqInMs": rule.pause_ms,
    }


def _empty_read(rule: object) -> EmptyReadRule:
    fields = _object(rule)
    zero_count = _integer(fields, "zeroCnt", 1, _INT_MAX)
    return EmptyReadRule(zero_count, _integer(fields, "freqInMs", 0, _INT_MAX))


def _pull(rule: object) -> PullRule:
    fields = _object(rule)
    normal_ms = _integer(fields, "normFreqInMs", 0, _PULL_MS_MAX)
    filter_ms = _integer(fields, "filterFreqInMs", 0, _PULL_MS_MAX)
    # The lower bound is the other field: little data must not be asked for more often.
    little_ms = _integer(fields, "minDataFilterFreqInMs", filter_ms, _PULL_MS_MAX)
    return PullRule(normal_ms, filter_ms, little_ms)


def _pull_fields(rule: PullRule) -> dict[str, object]:
    return {
        "normFreqInMs": rule.normal_ms,
        "filterFreqInMs": rule.filter_ms,
        "minDataFilterFreqInMs": rule.little_filter_ms,
    }


def _json(text: str) -> object:
    if len(text) > FLOW_CONTROL_CHARS_MAX:
        raise BadRequestError(
            f"flow control has {len(text)} characters, limit is {FLOW_CONTROL_CHARS_MAX}"
        )
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # deep nesting overflows the parser
        raise BadRequestError(f"flow control is not JSON: {error}") from error


def _array(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise BadRequestError(f"{what} {_shown(value)} is not an array")
    return value


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadRequestError(f"rule {_shown(value)} is not an object")
    return value


def _integer(fields: dict[str, object], name: str, lowest: int, highest: int) -> int:
    value = fields.get(name)
    if type(value) is not int or not lowest <= value <= highest:  # true is an int, too
        raise BadRequestError(f"{name} {_shown(value)} is not an integer in {lowest}..{highest}")
    return value


def _minute(fields: dict[str, object], name: str) -> int:
    """Minutes since midnight of ``HH:MM``, 00:00 to 24:00."""
    value = fields.get(name)
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    minute = int(match[1]) * 60 + int(match[2]) if match else _DAY_MINUTES + 1
    if minute > _DAY_MINUTES:
        raise BadRequestError(f"{name} {_shown(value)} is not a time in 00:00..24:00")
    return minute


def _shown(value: object) -> str:
    """The value for an error message, cut."""
    return repr(value)[:80]
