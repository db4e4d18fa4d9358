"""Writes what a run of tests/compat showed into docs/compatibility.md: ``compat_table.py RESULTS.xml``."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
BEGIN, END = "<!-- begin results -->", "<!-- end results -->"
KINDS = {"java": "Java 1.13.0", "java-old": "Java 1.5.0", "go": "Go 0.1.2", "tube": "ours"}
KIND = re.compile(r"\b(java-old|java|go|tube)\b")

Cells = dict[str, set[str]]


def rows(results: Path) -> tuple[dict[str, Cells], dict[str, set[str]]]:
    """Outcomes by test and client, and those of tests without a client of others."""
    clients: dict[str, Cells] = defaultdict(lambda: defaultdict(set))
    raw: dict[str, set[str]] = defaultdict(set)
    for case in ET.parse(results).iter("testcase"):
        name, _, parameters = case.get("name", "").partition("[")
        title = name.removeprefix("test_").replace("_", " ")
        kinds = set(KIND.findall(parameters))
        for kind in kinds:
            clients[title][kind].add(outcome(case))
        if not kinds:
            raw[title].add(outcome(case))
    return clients, raw


def outcome(case: ET.Element) -> str:
    """``yes``, ``no`` or ``not run``."""
    if case.find("skipped") is not None:
        return "not run"
    bad = case.find("failure") is not None or case.find("error") is not None
    return "no" if bad else "yes"


def cell(outcomes: set[str]) -> str:
    """The worst of several outcomes."""
    return next((text for text in ("no", "not run", "yes") if text in outcomes), "")


def table(results: Path) -> str:
    """Both tables."""
    clients, raw = rows(results)
    lines = ["| what | " + " | ".join(KINDS.values()) + " |", "|---" * (len(KINDS) + 1) + "|"]
    for title, cells in clients.items():
        marks = (cell(cells.get(kind, set())) for kind in KINDS)
        lines.append(f"| {title} | " + " | ".join(marks) + " |")
    lines += ["", "| with our own client, or raw sockets | |", "|---|---|"]
    lines += [f"| {title} | {cell(outcomes)} |" for title, outcomes in raw.items()]
    return "\n".join(lines)


def main(results: str) -> None:
    """Replace what is between the marks."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(Path(results))}\n{END}{after}")


if __name__ == "__main__":
    main(*sys.argv[1:])
