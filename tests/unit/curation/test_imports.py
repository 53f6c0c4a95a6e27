"""What a build imports: all of it is waited for, whatever the size of the genome."""

import re
import subprocess
import sys

from tests.helpers.files import random_bases, write_fasta

SLOW = {"datatrove", "fsspec", "pandas", "requests", "scipy", "torch", "transformers"}


def test_a_build_imports_only_what_it_needs(tmp_path):
    """Each of those takes longer to import than a bacterium to read."""
    genome = write_fasta(tmp_path / "x.fa", {"c": random_bases(5000, 1)})
    settings = (f"output={tmp_path}/c", f"assemblies.0.genome={genome}", "keep.near_identity=1")
    words = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-v", "-m", "data_pipeline", "build", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = set(re.findall(r"^import '(\w+)'", done.stderr, flags=re.MULTILINE))
    assert {"numpy", "pyarrow", "pysam"} <= imported
    assert imported.isdisjoint(SLOW)
