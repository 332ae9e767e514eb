"""`restow completion`: a script for the shell, which asks `restow` itself what may follow."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options and kinds.

    The shell asks `restow` for what may follow, so the script need not change when Restow does. bash must be 4.4 or newer.

    \b
    Examples:
      source <(restow completion bash)                                   for this shell
      restow completion bash > ~/.local/share/bash-completion/completions/restow
      restow completion zsh > "${fpath[1]}/_restow"
      restow completion fish > ~/.config/fish/completions/restow.fish
    """
    from click.shell_completion import get_completion_class

    from restow.cli.main import cli

    found: Any = get_completion_class(shell)
    assert found is not None, "click knows each shell that the argument allows"
    # Not `found.source()`: it would run bash to look at its version, where the script may be meant for another machine.
    made = found(cli, {}, "restow", "_RESTOW_COMPLETE")
    click.echo(made.source_template % made.source_vars())
