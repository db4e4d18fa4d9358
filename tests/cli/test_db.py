"""``tube db``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import here


def test_a_database_is_brought_up(tmp_path: Path) -> None:
    """Empty, upgraded, current; a second time there is nothing to do."""
    url = ["--url", f"sqlite:///{tmp_path / 'a.db'}"]
    assert here("db", "check", *url).code == 1
    assert here("db", "current", *url).out.startswith("empty")
    assert here("db", "upgrade", *url).out.startswith("empty →")
    assert here("db", "upgrade", *url).out.startswith("already at")
    assert here("db", "check", *url).code == 0


def test_what_is_no_database(tmp_path: Path) -> None:
    """A URL that is none is a broken configuration, a folder that is not there a failure."""
    assert here("db", "check", "--url", "nonsense").code == 78
    ended = here("db", "upgrade", "--url", f"sqlite:///{tmp_path / 'no' / 'a.db'}")
    assert (ended.code, len(ended.err.splitlines())) == (1, 1)
    assert here("db", "check", "--set", "password_file=/nowhere").code == 78
