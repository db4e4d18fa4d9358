"""Users over HTTP, and in the memory of a leader that starts."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from cryptography.fernet import Fernet
from twisted.internet import reactor

from tests.master.conftest import configuration
from tests.master.peers import Http
from tests.master.signing import SECRET, add_user, tokens
from tube.config import TokenConfig
from tube.errors import ConfigError
from tube.master import app

USERS = "/api/v1/users"


async def serve(tmp_path, stack, config):
    options = configuration(tmp_path, tokens=config)
    return await app.serve(reactor, options, stack, upgrade=True)


async def test_users_outlive_the_leader_and_show_no_secret(tmp_path):
    """They are decrypted once, when a master begins to lead; another key opens nothing."""
    async with AsyncExitStack() as stack:
        http = Http((await serve(tmp_path, stack, tokens(tmp_path))).http_port)
        added = await add_user(http, produce=["bb", "aa", "aa"])
        assert (added["name"], added["produce"]) == ("ann", ["aa", "bb"])
        assert SECRET not in str(await http("GET", USERS))
        history = await http("GET", "/api/v1/history?kind=admin")
        assert history["events"][-1]["detail"] == "user ann added"
    assert SECRET.encode() not in (tmp_path / "tube.db").read_bytes()
    async with AsyncExitStack() as stack:
        master = await serve(tmp_path, stack, tokens(tmp_path))
        assert master.core.access.users["ann"].secret == SECRET
        assert SECRET not in repr(master.core.access.users)
    (tmp_path / "cluster.key").write_bytes(Fernet.generate_key())
    async with AsyncExitStack() as stack:
        master = await serve(tmp_path, stack, tokens(tmp_path))
        assert list(master.core.users) == ["ann"]
        assert not master.core.access.users
    async with AsyncExitStack() as stack:
        master = await serve(tmp_path, stack, TokenConfig())
        assert not master.core.access.users


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "client:x"},
        {"name": "x" * 65},
        {"secret": "1234567"},
        {"secret": "x" * 257},
        {"secret": "12345678\n"},
        {"secret": "12345678\ud800"},
        {"produce": ["a b"]},
        {"consume": ["x" * 60 + str(i) for i in range(40)]},
        {"consume": [1]},
        {"secret": None},
        {"more": 1},
    ],
)
async def test_malformed_users_are_refused(tmp_path, change):
    """With 400; nothing is stored."""
    body = {"name": "ann", "secret": SECRET, "produce": [], "consume": []} | change
    async with AsyncExitStack() as stack:
        http = Http((await serve(tmp_path, stack, tokens(tmp_path))).http_port)
        await http("POST", USERS, body)
        assert http.last_status == 400

        assert await http("GET", USERS) == {"users": []}


async def test_users_are_there_once(tmp_path):
    """A second one is a conflict; who is deleted is gone."""
    async with AsyncExitStack() as stack:
        http = Http((await serve(tmp_path, stack, tokens(tmp_path))).http_port)
        await add_user(http)
        await http("POST", USERS, {"name": "ann", "secret": SECRET})
        assert http.last_status == 409

        for status in (200, 404):
            await http("DELETE", f"{USERS}/ann")
            assert http.last_status == status


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"sign_producers": True}, "tube user key"),
        ({"sign_consumers": True}, "tube user key"),
        ({"unsigned_networks": ["10.0.0.1/8", "x"]}, "10.0.0.1/8"),
        ({"cluster_key_file": "/nonexistent"}, "cluster_key_file"),
    ],
)
async def test_a_wrong_configuration_is_a_line(tmp_path, options, fault):
    """Said at the start."""
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigError, match=fault):
            await serve(tmp_path, stack, TokenConfig(**options))
