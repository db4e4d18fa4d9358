"""The configuration strings that a master sends to brokers.

Fields are joined by ``:``.  In a topic's string one space means "as the broker's default".  Field
names are those of the admin API, in our spelling.

Source: spec sections 2.8 (brokerDefaultConfInfo, brokerTopicSetConfInfo), 6.2 (checksum), 12.3
(deletePolicy).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tube.errors import BadRequestError
from tube.limits import DELETE_POLICY_HOURS_MAX
from tube.wire.records import integer

DEFAULT = " "
"""Stands for the broker's default, and for deleteWhen, which is obsolete."""

_POLICY = re.compile(r"delete,([0-9]{1,9})([smh]?)")
_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "": 3_600_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDefaults:
    """What holds for the topics of a broker that say nothing else.

    ``unflush_interval`` and ``mem_cache_flush_intvl`` are milliseconds, ``unflush_data_hold`` is
    bytes (0 = off).
    """

    num_partitions: int = 3
    accept_publish: bool = True
    accept_subscribe: bool = True
    unflush_threshold: int = 1000
    unflush_interval: int = 10_000
    delete_policy: str = "delete,168h"
    num_topic_stores: int = 1
    unflush_data_hold: int = 0
    mem_cache_msg_size_in_mb: int = 3
    mem_cache_msg_cnt_in_k: int = 10
    mem_cache_flush_intvl: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What a topic has on one broker; None = as the broker's default (for the message size: 1 MiB).

    ``status_id`` is 0 normal, 1 soft deleted, 2 soft removed, 3 removed at the broker.
    """

    topic: str
    num_partitions: int | None = None
    accept_publish: bool | None = None
    accept_subscribe: bool | None = None
    unflush_threshold: int | None = None
    unflush_interval: int | None = None
    delete_policy: str | None = None
    num_topic_stores: int | None = None
    status_id: int = 0
    unflush_data_hold: int | None = None
    mem_cache_msg_size_in_mb: int | None = None
    mem_cache_msg_cnt_in_k: int | None = None
    mem_cache_flush_intvl: int | None = None
    max_msg_size: int | None = None


_DEFAULTS_FIELDS = (
    "num_partitions",
    "accept_publish",
    "accept_subscribe",
    "unflush_threshold",
    "unflush_interval",
    "",  # deleteWhen
    "delete_policy",
    "num_topic_stores",
    "unflush_data_hold",
    "mem_cache_msg_size_in_mb",
    "mem_cache_msg_cnt_in_k",
    "mem_cache_flush_intvl",
)
_TOPIC_FIELDS = (
    "topic",
    *_DEFAULTS_FIELDS[:8],
    "status_id",
    *_DEFAULTS_FIELDS[8:],
    "max_msg_size",
)
_BOOLEANS = {"accept_publish", "accept_subscribe"}
_TEXTS = {"topic", "delete_policy"}


def parse_defaults(text: str) -> BrokerDefaults:
    """Return the defaults of a brokerDefaultConfInfo.

    Raises:
        BadRequestError: not 12 fields, or one of them is no such value.
    """
    values = _fields(text, _DEFAULTS_FIELDS, "broker defaults")
    missing = [name for name in _DEFAULTS_FIELDS if name and name not in values]
    if missing:
        raise BadRequestError(f"broker defaults lack {', '.join(missing)}")
    return replace(BrokerDefaults(), **values)  # type: ignore[arg-type]  # _fields knows each type


def format_defaults(defaults: BrokerDefaults) -> str:
    """Return the 12 fields of a brokerDefaultConfInfo."""
    names = _DEFAULTS_FIELDS
    return ":".join(_text(getattr(defaults, name)) if name else DEFAULT for name in names)


def parse_topic_config(text: str) -> TopicConfig:
    """Return the configuration of a brokerTopicSetConfInfo.

    Raises:
        BadRequestError: not 15 fields, or one of them is no such value.
    """
    values = _fields(text, _TOPIC_FIELDS, "topic configuration")
    if "topic" not in values:
        raise BadRequestError(f"topic configuration {text[:200]!r} lacks the topic")
    return replace(TopicConfig(topic=""), **values)  # type: ignore[arg-type]  # as above


def format_topic_config(config: TopicConfig, defaults: BrokerDefaults | None = None) -> str:
    """Return the 15 fields of a brokerTopicSetConfInfo.

    Args:
        defaults: of the broker; a value that equals its default is left out, as masters do.
    """
    fields = []
    for name in _TOPIC_FIELDS:
        value = getattr(config, name) if name else None
        same = name in _DEFAULTS_FIELDS and value == getattr(defaults, name or "", None)
        fields.append(DEFAULT if value is None or same else _text(value))
    return ":".join(fields)


def effective(config: TopicConfig, defaults: BrokerDefaults) -> TopicConfig:
    """Return the configuration with the defaults filled in; only ``max_msg_size`` may stay None."""
    names = [name for name in _DEFAULTS_FIELDS if name and getattr(config, name) is None]
    return replace(config, **{name: getattr(defaults, name) for name in names})


def configuration_checksum(defaults_text: str, topic_texts: Iterable[str]) -> int:
    """Return the confCheckSumId of a broker's configuration; brokers only echo it.

    The zero bytes at the end come from a buffer that Java allocates at twice the character count.
    """
    text = defaults_text + "".join(sorted(topic_texts))
    return zlib.crc32(text.encode() + bytes(len(text))) & 0x7FFF_FFFF


def parse_delete_policy(text: str) -> int:
    """Return the retention in milliseconds of ``delete,<n>[s|m|h]``, hours if no unit.

    Raises:
        BadRequestError: another form, zero, or more than 168 hours.
    """
    match = _POLICY.fullmatch(text.strip())
    if match is None:
        raise BadRequestError(f"delete policy {text[:80]!r} is not delete,<n>[s|m|h]")
    retention_ms = int(match[1]) * _UNIT_MS[match[2]]
    if not 0 < retention_ms <= DELETE_POLICY_HOURS_MAX * _UNIT_MS["h"]:
        raise BadRequestError(f"delete policy {text!r} is not in 1s..{DELETE_POLICY_HOURS_MAX}h")
    return retention_ms


def format_delete_policy(retention_ms: int) -> str:
    """Return ``delete,<n><unit>`` in the largest unit that is exact; parts of a second are cut."""
    for unit in "hm":
        if retention_ms % _UNIT_MS[unit] == 0:
            return f"delete,{retention_ms // _UNIT_MS[unit]}{unit}"
    return f"delete,{retention_ms // _UNIT_MS['s']}s"


def _fields(text: str, names: tuple[str, ...], what: str) -> dict[str, int | bool | str]:
    """The values that are not blank, by name."""
    parts = text.split(":")
    if len(parts) != len(names):
        raise BadRequestError(f"{what} {text[:200]!r} has {len(parts)} fields, not {len(names)}")
    pairs = zip(names, parts, strict=True)
    return {name: _value(name, part) for name, part in pairs if name and part.strip()}


def _value(name: str, text: str) -> int | bool | str:
    if name in _TEXTS:
        return text
    if name not in _BOOLEANS:
        return integer(text, name, 0, 2**31 - 1)
    if text not in ("true", "false"):
        raise BadRequestError(f"{name} {text[:80]!r} is not true or false")
    return text == "true"


def _text(value: int | bool | str) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
