"""Sequences that a measure likes: drawn by a model, judged by oracles.

- `oracles`, `asked`, `answers`: what measures; all but a callable in a process of its own.
- `goals`: what is wanted of a value, and which candidates are the best by several.
- `rules`, `sites`: what every design must keep to.
- `proposals`: whole sequences and windows that the model draws.
- `ways`: from what is measured to what is to be measured next.
- `search`: the loop over both.
- `known`: oracles whose best is known.
- `nearest`: the record of a corpus that a design is most like.
- `writers`, `job`: files, and the command.
- `rewards`, `tuning`, `tuned_model`, `tune_page`: the generator itself learns what oracles like.
"""
