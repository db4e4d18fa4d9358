"""Keys, headers and filters of a message as TubeMQ attributes.

Attributes are ``name=value`` joined by commas, without escaping.  So names and values that contain ``,``,
``=`` or ``%`` are percent-encoded, and the attribute ``$enc$`` says so; without such characters every client
reads them as they are.  The key is the attribute ``$key$``.

Source: spec section 3.4; ``$key$`` and ``$enc$`` are ours (docs/reference/wire-extensions.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote_from_bytes, unquote, unquote_to_bytes

from tube.errors import BadRequestError
from tube.wire import message as wire
from tube.wire.records import check_filter

KEY: Final = "$key$"
ENCODED: Final = "$enc$"
_RESERVED: Final = frozenset({KEY, ENCODED, wire.TYPE_KEY, wire.TIME_KEY})
_SAFE: Final = "".join(chr(c) for c in range(33, 127) if chr(c) not in "%,=")


class Content(NamedTuple):
    """What a message carries."""

    value: bytes
    key: bytes | None
    filter: str | None
    headers: dict[str, str]


def pack(
    value: bytes,
    key: bytes | str | None = None,
    filter: str | None = None,  # noqa: A002  the field's word
    headers: Mapping[str, str] | None = None,
) -> wire.Packed:
    """Return payload and flag.

    Raises:
        BadRequestError: a header has a reserved name or none, or the filter is not letters, digits and ``_``.
        TypeError: the value is not bytes.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    value = bytes(value)
    if key is None and filter is None and not headers:
        return wire.Packed(value, 0)
    attributes: dict[str, str] = {}
    if filter is not None:
        attributes[wire.TYPE_KEY] = check_filter(filter)
    plain: dict[str, bytes] = {}
    if key is not None:
        plain[KEY] = key.encode() if isinstance(key, str) else bytes(key)
    for name, text in (headers or {}).items():
        if not name or name in _RESERVED:
            raise BadRequestError(f"header name {name!r} is empty or reserved")
        plain[name] = text.encode()
    encoded = {
        name if name == KEY else quote_from_bytes(name.encode(), _SAFE): quote_from_bytes(
            raw, _SAFE
        )
        for name, raw in plain.items()
    }
    if any("%" in name + text for name, text in encoded.items()):
        attributes[ENCODED] = "1"
    return wire.pack(value, attributes | encoded)


def unpack(data: bytes, flag: int) -> Content:
    """Return what a payload carries.

    Raises:
        WireError: the flag promises attributes that are not there.
    """
    if not flag & wire.HAS_ATTRIBUTES:
        return Content(data, None, None, {})
    attributes, value = wire.unpack(data, flag)
    kind = attributes.pop(wire.TYPE_KEY, None)
    attributes.pop(wire.TIME_KEY, None)
    encoded = attributes.pop(ENCODED, None) is not None
    key = attributes.pop(KEY, None)
    if encoded:
        attributes = {unquote(name): unquote(text) for name, text in attributes.items()}
    raw_key = None
    if key is not None:
        raw_key = unquote_to_bytes(key) if encoded else key.encode()
    return Content(value, raw_key, kind, attributes)
