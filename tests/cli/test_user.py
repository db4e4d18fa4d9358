"""``tube user``."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Dev, here, serving
from tube.master.cluster_key import ClusterKey


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.key"
    ended = here("user", "key", str(path))
    assert ended.code == 0, ended.err
    return str(path)


def test_a_key_is_its_owner_s_alone_and_is_never_replaced(key_file: str) -> None:
    """A lost key is lost secrets."""
    before = Path(key_file).read_text()
    assert stat.S_IMODE(Path(key_file).stat().st_mode) == 0o600
    assert ClusterKey(before.strip()).seal("x")

    again = here("user", "key", key_file)

    assert again.code == 1
    assert "exists" in again.err
    assert Path(key_file).read_text() == before


def test_users_are_added_listed_and_deleted(key_file: str, tmp_path: Path) -> None:
    """Secrets come from a file or standard input, and are never shown."""
    (tmp_path / "secret").write_text("correct horse\n")
    override = f"tokens.cluster_key_file={key_file}"
    database = f"database=sqlite:///{tmp_path}/tube.db"
    assert here("db", "upgrade", "--url", database.removeprefix("database=")).code == 0
    with serving(
        "master", "--set", override, "--set", database, "--set", "port=0", "--set", "http.port=0"
    ) as server:
        tube = Dev({"master": server.ports["master"], "http": server.ports["http"]})
        file = str(tmp_path / "secret")
        tube("user", "add", "ann", "-p", "orders", "-c", "*", "--secret-file", file)
        tube("user", "add", "bob", stdin=b"battery staple\n")

        shown = tube("user", "list", "-o", "json")
        assert [(u["name"], u["produce"], u["consume"]) for u in shown.document] == [
            ("ann", ["orders"], ["*"]),
            ("bob", [], []),
        ]
        assert "horse" not in shown.out + tube("user", "list").out
        assert "exists" in tube("user", "add", "ann", stdin=b"12345678", code=7).err
        assert "8 to 256" in tube("user", "add", "eve", stdin=b"short\n", code=4).err

        tube("user", "delete", "bob")
        assert tube("user", "list", "-o", "name").lines == ["ann"]
        tube("user", "delete", "bob", code=3)


def test_without_a_cluster_key_nobody_is_added(dev: Dev) -> None:
    """One line says what to do."""
    ended = dev("user", "add", "ann", stdin=b"12345678\n", code=7)

    assert ended.err.splitlines() == [
        "tube: users need a cluster key",
        "hint: make one with: tube user key FILE — and set tokens.cluster_key_file on every master",
    ]


def test_a_secret_file_that_cannot_be_read_is_a_line(dev: Dev, tmp_path: Path) -> None:
    """It is missing, or no text."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")

    assert "bytes" in dev("user", "add", "a", "--secret-file", f"{tmp_path}/bytes", code=78).err
    assert "No such" in dev("user", "add", "a", "--secret-file", f"{tmp_path}/no", code=1).err
