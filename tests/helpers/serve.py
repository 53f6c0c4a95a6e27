"""A server of a model, for tests that come to it from outside."""

import threading
import time
from contextlib import contextmanager

import uvicorn

from carbon.serve import ServeOptions, make_app
from tests.helpers.files import random_bases

BASES = random_bases(900, 21)


@contextmanager
def serving(model, **options):
    """Yield the address of a server, which has ended its work when this ends."""
    config = uvicorn.Config(make_app(model, ServeOptions(**options)), port=0, log_level="error")
    server, listening = uvicorn.Server(config), config.bind_socket()
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
