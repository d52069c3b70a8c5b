"""`holdfast completion`: for shells that complete what is typed."""

import click
from click.shell_completion import get_completion_class

from holdfast.cli.frame import COMPLETE_VARIABLE, Answer, as_json_option, say

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@as_json_option
def completion(*, shell: str, as_json: bool) -> None:
    """Print a script that completes commands in a shell.

    \b
    Example:
      eval "$(holdfast completion bash)"       in ~/.bashrc; zsh likewise, in ~/.zshrc
      holdfast completion fish | source        in ~/.config/fish/completions/holdfast.fish

    \b
    Try:
      holdfast completion zsh
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    made = kind(root.command, {}, "holdfast", COMPLETE_VARIABLE)
    script = made.source_template % made.source_vars()
    say(Answer({"shell": shell, "script": script}, lambda page: page.block(script, indent="")), as_json)
