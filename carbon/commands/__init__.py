"""The commands of `carbon`: each is a typed function, whose docstring is its help.

- `shared`: options of several commands, and checks that run before large imports.
- `workers`: functions that make the workers of a command.
- all others: one command each, or two related short ones.

A command imports its libraries when it runs, so `--help` does not import torch. `carbon.cli` lists
the commands.
"""
