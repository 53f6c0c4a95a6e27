"""Workers that have nothing in common but a bucket of a stand-in for S3 on this machine."""

import json

import boto3
import pytest

from tests.helpers.bucket import NAME, bucket
from tests.helpers.shared_store import SharedRun


def keys_in(environment):
    client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
    found = client.list_objects_v2(Bucket=NAME).get("Contents", [])
    return {each["Key"] for each in found}


@pytest.mark.nightly
def test_a_bucket_has_the_bytes_of_a_folder(tmp_path, monkeypatch):
    """One worker is asked to stop after its first round, and comes back."""
    together = {"quorum": 2, "grace_seconds": 60.0}
    folder = SharedRun(tmp_path / "folder", **together)
    folder.ends(folder.worker(0), folder.worker(1))
    with bucket() as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        run = SharedRun(
            tmp_path / "bucket", environment=environment,
            store=f"s3://{NAME}/run", **together,
        )  # fmt: skip
        first, asked = run.worker(0), run.worker(1, "asked to stop")
        run.ends(asked)
        assert "SIGTERM: saved" in asked.said()
        run.ends(first, run.worker(1, "none", "--resume", "auto"))
        assert {"run/run.json", "run/rounds/000000.json"} <= keys_in(environment)
        client = boto3.client("s3")
        record = client.get_object(Bucket=NAME, Key="run/rounds/000002.json")["Body"].read()
        assert [report["worker"] for report in json.loads(record)["members"]] == [0, 1]
    assert run.digests(0, 1) == folder.digests(0, 1)
