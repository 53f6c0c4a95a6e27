"""What the tests of curation share."""

from carbon.corpus import read_source
from data_pipeline.__main__ import main
from data_pipeline.sources import SOURCES, need_annotation

CUT_FROM_GENES = [source for source in SOURCES if need_annotation([source])]


def build(output, *settings):
    words = [w for item in (f"output={output}", *settings) for w in ("--set", item)]
    return main(["build", *words])


def assembly(folder, number=0, **settings):
    settings = {"genome": f"{folder}/genome.fa", "annotation": f"{folder}/genes.gff3"} | settings
    return [f"assemblies.{number}.{key}={value}" for key, value in settings.items()]


def rows_of(corpus, source):
    return [row for s in ("train", "test") for row in read_source(corpus, source, s).to_pylist()]
