"""Errors on the terminal."""

from __future__ import annotations

import click
import pytest

from tube import errors
from tube.cli.failures import exit_code, report


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TubeError(), 1),
        (errors.StoreError(), 1),
        (click.UsageError("x"), 2),
        (errors.NotFoundError(), 3),
        (errors.ForbiddenError(), 4),
        (errors.CertificateError(), 4),
        (errors.UnreachableError(), 5),
        (errors.StandbyError(), 5),
        (errors.NoBrokerError(), 5),
        (errors.TimedOutError(), 6),
        (errors.ConflictError(), 7),
        (errors.ConfigError(["a"]), 78),
        (OSError(2, "no"), 1),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    """Scripts can tell the kinds apart."""
    assert code == exit_code(error)


def test_an_error_is_one_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    """Line breaks of a server's answer do not break it."""
    report(errors.NotFoundError("no\ntopic", hint="look"))
    assert capsys.readouterr().err == "tube: no topic\nhint: look\n"


def test_all_faults_of_a_configuration_come_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each."""
    report(errors.ConfigError(["a: missing", "b: unknown option"]))
    assert capsys.readouterr().err == "tube: a: missing\ntube: b: unknown option\n"


def test_a_bug_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody raised on purpose is named by its class."""
    report(KeyError("x"))
    assert capsys.readouterr().err.splitlines()[0] == "tube: KeyError: 'x'"


def test_a_system_error_names_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Without errno and class."""
    report(FileNotFoundError(2, "No such file or directory", "tube.toml"))
    assert capsys.readouterr().err == "tube: tube.toml: No such file or directory\n"
