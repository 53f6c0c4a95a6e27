"""A stand-in for S3 on this machine, in the process that asks for it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from threading import Lock
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

NAME = "lab"
_put_object, _one_put = S3Response.put_object, Lock()


@wraps(_put_object)
def _put_alone(self: S3Response) -> Any:
    """Put an object as S3 does: no other put comes between its condition and its write."""
    with _one_put:
        return _put_object(self)


@contextmanager
def bucket() -> Iterator[Mapping[str, str]]:
    """Serve an empty bucket `lab`; what is yielded lets a client in this environment find it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with patch.object(S3Response, "put_object", _put_alone):
        server.start()
        host, port = server.get_host_and_port()
        environment = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": "nothing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        try:
            _make_bucket(environment)
            yield environment
        finally:
            server.stop()


def _make_bucket(environment: Mapping[str, str]) -> None:
    import boto3

    urlopen(Request(f"{environment['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")).close()

    client = boto3.client(
        "s3",
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id="nobody",
        aws_secret_access_key="nothing",
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=NAME)
