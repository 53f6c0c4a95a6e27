"""Files of `carbon background`: scores of drawn variants, with the settings they are valid for."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from carbon.errors import UserError
from carbon.inference.identity import model_settings_of
from carbon.io.files import atomic_file, why_no_file
from carbon.io.structured import JSON_OBJECT, read_json

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

_SUM = "sha256"
_MOST_CONTIGS = 100
CONTIGS = "contig_lengths_bp"
"""Entry of `drawn`: lengths of the longest contigs that variants were drawn from."""


def longest_contigs(
    contig_lengths_bp: Mapping[str, int], draw_from: Iterable[str]
) -> dict[str, int]:
    """Return the lengths of the longest contigs that variants are drawn from."""
    lengths_bp = [(name, contig_lengths_bp[name]) for name in draw_from or contig_lengths_bp]
    return dict(sorted(lengths_bp, key=lambda each: -each[1])[:_MOST_CONTIGS])


class BackgroundFile:
    """Scores of drawn variants, as JSON with a checksum.

    Attributes:
        made_by: the command that writes such a file.
        format_name: name and version of the format.
        settings: model and method that scored the variants; scores with other settings are refused.
        drawn: how the variants were drawn, for the record.
    """

    made_by: ClassVar[str]
    format_name: ClassVar[str]

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Take the content of a file, without its checksum."""
        self._content = content
        self.settings: dict[str, Any] = content["settings"]
        self.drawn: dict[str, Any] = content["drawn"]

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file.

        Raises:
            UserError: it is absent, torn, changed by hand, or of another version of the format.
        """
        if not Path(path).is_file():
            raise UserError(f"{path}: {why_no_file(path)}; `{cls.made_by}` writes one")
        try:
            content = read_json(path, JSON_OBJECT)
        except UserError:
            content = {}
        if content.get("format") != cls.format_name:
            raise UserError(
                f"{path}: is torn or no file of `{cls.made_by}` of this version; make it again"
            )
        if content.pop(_SUM, None) != _sum_of(content):
            raise UserError(f"{path}: is damaged or changed by hand; make it again")
        cls._check(path, content)
        return cls(content)

    @classmethod
    def _check(cls, path: str | Path, content: Mapping[str, Any]) -> None:
        """Raise UserError if an undamaged file cannot be used."""

    def write(self, path: str | Path) -> None:
        """Write the file, which appears when complete."""
        with atomic_file(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of the file: JSON, one line a kind."""
        content = {**self._content, _SUM: _sum_of(self._content)}
        lines = [f"{json.dumps(name)}: {_lines(value)}" for name, value in content.items()]
        return ("{\n" + ",\n".join(lines) + "\n}\n").encode()

    @property
    def tolerances(self) -> dict[str, dict[str, Any]]:
        """Effect of other dtypes on deltas and percentiles, by dtype.

        `delta`, in nats, and `percentile`, in points, bound the change for 95 % of `variants`
        variants; `weights_sha256` is the checksum of the rounded weights.
        """
        tolerances: dict[str, dict[str, Any]] = self._content.get("tolerances", {})
        return tolerances

    def why_other(self, settings: Mapping[str, Any]) -> str | None:
        """Return which setting of a scoring differs first from the background's, with a remedy.

        None if all settings agree.

        A dtype with a tolerance is accepted.
        """
        others = json.loads(json.dumps(settings))
        own = self.settings
        if tolerance := self.tolerances.get(others.get("dtype")):
            rounded = {"dtype": others["dtype"], "weights_sha256": tolerance["weights_sha256"]}
            own = own | rounded
        for name in others | own:
            of_background, of_scoring = own.get(name), others.get(name)
            if of_background != of_scoring:
                other = f"was made with {name} {of_background}, not {name} {of_scoring}"
                if name in _OTHERS:
                    other = f"was computed with other {_OTHERS[name]}"
                if name in ("k", *_OTHERS) and (model := self.drawn.get("model")):
                    other += f", by {model}"
                return f"{other}; use its settings, or create a background with these settings"
        return None

    def why_other_genome(
        self, contig_lengths_bp: Mapping[str, int], genetic_code: str | None
    ) -> str | None:
        """Return how a genome differs from the one that the variants were drawn from, or None.

        A reference may have some of the contigs. Files of earlier versions state no contigs.

        Args:
            contig_lengths_bp: length by contig of the reference of a scoring.
            genetic_code: its `--genetic-code`, or None.
        """
        drawn_bp: dict[str, int] = self.drawn.get(CONTIGS, {})
        shared = [contig for contig in drawn_bp if contig in contig_lengths_bp]
        if drawn_bp and not shared:
            return f"the reference has none of its contigs, such as {next(iter(drawn_bp))}"
        for contig in shared:
            own_bp, other_bp = drawn_bp[contig], contig_lengths_bp[contig]
            if own_bp != other_bp:
                return f"its contig {contig} has {own_bp:,} bp, that of the reference {other_bp:,}"
        own_code, has_codes = self.drawn.get("genetic_code"), "annotation" in self.drawn
        if has_codes and own_code != genetic_code:
            names = [code or "of the annotation" for code in (own_code, genetic_code)]
            return f"its genetic code is {names[0]}, that of this run {names[1]}"
        return None

    def check(self, settings: Mapping[str, Any], name: str) -> None:
        """Raise UserError if scores with these settings have other deltas; `name` is the file."""
        if why := self.why_other(settings):
            raise UserError(f"{name}: {why}")

    def check_model(self, runner: "ModelRunner", name: str) -> None:
        """Raise UserError if scores of a model have other deltas with every method."""
        self.check(self.settings | model_settings_of(runner), name)


_OTHERS = {"weights_sha256": "model weights", "tokens_sha256": "tokens of the model"}
"""What differs if a checksum does."""


def _sum_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _lines(value: Any) -> str:
    """Format an object with one line a key, and any other value in one line."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, separators=(",", ":"))
    inside = (f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in value.items())
    return "{\n" + ",\n".join(inside) + "\n}"
