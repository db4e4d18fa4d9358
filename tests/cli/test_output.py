"""Rows in five forms."""

from __future__ import annotations

import json

import pytest
import yaml

from tube.cli.output import FORMS, facts, show, show_facts, table, time_text

ROWS = [
    {"name": "a", "count": 5, "ok": True, "tags": ["x", "y"], "none": None},
    {"name": "längst", "count": 12345, "ok": False, "tags": [], "none": None},
]
COLUMNS = ["name", "count", "ok", "tags", "none"]


def test_a_table_is_aligned() -> None:
    """Numbers to the right, the rest to the left, nothing behind."""
    assert table(ROWS, COLUMNS) == [
        "NAME    COUNT   OK  TAGS  NONE",
        "a           5  yes  x,y      -",
        "längst  12345   no  -        -",
    ]
    assert table([], ["a_b"]) == ["A B"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_every_row(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be read back."""
    show(ROWS, COLUMNS, form)
    out = capsys.readouterr().out
    if form == "json":
        assert json.loads(out) == ROWS
    elif form == "yaml":
        assert yaml.safe_load(out) == ROWS
    elif form == "csv":
        assert out.splitlines()[1] == 'a,5,yes,"x,y",'
    elif form == "name":
        assert out.splitlines() == ["a", "längst"]
    else:
        assert len(out.splitlines()) == 3


def test_one_thing(capsys: pytest.CaptureFixture[str]) -> None:
    """A document, a name, or left to the caller."""
    assert show_facts({"name": "a"}, "json")
    assert show_facts({"name": "a"}, "name")
    assert not show_facts({"name": "a"}, "table")
    facts([("topic", "a"), ("at", time_text(0))])
    assert capsys.readouterr().out.splitlines()[-2:] == ["topic  a", "at     -"]


def test_times_are_utc() -> None:
    """To the millisecond."""
    assert time_text(1_357_000_000_123) == "2013-01-01 00:26:40.123"
