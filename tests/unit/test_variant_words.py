"""What a delta says in words."""

import pytest

from demo.words import in_words


@pytest.mark.parametrize(
    ("delta", "said"),
    [
        (-13.8, "ALT is about 980,000 times less likely than REF"),
        (3.86, "ALT is about 47 times more likely than REF"),
        (0.08, "ALT is about as likely as REF"),
        (-0.0, "ALT is about as likely as REF"),
        (-30.0, "ALT is about 11 trillion times less likely than REF"),
        (-2000.0, "ALT is about 10^304 times less likely than REF"),
    ],
)
def test_a_delta_in_words(delta, said):
    assert in_words(delta) == said


def test_strands_that_disagree_say_nothing():
    """The demo reads one k-mer offset, so that only strands can disagree."""
    said = "the strands disagree about which allele is likelier"
    assert in_words(-13.8, True) == said
    assert in_words(0.0, None) == "ALT is about as likely as REF"  # one strand alone was read
