"""An adapted model as an oracle, in its own process, against what it predicts here."""

import pytest

from carbon.adapt.config import WayConfig
from carbon.adapt.loading import load_adapted, write_adapted
from carbon.design.oracles import started
from carbon.errors import UserError
from tests.helpers.adapt import BASES, BINARY, NUMBERS, adapted_of, base_folder
from tests.helpers.files import random_bases

SEQUENCES = [random_bases(60, seed=n) for n in range(5)]
NAMES = [f"design_{n}" for n in range(1, 6)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, network):
    root = tmp_path_factory.mktemp("adapted")
    for question in (BINARY, NUMBERS, BASES):
        adapted, opened = adapted_of(base_folder(root, network), question, WayConfig(name="full"))
        (root / question.kind).mkdir()
        write_adapted(root / question.kind, adapted.network, opened, adapted.manifest)
    return root


def test_it_gives_what_is_predicted(folders):
    (oracle,) = started([f"adapted:{folders}/numbers:b"], 120)
    found = oracle.values(NAMES, SEQUENCES)
    oracle.close()
    predicted = list(load_adapted(folders / "numbers").predict(SEQUENCES))
    assert oracle.name == "b"
    assert found == pytest.approx([float(each[1]) for each in predicted], abs=1e-6)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("numbers", "predicts a, b; say which: adapted:"),
        ("binary:no", "predicts yes; say which"),
        ("bases:no", "predicts every base"),
    ],
)
def test_what_is_no_one_number(folders, what, message):
    with pytest.raises(UserError) as raised:
        started([f"adapted:{folders}/{what}"], 120)
    assert message in str(raised.value) and "\n" not in str(raised.value)
