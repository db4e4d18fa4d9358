"""Flow control: how fast a lagging group may read a partition (spec section 9).

The original evaluates a group's own rules in its clients, each in units of its own; we evaluate them here,
so that they hold for every client.  Windows are a minute and a twelfth of it, as there.

Times: ``now_s`` is monotonic, ``wall_ms`` is milliseconds since 1970 (rules name times of the day in GMT+8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tube.broker.holders import Claim
from tube.values import GroupName
from tube.wire.flow import FlowControl as Rules
from tube.wire.flow import VolumeRule

WINDOW_S: Final = 60.0
SLICE_S: Final = 5.0
_SLICES: Final = 12
_MIB: Final = 1024 * 1024
_ZONE_MS: Final = 8 * 3600 * 1000
_DAY_MS: Final = 24 * 3600 * 1000


@dataclass(slots=True)
class _Meter:
    """What was sent of a partition to a group in the running minute and slice."""

    minute_from_s: float
    slice_from_s: float
    minute_bytes: int = 0
    slice_bytes: int = 0


class FlowControl:
    """The rules in force, and what they have measured.

    Callers: broker.service, broker.uplink.
    """

    def __init__(self) -> None:
        self._default = Rules()
        self._groups: dict[GroupName, Rules] = {}
        self._meters: dict[Claim, _Meter] = {}

    def set_default(self, rules: Rules) -> None:
        """What holds for groups without rules of their own."""
        self._default = rules

    def set_groups(self, rules: dict[GroupName, Rules]) -> None:
        """Replace the rules of all groups."""
        self._groups = rules

    def of(self, group: GroupName) -> Rules:
        """The rules that hold for a group."""
        return self._groups.get(group) or self._default

    def sent(self, claim: Claim, byte_count: int, now_s: float) -> None:
        """Count bytes that were given to a consumer."""
        if self.of(claim.group).volumes:
            meter = self._meter(claim, now_s)
            meter.minute_bytes += byte_count
            meter.slice_bytes += byte_count

    def wait_ms(self, claim: Claim, lag_bytes: int, now_s: float, wall_ms: int) -> int:
        """How long the consumer must wait before its next pull; 0 for not at all."""
        rule = self._rule(claim.group, lag_bytes, wall_ms)
        if rule is None:
            return 0
        limit_bytes = rule.limit_mb * _MIB
        meter = self._meter(claim, now_s)
        over = (
            limit_bytes == 0
            or meter.minute_bytes >= limit_bytes
            or meter.slice_bytes >= limit_bytes // _SLICES
        )
        return rule.pause_ms if over else 0

    def forget(self, claim: Claim) -> None:
        """The hold ended."""
        self._meters.pop(claim, None)

    def _rule(self, group: GroupName, lag_bytes: int, wall_ms: int) -> VolumeRule | None:
        """The rule in force now with the largest lag that is exceeded."""
        minute = (wall_ms + _ZONE_MS) % _DAY_MS // 60_000
        matching = [
            rule
            for rule in self.of(group).volumes
            if rule.start_minute <= minute <= rule.end_minute and lag_bytes > rule.lag_mb * _MIB
        ]
        return max(matching, key=lambda rule: rule.lag_mb, default=None)

    def _meter(self, claim: Claim, now_s: float) -> _Meter:
        meter = self._meters.get(claim)
        if meter is None:
            meter = self._meters[claim] = _Meter(now_s, now_s)
        if now_s - meter.minute_from_s >= WINDOW_S:
            meter.minute_from_s, meter.minute_bytes = now_s, 0
        if now_s - meter.slice_from_s >= SLICE_S:
            meter.slice_from_s, meter.slice_bytes = now_s, 0
        return meter
