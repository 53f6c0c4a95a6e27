"""Holds what was written against the JSON schema that describes it."""

import json
from pathlib import Path
from typing import Any

import jsonschema

ROOT = Path(__file__).parents[2]


def check_manifest(manifest: dict[str, Any]) -> None:
    """Fail unless the manifest of a corpus is as its schema says."""
    _check("data_pipeline/manifest.schema.json", manifest)


def check_run(folder: Path, *names: str) -> None:
    """Fail unless there are lines in these files of a run, and all are as their schema says."""
    lines = {
        name: [
            json.loads(line)
            for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        for name in names
    }
    assert all(lines.values()), lines
    _check("train/runs/lines.schema.json", lines)


def _check(schema: str, content: Any) -> None:
    told = json.loads((ROOT / schema).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(told)
    jsonschema.validate(content, told, jsonschema.Draft202012Validator)
