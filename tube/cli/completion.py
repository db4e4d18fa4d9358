"""``tube completion``: the shell's completion script."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands.

    \b
    bash:  eval "$(tube completion bash)"          in ~/.bashrc
    zsh:   eval "$(tube completion zsh)"           in ~/.zshrc
    fish:  tube completion fish > ~/.config/fish/completions/tube.fish

    Names of topics and groups are completed by asking the master.
    """
    from click.shell_completion import get_completion_class

    command = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(command, {}, "tube", "_TUBE_COMPLETE").source())
