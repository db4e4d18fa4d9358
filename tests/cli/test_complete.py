"""What the tabulator offers."""

from __future__ import annotations

from tests.cli.conftest import Dev, outside


def offered(*words: str) -> list[str]:
    """What bash is told for a command line, whose last word is unfinished."""
    ended = outside(
        _TUBE_COMPLETE="bash_complete", COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1)
    )
    return [line.partition(",")[2] for line in ended.out.splitlines() if line]


def test_commands() -> None:
    """Of the program and of its groups."""
    assert offered("tube", "cons") == ["consume"]
    assert offered("tube", "group", "res") == ["reset"]


def test_names_of_topics_and_groups(dev: Dev, topic: str, group: str) -> None:
    """Asked from the master that the command line names."""
    dev("group", "create", group)
    assert topic in offered("tube", *dev.options, "consume", "top")
    assert group in offered("tube", *dev.options, "group", "lag", "gro")


def test_no_master_no_names_no_noise() -> None:
    """Who presses the tabulator gets no error."""
    assert offered("tube", "--http", "127.0.0.1:1", "consume", "a") == []
