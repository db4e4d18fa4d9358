"""Names that the shell completes, asked from the master with a short limit and silence on failure."""

from __future__ import annotations

from typing import Final

import click

from tube.errors import TubeError

LIMIT_S: Final = 0.5
"""Who presses the tabulator does not wait longer."""


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin with what is typed."""
    del param
    return _names(ctx, "topics", incomplete)


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Groups that begin with what is typed."""
    del param
    return _names(ctx, "groups", incomplete)


def _names(ctx: click.Context, kind: str, incomplete: str) -> list[str]:
    from tube.cli.api import path_of
    from tube.cli.cluster import choose

    try:
        rows = choose(ctx).api(LIMIT_S).get(path_of(kind))[kind]
        return [str(row["name"]) for row in rows if str(row["name"]).startswith(incomplete)]
    except (TubeError, LookupError, TypeError):
        return []
