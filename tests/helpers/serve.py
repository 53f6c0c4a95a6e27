"""A server of a model, for tests that come to it from outside."""

import threading
import time
from contextlib import contextmanager

from carbon.serve import ConnectionLimits, ServeOptions, make_app, make_server
from carbon.serve.server import bind
from tests.helpers.files import random_bases

BASES = random_bases(900, 21)


@contextmanager
def serving(model, limits=None, **options):
    """Yield the address of a server, which has ended its work when this ends."""
    server = make_server(make_app(model, ServeOptions(**options)), limits or ConnectionLimits())
    listening = bind("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
