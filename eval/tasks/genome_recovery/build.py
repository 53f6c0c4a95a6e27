"""Sites of held-out records: prompts and the bases that follow."""

from collections import Counter
from pathlib import Path

from carbon.inference.held_out import LEAST_PROMPT_BP, MOST_PROMPT_BP, TARGET_BP, choose_sites
from eval.contract import BuildReport
from eval.tasks.common.building import write_dataset
from eval.tasks.common.held_out import HeldOutRecords


def build(
    output: Path,
    *,
    corpus: Path,
    corpus_source: str | None = None,
    num_examples: int = 1000,
    seed: int = 0,
) -> BuildReport:
    """Draw sites from held-out records, in proportion to the number of possible sites in each.

    A prompt is the record up to the site, at most 6,144 bases, cut on the left to a multiple of
    120, so that prompts share a few lengths.

    Args:
        output: Parquet to write.
        corpus: folder of a corpus with held-out records.
        corpus_source: its source; by default eukaryote, or the first that holds records out.
        num_examples: most sites.
        seed: of the draw.

    Raises:
        UserError: nothing is held out, or no record is long enough.
    """
    records = HeldOutRecords(corpus, corpus_source)
    sites = choose_sites(records.test, num_examples, MOST_PROMPT_BP, seed)
    short = sum(len(record) < LEAST_PROMPT_BP + TARGET_BP for record in records.test)
    dropped = Counter(
        {
            "record_shorter_than_a_site": short,
            "site_wanted_and_not_found": num_examples - len(sites),
        }
    )
    rows = ({"sequence": prompt, "label": target} for prompt, target in sites)
    settings = {
        "task": "genome_recovery",
        "source": records.source,
        "num_examples": num_examples,
        "seed": seed,
    }
    return write_dataset(output, rows, dropped, [corpus / "manifest.json"], settings)
