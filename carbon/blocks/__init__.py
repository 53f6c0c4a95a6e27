"""Work that many processes share, on one machine or on many, without a server.

- `work`: a job as blocks; done by one process through a journal, by many through a folder.
- `journal`: the file beside the output, with a line for a block that one process has done.
- `folder`: the folder beside the output, with a file for the blocks that are done.
- `claims`: who is at what, so that little is done twice.
- `crew`: the processes that a command starts on its machine, and those that a launcher has started.
- `launches`: what the environment says of the latter.
"""
