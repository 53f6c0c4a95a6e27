"""A job in blocks that is stopped on the way."""

from carbon.blocks.folder import BlockFolder


class Stopped(BaseException):
    """Stands for a kill."""


def stop_once_behind(monkeypatch, number: int) -> list[int]:
    """Have the next block but so many stopped before it is written; return those written, to fill.

    What comes behind the stop is written, and listed too.
    """
    write, written, stops = BlockFolder.write, [], [Stopped()]

    def write_or_stop(self, block, results):
        if stops and len(written) == number:
            raise stops.pop()
        written.append(block)
        write(self, block, results)

    monkeypatch.setattr(BlockFolder, "write", write_or_stop)
    return written
