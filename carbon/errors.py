"""What can go wrong by the user's hand.

UserError
  ConfigError      a TOML file or a --set that does not fit
  GenomeError      FASTA, GFF3/GTF, VCF, coordinates
  CorpusError      a corpus folder that is absent, torn or of another shape
  ModelError       a model folder or checkpoint that cannot be used

Every message is one line: where, what is wrong, what to do. Commands print it and exit with 2.
Anything else that escapes is our fault and keeps its traceback.
"""


class UserError(ValueError):
    """A mistake in what the user gave; its message is one line that says how to mend it."""


class ConfigError(UserError):
    """A configuration that names an unknown key, a wrong type or an impossible value."""


class GenomeError(UserError):
    """A sequence, annotation or variant file that is malformed or does not fit the others."""


class CorpusError(UserError):
    """A training corpus that is missing, incomplete or not in the documented layout."""


class ModelError(UserError):
    """A model folder or checkpoint that is missing, torn or of another kind."""
