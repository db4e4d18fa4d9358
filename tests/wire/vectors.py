"""Golden bytes: frames of real peers and of the specification (tests/golden/tubemq_vectors.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tubemq_vectors.json"
_GOLDEN = json.loads(GOLDEN.read_text())
VECTORS: list[dict[str, Any]] = _GOLDEN["vectors"]
OTHER: dict[str, Any] = _GOLDEN["other"]


def raw(vector: dict[str, Any]) -> bytes:
    """The frame's bytes."""
    return bytes.fromhex(vector["hex"])


def named(name: str) -> dict[str, Any]:
    """The vector of that name."""
    return next(vector for vector in VECTORS if vector["name"] == name)
