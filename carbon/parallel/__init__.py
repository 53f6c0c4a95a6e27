"""Run jobs in blocks: one driver, one journal, and workers on this machine or a Ray cluster.

- `driver`: reads the input, distributes blocks, journals results, and writes them in input order.
- `journal`: the file next to the output with a line for each computed block.
- `engines`: the interface of an engine, the worker's side, and the engine of one process.
- `local`: workers as processes of this machine.
- `ray`: workers as Ray actors.
- `options`: command-line options, and the engine that they select.

The driver never imports torch and never loads a model; each worker does, in its own process.
"""
