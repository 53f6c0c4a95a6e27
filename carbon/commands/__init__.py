"""The commands of `carbon`: each is a typed function, whose docstring is its help.

- `shared`: options that several commands have, and checks before anything large is imported.
- `sequences`: a result for every sequence of a file, as `score` and `embed` compute it.
- `workers`: what worker processes load; it imports nothing of the command line.
- all others: a command each, or two or three short ones that belong together.

A command imports what it needs when it runs, so that `--help` does not import torch.
`carbon.cli` lists them.
"""
