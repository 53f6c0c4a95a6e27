"""What the tests of serve share: a server on a free port, and a genome that it has."""

import httpx
import pytest

from carbon.genome import Reference
from tests.helpers.files import write_fasta
from tests.helpers.serve import BASES, serving


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    bases = BASES[:500] + "N" + BASES[501:]
    return Reference(write_fasta(tmp_path_factory.mktemp("serve") / "r.fa", {"c": bases}))


@pytest.fixture(scope="module")
def address(model, reference):
    with serving(
        model, name="tiny", reference=reference, most_tokens=5_000, most_items=40
    ) as found:
        yield found


@pytest.fixture(scope="module")
def ask(address):
    """Post a question and return the answer."""

    def post(path, expected=200, **question):
        answer = httpx.post(address + path, json=question, timeout=60)
        assert answer.status_code == expected, answer.text
        return answer.json()

    return post
