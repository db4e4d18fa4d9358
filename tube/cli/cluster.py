"""Which cluster a command talks to: options, then the environment, then the named cluster, then this machine."""

from __future__ import annotations

import functools
import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

import click

from tube.errors import ConfigError, NotFoundError, TubeError

if TYPE_CHECKING:
    from tube.cli.api import Api
    from tube.client import Client

P = ParamSpec("P")
T = TypeVar("T")

MASTER: Final = "127.0.0.1:8715"
HTTP: Final = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a cluster's master is, as ``host:port`` for clients and for HTTP, and who asks.

    ``master`` may be a whole URL: ``tubes://host:8716`` for TLS.
    """

    master: str = MASTER
    http: str = HTTP
    token_file: str = ""
    user: str = ""
    secret_file: str = ""
    ca_file: str = ""

    @property
    def url(self) -> str:
        """What the SDK's client takes."""
        return self.master if "://" in self.master else f"tube://{self.master}"

    def client(self) -> Client:
        """A client of the cluster, to be used in a ``with``.

        Raises:
            TubeError: the secret's file cannot be read.  BadRequestError: a user without a secret.
        """
        from tube.client import Client, ClientOptions

        secret = _content(self.secret_file)
        options = ClientOptions(user=self.user, secret=secret, ca_file=self.ca_file)
        return Client(self.url, options)

    def api(self, timeout_s: float = 10.0) -> Api:
        """The master's HTTP API.

        Raises:
            TubeError: the token file cannot be read.
        """
        from tube.cli.api import Api

        return Api(self.http, token=_content(self.token_file), timeout_s=timeout_s)


def _content(path: str) -> str:
    """What a file of a secret says, "" for no file."""
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise TubeError(f"{path}: {error.strerror}") from error


@dataclass(slots=True)
class Contexts:
    """The named clusters of this user, kept as TOML in click's application folder."""

    current: str = ""
    clusters: dict[str, Cluster] = field(default_factory=dict)

    def get(self, name: str) -> Cluster:
        """The cluster of this name.

        Raises:
            NotFoundError: there is none.
        """
        if name not in self.clusters:
            raise NotFoundError(f"there is no context {name!r}", hint="see: tube context list")
        return self.clusters[name]


def contexts_path() -> Path:
    """The file of the named clusters."""
    return Path(click.get_app_dir("tube")) / "contexts.toml"


def load_contexts() -> Contexts:
    """Read the file; without one there are no contexts.

    Raises:
        ConfigError: it is not what ``save_contexts`` writes.
    """
    path = contexts_path()
    try:
        table = tomllib.loads(path.read_text())
        clusters = {
            str(name): Cluster(**{key: str(value) for key, value in given.items()})
            for name, given in table.get("contexts", {}).items()
        }
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError([f"{path}: {error}"]) from error
    return Contexts(str(table.get("current", "")), clusters)


def save_contexts(contexts: Contexts) -> None:
    """Write the file in one go."""
    lines = [f"current = {json.dumps(contexts.current)}"]
    for name, cluster in sorted(contexts.clusters.items()):
        lines += [
            "",
            f"[contexts.{json.dumps(name)}]",
            *(f"{key} = {json.dumps(value)}" for key, value in asdict(cluster).items() if value),
        ]
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}.new")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(path)


def choose(ctx: click.Context) -> Cluster:
    """The cluster that the global options (or the environment, or a context) name.

    Raises:
        NotFoundError: no such context.  ConfigError: the contexts' file is broken.
    """
    given: dict[str, Any] = ctx.find_root().params
    contexts = load_contexts()
    name = given.get("context") or contexts.current
    named = contexts.get(name) if name else Cluster()
    chosen = {key: given.get(key) or value for key, value in asdict(named).items()}
    return Cluster(**chosen)


def with_cluster(f: Callable[Concatenate[Cluster, P], T]) -> Callable[P, T]:
    """Give a command the cluster as its first argument."""

    @functools.wraps(f)  # click keeps a command's parameters in its __dict__
    def found(*args: P.args, **kwargs: P.kwargs) -> T:
        cluster = click.get_current_context().find_object(Cluster)
        assert cluster is not None
        return f(cluster, *args, **kwargs)

    return found
