"""The public names and signatures, frozen in one file."""

from tests.helpers.surface import FILE, surface


def test_the_public_names_and_signatures_are_those_of_the_file():
    """After a change run `python -m tests.helpers.surface`, and describe it in CHANGELOG."""
    assert surface().splitlines() == FILE.read_text(encoding="utf-8").splitlines()
