"""What the tests of curation share."""

import json

import pytest

from data_pipeline.__main__ import main
from data_pipeline.sources import SOURCES
from tests.helpers.curation import assembly, build


@pytest.fixture(scope="session")
def genome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sim") / "genome"
    assert main(["simulate", "--output", str(folder), "--genome-bp", "90000", "--seed", "2"]) == 0
    return folder


@pytest.fixture(scope="session")
def corpus(genome, tmp_path_factory):
    output = tmp_path_factory.mktemp("built") / "corpus"
    sources = json.dumps(list(SOURCES))
    settings = assembly(genome, sources=sources, species_type="inv")
    assert build(output, *settings, "cut.concatenated_bp=9000", "cut.chunk_bp=5000") == 0
    return output
