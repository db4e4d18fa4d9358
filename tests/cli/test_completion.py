"""``tube completion``."""

from __future__ import annotations

import pytest

from tests.cli.conftest import here


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str) -> None:
    """Each shell has one."""
    assert "_TUBE_COMPLETE" in here("completion", shell).out
    assert here("completion", "tcsh").code == 2
