"""kcat's format strings: ``%t [%p] at %o: %k = %s\\n``.

Tokens: ``%t`` topic, ``%p`` partition, ``%b`` broker, ``%o`` offset, ``%k`` key, ``%s`` value, ``%S`` its size in
bytes, ``%K`` the key's size, ``%T`` timestamp in ms, ``%h`` headers as name=value,…, ``%f`` filter, ``%%``;
``\\n``, ``\\t``, ``\\r``, ``\\0`` and ``\\\\``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tube.client.values import Message

LINE: Final = "%s\\n"
ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

TOKENS: Final[dict[str, Callable[[Message], bytes]]] = {
    "t": lambda m: m.partition.topic.encode(),
    "p": lambda m: b"%d" % m.partition.partition_id,
    "b": lambda m: b"%d" % m.partition.broker_id,
    "o": lambda m: b"%d" % m.offset,
    "k": lambda m: m.key or b"",
    "K": lambda m: b"%d" % (-1 if m.key is None else len(m.key)),
    "s": lambda m: m.value,
    "S": lambda m: b"%d" % len(m.value),
    "T": lambda m: b"%d" % m.timestamp_ms,
    "h": lambda m: ",".join(f"{name}={value}" for name, value in m.headers.items()).encode(),
    "f": lambda m: (m.filter or "").encode(),
    "%": lambda _m: b"%",
}


def compile_format(text: str) -> Callable[[Message], bytes]:
    """Return what turns a message into bytes.

    Raises:
        click.BadParameter: a token or an escape that there is not.
    """
    parts: list[bytes | Callable[[Message], bytes]] = []
    for piece in re.findall(r"%.?|\\.?|[^%\\]+", text, re.DOTALL):
        if piece[0] == "%":
            if piece[1:] not in TOKENS:
                raise click.BadParameter(f"{piece!r} is no token; there are %{' %'.join(TOKENS)}")
            parts.append(TOKENS[piece[1:]])
        elif piece[0] == "\\":
            if piece[1:] not in ESCAPES:
                raise click.BadParameter(f"{piece!r} is no escape; there are \\n \\t \\r \\0 \\\\")
            parts.append(ESCAPES[piece[1:]])
        else:
            parts.append(piece.encode())
    return lambda message: b"".join(
        part if isinstance(part, bytes) else part(message) for part in parts
    )


def document(message: Message) -> dict[str, Any]:
    """A message for JSON; bytes that are not UTF-8 come as base64 under another name."""
    found: dict[str, Any] = {
        "topic": message.partition.topic,
        "broker_id": message.partition.broker_id,
        "partition_id": message.partition.partition_id,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "filter": message.filter,
        "headers": dict(message.headers),
    }
    return _text("key", message.key) | _text("value", message.value) | found


def _text(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
