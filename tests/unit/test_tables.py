"""The registry of output formats: every entry has a writer, and help and checks follow from it."""

import pytest

from carbon.cli import main
from carbon.errors import UserError
from carbon.io.tables import FORMATS, any_of, check_ending, chosen_by_ending

OF_COMMAND = {
    "score": "table",
    "next": "table",
    "compare": "table",
    "predict": "table",
    "variants": "variants",
    "design": "designs",
    "embed": "embeddings",
    "background": "background",
    "join": "joined parts",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_ending_has_a_writer_and_others_are_refused(kind):
    for ending in FORMATS[kind]:
        assert check_ending(f"a{ending}", kind) == ending
        assert callable(chosen_by_ending(f"a{ending}", kind))
    with pytest.raises(UserError, match=r"^a\.txt: end the output with one of \.") as refused:
        check_ending("a.txt", kind)
    assert all(ending in str(refused.value) for ending in FORMATS[kind])


@pytest.mark.parametrize("command", OF_COMMAND)
def test_help_lists_the_endings(command, capsys):
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert any_of(FORMATS[OF_COMMAND[command]]) in text


def test_the_name_of_a_track_chooses_it():
    assert check_ending("x.entropy_nats.bw", "scan") == ".entropy_nats.bw"
    assert check_ending("x.bw", "scan") == ".bw"
