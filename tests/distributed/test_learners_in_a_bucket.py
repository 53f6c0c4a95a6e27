"""Learners that have nothing in common but a bucket, of a stand-in for S3 on this machine."""

import json

import boto3
import pytest

from tests.helpers.bucket import NAME, bucket
from tests.helpers.mailbox import Mailbox


def keys_in(environment):
    client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
    found = client.list_objects_v2(Bucket=NAME).get("Contents", [])
    return {each["Key"] for each in found}


@pytest.mark.nightly
def test_a_bucket_has_the_bytes_of_a_folder(tmp_path, monkeypatch):
    """One learner is told to stop behind its first meeting, and comes back."""
    together = {"quorum": 2, "grace_seconds": 60.0}
    folder = Mailbox(tmp_path / "folder", **together)
    folder.ends(folder.learner(0), folder.learner(1))
    with bucket() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        run = Mailbox(
            tmp_path / "bucket", environment=environment,
            mailbox=f"s3://{NAME}/run", **together,
        )  # fmt: skip
        first, told = run.learner(0), run.learner(1, "told to stop")
        run.ends(told)
        assert "SIGTERM: saved" in told.said()
        run.ends(first, run.learner(1, "none", "--resume", "auto"))
        assert {"run/run.json", "run/meetings/000000.json"} <= keys_in(environment)
        client = boto3.client("s3")
        record = client.get_object(Bucket=NAME, Key="run/meetings/000002.json")["Body"].read()
        assert [told["learner"] for told in json.loads(record)["members"]] == [0, 1]
    assert run.digests(0, 1) == folder.digests(0, 1)
