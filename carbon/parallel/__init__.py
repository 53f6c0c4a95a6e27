"""Jobs cut into blocks: one driver, one journal, and workers of this machine or of a Ray cluster.

- `driver`: reads the input, hands out blocks, journals results, and writes them in input order.
- `journal`: the file beside the output with a line for each computed block.
- `engines`: the interface of an engine, the worker's side of it, and the engine of one process.
- `local`: workers as processes of this machine.
- `ray`: workers as Ray actors.
- `options`: the options of a command line, and the engine they choose.

The driver never imports torch and never loads a model. A worker does, in its own process.
"""
