"""A message's payload: attributes and value, checksum, filter codes, signatures.

With flag bit 0 set a payload is ``length:u32 attributes:UTF-8 value``, big-endian, otherwise just the
value.  Attributes are ``key=value,key=value`` without escaping.

Source: spec sections 3.4 (message encoding), 4.7 (filters), 7.1 (signature).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import re
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from tube.errors import BadRequestError, WireError

TYPE_KEY: Final = "$msgType$"
"""Reserved attribute: the filter item of the message."""

TIME_KEY: Final = "$msgTime$"
"""Reserved attribute: when the message happened, ``yyyyMMddHHmm``."""

HAS_ATTRIBUTES: Final = 1
"""Bit of ``flag``; the other bits are carried through unchanged."""

_TIME = re.compile(r"[0-9]{12}")


class Packed(NamedTuple):
    """What goes into ``data`` and ``flag`` of a SendMessage."""

    data: bytes
    flag: int


class Unpacked(NamedTuple):
    """Attributes, reserved ones included, and value of a message."""

    attributes: dict[str, str]
    value: bytes


def pack(value: bytes, attributes: Mapping[str, str]) -> Packed:
    """Return payload and flag; the reserved attributes go first, as all clients write them.

    Raises:
        BadRequestError: an attribute has ``,`` or ``=`` in it, an empty key, or no valid time.
    """
    if not attributes:
        return Packed(value, 0)
    text = format_attributes(attributes).encode()
    return Packed(len(text).to_bytes(4, "big") + text + value, HAS_ATTRIBUTES)


def unpack(data: bytes, flag: int) -> Unpacked:
    """Return attributes and value.

    Raises:
        WireError: the flag promises attributes, but their length or text cannot be true.
    """
    if not flag & HAS_ATTRIBUTES:
        return Unpacked({}, data)
    end = value_start(data, flag)
    try:
        text = data[4:end].decode()
    except UnicodeDecodeError as error:
        raise WireError(f"attributes are not UTF-8: {error}") from error
    return Unpacked(parse_attributes(text), data[end:])


def value_start(data: bytes, flag: int) -> int:
    """Return where the value begins.

    Raises:
        WireError: the flag promises attributes and the length in front of them lies.  A Java client
            sends that for attributes that are set but blank.
    """
    if not flag & HAS_ATTRIBUTES:
        return 0
    if len(data) < 4:
        raise WireError(f"flag promises attributes, data has {len(data)} bytes")
    end = 4 + int.from_bytes(data[:4], "big")
    if end > len(data):
        raise WireError(f"attributes have {end - 4} bytes, only {len(data) - 4} are there")
    return end


def format_attributes(attributes: Mapping[str, str]) -> str:
    """Return the attribute text, reserved attributes first.

    Raises:
        BadRequestError: see ``pack``.
    """
    for key, text in attributes.items():
        if not key or any(separator in key + text for separator in ",="):
            raise BadRequestError(f"attribute {key!r}={text!r}: no empty key, no ',' and no '='")
    if not _TIME.fullmatch(attributes.get(TIME_KEY, "000000000000")):
        raise BadRequestError(f"{TIME_KEY} {attributes[TIME_KEY]!r} is not yyyyMMddHHmm")
    reserved = [key for key in (TYPE_KEY, TIME_KEY) if key in attributes]
    others = [key for key in attributes if key not in reserved]
    return ",".join(f"{key}={attributes[key]}" for key in reserved + others)


def parse_attributes(text: str) -> dict[str, str]:
    """Return the attributes of a text; what has no ``=`` becomes a key without a value."""
    items = (item.partition("=") for item in text.split(",") if item)
    return {key: value for key, _, value in items}


def check_sum(data: bytes | memoryview) -> int:
    """Return the checksum that clients compare: CRC-32 of the payload without its top bit."""
    return zlib.crc32(data) & 0x7FFF_FFFF


@functools.lru_cache(maxsize=4096)  # types repeat; clients choose them, so the cache is bounded
def filter_hash(text: str) -> int:
    """Return Java's ``String.hashCode`` (signed 32 bits), which stands for a message type."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return code - (code >> 31 << 32)


def signature(user: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Return what proves that the sender knows the password, as AuthenticateInfo carries it."""
    signed = f"{user}{timestamp_ms}{nonce}".encode()
    digest = base64.b64encode(hmac.digest(password.encode(), signed, hashlib.sha1)).decode()
    return digest.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D")
