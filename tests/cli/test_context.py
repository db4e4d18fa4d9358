"""``tube context``."""

from __future__ import annotations

from tests.cli.conftest import here


def test_contexts_are_added_used_and_deleted() -> None:
    """The first one is used until another is."""
    assert here("context", "add", "one", "--master", "a:1").code == 0
    assert here("context", "add", "two", "--http", "b:2").code == 0
    assert here("context", "use", "two").code == 0
    rows = here("context", "list", "-o", "json").document
    assert [(row["name"], row["current"]) for row in rows] == [("one", False), ("two", True)]

    assert here("context", "delete", "two").code == 0
    assert here("context", "list", "-o", "name").lines == ["one"]


def test_a_context_is_not_overwritten_by_accident() -> None:
    """Exit code 7, and an option for who means it."""
    here("context", "add", "one")
    assert here("context", "add", "one").code == 7
    assert here("context", "add", "one", "--master", "c:3", "--replace").code == 0


def test_addresses_are_checked_when_they_are_added() -> None:
    """Not when they are needed."""
    assert here("context", "add", "one", "--master", "nowhere").code == 78
    assert here("context", "use", "one").code == 3
