"""The verbs of the command `carbon`, a module each: `add_parser` and `run`.

What a verb needs is imported when it runs, so that `--help` does not import torch.
"""
