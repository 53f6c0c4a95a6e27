"""`carbon completion`: a shell script that completes commands and options."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands and options in a shell.

    Make the folder first if it does not exist.

    For bash: carbon completion bash > ~/.local/share/bash-completion/completions/carbon

    For zsh, write it as _carbon into a folder of $fpath.

    For fish: carbon completion fish > ~/.config/fish/completions/carbon.fish

    Args:
        shell: shell to complete in.
    """
    from carbon.cli import application

    script = application(imports_all=True).generate_completion(shell=shell)
    # bash completes file names where the script has no proposal, as for positional arguments
    print(script.replace("complete -F", "complete -o default -F") if shell == "bash" else script)
