"""Fine-tuned models: predict, load and save."""

import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from safetensors.torch import load_file
from torch import nn
from typing_extensions import TypedDict

from carbon.devices import random_numbers_kept
from carbon.errors import ModelError, UserError, abridged
from carbon.finetune.config import TOO_LONG, MethodConfig
from carbon.finetune.folder import (
    ADAPTER,
    HEAD,
    MODEL,
    Manifest,
    read_manifest,
    weights_sha256,
    write_manifest,
)
from carbon.finetune.network import (
    Averager,
    Batch,
    FinetunedNetwork,
    Head,
    OpenedModel,
    num_alleles,
)
from carbon.finetune.probe import Linear
from carbon.finetune.split import Examples, Input, input_bp, sequences_of
from carbon.finetune.tasks import LabelTask
from carbon.inference.checks import checked_dna
from carbon.inference.options import STRANDS_READ, Dtype, Strands, check_choice
from carbon.inference.score import blocks
from carbon.io.structured import read_json
from carbon.model import LoadedModel, model_folder
from carbon.model.folder import check_tensors
from carbon.model.load import check_finite_weights
from carbon.model.save import no_bars
from carbon.tokenizer import KmerVocabulary

Floats32 = NDArray[np.float32]


class EnsembleNetwork(nn.Module):
    """Networks of several seeds, whose logits are concatenated: (rows, seeds x outputs)."""

    def __init__(self, members: Sequence[FinetunedNetwork]) -> None:
        """Store the networks."""
        super().__init__()
        self.members = nn.ModuleList(members)

    @property
    def backbone(self) -> Any:
        """The decoder of the first network, for its configuration."""
        return self.members[0].backbone

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the logits of all networks side by side."""
        return torch.cat([member(batch) for member in self.members], dim=1)


class FinetunedModel:
    """A fine-tuned model, ready to predict; of several seeds, the mean of their logits.

    Attributes:
        network: in evaluation mode.
        vocabulary: vocabulary of the embedding rows.
        manifest: content of `finetune.json`.
        room_bp: bases of the longest sequence that it reads whole.
        averager: reads sequences in batches.
    """

    def __init__(
        self, network: FinetunedNetwork, vocabulary: KmerVocabulary, manifest: Manifest
    ) -> None:
        """Wrap a network; use `carbon.load_finetuned` to load one."""
        self.network, self.vocabulary, self.manifest = network, vocabulary, manifest
        task = manifest.task
        self.averager = Averager(
            network,
            _plain(network.backbone),
            vocabulary,
            manifest.pool,
            task.num_outputs * self.num_networks,
            per_base=task.per_base,
        )
        self.room_bp = self.averager.room_bp

    @property
    def task(self) -> LabelTask:
        """The task."""
        return self.manifest.task

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the predictions."""
        return self.task.output_names

    @property
    def num_networks(self) -> int:
        """Networks that read each sequence: the members of an ensemble, or one."""
        return len(self.manifest.members) or 1

    def predict(
        self,
        sequences: Iterable[Input],
        *,
        strands: Strands | None = None,
        too_long: str | None = None,
        with_sd: bool = False,
    ) -> Iterator[Floats32]:
        """Yield the prediction of each sequence, in order: probabilities, or numbers in their unit.

        Args:
            sequences: DNA of any case; memory does not grow with their number. A model that reads
                both alleles of a variant takes pairs: the window with REF, and with ALT.
            strands: read the sequence, its reverse complement, or `both`: then logits are averaged,
                and a sequence and its reverse complement have the same prediction. None takes the
                recipe's setting, `both` by default.
            too_long: `refuse`, `truncate` or `tile` sequences longer than the context. None takes
                the recipe's setting.
            with_sd: append to the outputs the SD of each one over the members of an ensemble, with
                Bessel's correction.

        Yields:
            (outputs,) float32 for each sequence, or (bases, outputs) for a label of every base;
            twice as many outputs with SDs. NaN if no base is known, and for bases that were cut
            off.

        Raises:
            TypeError: `sequences` is a single string or a file name, or an item is not a string.
            UserError: an option is invalid, a sequence is too long, it has a letter that is not
                DNA, or SDs are requested of a single network.
        """
        strands = strands or self.manifest.strands
        if self.reads_pairs and too_long not in (None, "refuse"):
            raise UserError(
                f"too_long = '{too_long}': this model reads both alleles of a variant whole; take "
                "it out"
            )
        too_long = too_long or self.manifest.too_long
        check_choice("strands", strands, STRANDS_READ)
        check_choice("too_long", too_long, TOO_LONG)
        if with_sd and self.num_networks == 1:
            raise UserError("with_sd: the model is a single network; train one with several seeds")
        check: Any = _checked_alleles if self.reads_pairs else checked_dna
        return self._predicted(check(sequences), strands, too_long, with_sd)

    @property
    def reads_pairs(self) -> bool:
        """Whether it reads both alleles of a variant."""
        return num_alleles(self.manifest.variant_input) > 1

    def _predicted(
        self, sequences: Iterable[Input], strands: Strands, too_long: str, with_sd: bool
    ) -> Iterator[Floats32]:
        num_done = 0
        for block in blocks(sequences, input_bp):
            names = [f"sequence {num_done + n}" for n in range(1, len(block) + 1)]
            yield from self.predict_block(block, names, strands, too_long, with_sd=with_sd)
            num_done += len(block)

    def predict_block(
        self,
        sequences: Sequence[Input],
        names: Sequence[str],
        strands: Strands,
        too_long: str,
        *,
        with_sd: bool = False,
    ) -> list[Floats32]:
        """Predict a list of sequences like `predict`; names appear in messages.

        With `with_sd`, the SD of each output over the members of an ensemble follows the outputs,
        with Bessel's correction: (2 x outputs,), or (bases, 2 x outputs).
        """
        if self.reads_pairs:
            _check_pairs(sequences, names)
        if too_long == "refuse" or self.reads_pairs:
            self.check_lengths(sequences, names)
        logits = self._member_logits(sequences, strands, tile=too_long == "tile")
        if self.task.per_base:
            return [self._predictions(each, with_sd) for each in logits]
        return [self._predictions(each[None], with_sd)[0] for each in logits]

    def _predictions(self, logits: NDArray[np.float64], with_sd: bool) -> Floats32:
        """Return the predictions of (rows, members, outputs), with the SD if requested."""
        means = self.task.predictions(logits.mean(axis=1))
        if not with_sd:
            return means
        members = [self.task.predictions(each) for each in logits.swapaxes(0, 1)]
        return np.concatenate([means, np.std(members, axis=0, ddof=1)], axis=1)

    def check_lengths(self, sequences: Sequence[Input], names: Sequence[str]) -> None:
        """Raise UserError if a sequence does not fit into the context."""
        remedy = (
            "give shorter windows"
            if self.reads_pairs
            else "shorten the sequence, or set too_long to truncate or tile"
        )
        for name, sequence in zip(names, sequences, strict=True):
            if (length_bp := input_bp(sequence)) > self.room_bp:
                raise UserError(
                    f"{name}: has {length_bp} bp, the model reads {self.room_bp}; {remedy}"
                )

    def logits(
        self, sequences: Sequence[Input], strands: Strands = "both", *, tile: bool = False
    ) -> list[NDArray[np.float64]]:
        """Return mean logits, (outputs,) each or (bases, outputs); truncate without `tile`."""
        logits = self._member_logits(sequences, strands, tile=tile)
        return [each.mean(axis=-2) for each in logits]

    def _member_logits(
        self, sequences: Sequence[Input], strands: Strands, *, tile: bool
    ) -> list[NDArray[np.float64]]:
        """Return the logits of each member, (members, outputs) or (bases, members, outputs)."""
        means = self.averager.means(sequences, strands, tile=tile)
        shape = self.num_networks, self.task.num_outputs
        return [each.reshape(*each.shape[:-1], *shape) for each in means]


def _check_pairs(inputs: Sequence[Input], names: Sequence[str]) -> None:
    """Raise UserError unless each input has both alleles of a variant."""
    for name, item in zip(names, inputs, strict=True):
        if isinstance(item, str):
            raise UserError(
                f"{name}: this model reads both alleles of a variant; give a VCF, or pairs "
                "(ref, alt) of windows"
            )


def _checked_alleles(inputs: Iterable[Input]) -> Iterator[Input]:
    """Return an iterator that checks the letters of each input when it is reached."""
    for item in inputs:
        checked = tuple(checked_dna(sequences_of(item)))
        yield (checked[0], checked[1]) if len(checked) == 2 else checked[0]


def _plain(backbone: Any) -> Any:
    """Return the stock decoder inside a peft adapter."""
    inside = getattr(backbone, "get_base_model", None)
    return inside() if inside else backbone


class ValidationScore(NamedTuple):
    """Score and loss on a set of examples.

    Attributes:
        score: selects checkpoints; higher is better.
        loss: the training loss.
    """

    score: float
    loss: float


def validate(
    finetuned: FinetunedModel, examples: Examples, method: MethodConfig
) -> ValidationScore:
    """Score predictions over all processes, as `carbon predict` makes them."""
    task = finetuned.task
    logits = logits_of(finetuned, examples, method)
    score = task.score(task.unsaturated(logits), examples.labels)
    known = ~np.isnan(examples.labels).all(axis=1)  # bases that are not read have no logits
    targets = torch.from_numpy(task.targets(examples.labels[known]))
    loss = task.loss_of(torch.from_numpy(logits[known]), targets, alone=True)
    return ValidationScore(score, float(loss))


def logits_of(
    finetuned: FinetunedModel, examples: Examples, method: MethodConfig
) -> NDArray[np.float64]:
    """Return logits of examples, (rows, outputs), on every process."""
    is_shared = dist.is_available() and dist.is_initialized()
    rank, number = (dist.get_rank(), dist.get_world_size()) if is_shared else (0, 1)
    was_training = finetuned.network.training
    finetuned.network.eval()
    share = finetuned.logits(
        examples.inputs[rank::number],
        method.strands,
        tile=method.too_long == "tile",
    )
    finetuned.network.train(was_training)
    shares: list[Any] = [share]
    if is_shared:
        shares = [None] * number
        dist.all_gather_object(shares, share)
    width = finetuned.task.num_outputs
    rows = [shares[n % number][n // number].reshape(-1, width) for n in range(len(examples))]
    return np.concatenate([np.zeros((0, width)), *rows])


_REMEDY = "copy the folder again"


class AdapterConfig(TypedDict):
    """`adapter_config.json` of peft, whose names of modules are a list: text would be a pattern.

    A regular expression from a file is not executed, because it can take for ever.
    """

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    target_modules: Annotated[list[str], Field(min_length=1)]
    r: PositiveInt
    lora_alpha: PositiveInt | PositiveFloat


# Settings that change neither the names, the shapes nor the values of an adapter's weights.
_FREE = {
    *("peft_version", "base_model_name_or_path", "revision", "auto_mapping", "task_type"),
    *("inference_mode", "lora_dropout", *AdapterConfig.__annotations__),
}


@random_numbers_kept()  # new heads and adapters are drawn before their weights are read
def load_finetuned(
    folder: str | Path,
    *,
    base: str | Path | None = None,
    device: str = "auto",
    dtype: Dtype = "float32",
) -> FinetunedModel:
    """Load a folder that `carbon finetune` wrote.

    Args:
        folder: with `finetune.json`.
        base: folder of the base model, if it was moved; unused for `full`.
        device: `cpu`, `cuda`, or `auto`.
        dtype: of the backbone; the head is float32.

    Raises:
        ModelError: the folder is damaged, or the base model is absent or has other weights.
        UserError: the device is not available.
    """
    from carbon.inference import load

    folder = Path(folder)
    manifest = read_manifest(folder)
    if manifest.members:
        models = [
            load_finetuned(folder / name, base=base, device=device, dtype=dtype)
            for name in manifest.members
        ]
        ensemble: Any = EnsembleNetwork([model.network for model in models])
        return FinetunedModel(ensemble.eval(), models[0].vocabulary, manifest)
    source = folder / MODEL if manifest.method == "full" else _base_of(folder, manifest, base)
    model = load(source, device=device, dtype=dtype).model
    opened = OpenedModel(model, manifest.layer)
    backbone: nn.Module = opened.backbone
    if manifest.method == "lora":
        backbone = _with_adapter(opened.backbone, folder / ADAPTER)
    head = read_head(folder, manifest, opened.backbone.config.hidden_size)
    network = network_for(backbone, head, manifest)
    return FinetunedModel(network.to(model.network.device).eval(), model.vocabulary, manifest)


def _base_of(folder: Path, manifest: Manifest, base: str | Path | None) -> Path:
    """Return the folder of the base model after checking the hash of its weights."""
    source: Any = base or manifest.base
    if not base and not Path(source).exists() and (folder / source).exists():
        source = folder / source
    try:
        source_folder = model_folder(source).path
    except ModelError as error:
        if base:
            raise
        raise ModelError(
            f"{error} (the base model of {folder}; give its folder with --base)"
        ) from None
    if weights_sha256(source_folder) != manifest.base_sha256:
        raise ModelError(
            f"{folder}: was fine-tuned from other weights than {source} has; give its base model, "
            f"whose SHA-256 begins with {manifest.base_sha256[:12]}, with --base"
        )
    return source_folder


def _with_adapter(backbone: Any, folder: Path) -> nn.Module:
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{folder}: needs peft; install carbon-dna[finetune]") from None
    config = _adapter_config(folder / "adapter_config.json")
    check_tensors(folder / "adapter_model.safetensors", dict(_adapter_shapes(backbone, config)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses an old name of transformers
        adapted = PeftModel.from_pretrained(backbone, str(folder), config=config)
    check_finite_weights(adapted, folder)
    return adapted


def _adapter_config(path: Path) -> Any:
    """Return the peft configuration of a file whose other settings are the defaults of peft."""
    from peft import LoraConfig

    try:
        given = read_json(path, AdapterConfig, error=ModelError, remedy=_REMEDY)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; {_REMEDY}") from None
    defaults: Any = LoraConfig()
    plain = defaults.to_dict()
    for name in sorted(given.keys() & plain.keys() - _FREE):
        if given[name] != plain[name]:  # type: ignore[literal-required]
            value = abridged(repr(given[name]))  # type: ignore[literal-required]
            raise ModelError(f"{path}: {name} is {value}, expected {plain[name]!r}; {_REMEDY}")
    return LoraConfig(
        r=given["r"],
        lora_alpha=given["lora_alpha"],  # type: ignore[arg-type]  # peft multiplies by it only
        target_modules=given["target_modules"],
        inference_mode=True,
    )


def _adapter_shapes(backbone: nn.Module, config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of each tensor that peft saves for the linear modules of a target."""
    endings = tuple(f".{name}" for name in config.target_modules)
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Linear) and f".{name}".endswith(endings):
            yield f"base_model.model.{name}.lora_A.weight", (config.r, module.in_features)
            yield f"base_model.model.{name}.lora_B.weight", (module.out_features, config.r)


def head_for(manifest: Manifest, width: int) -> Head:
    """Return a head for a model of this width."""
    alleles = num_alleles(manifest.variant_input)
    joined, of_token = (2, manifest.k) if manifest.task.per_base else (alleles, 1)
    num_outputs = manifest.task.num_outputs * of_token
    return Head(width * joined, num_outputs, norm=manifest.norm, parts=alleles)


def network_for(backbone: nn.Module, head: Head, manifest: Manifest) -> FinetunedNetwork:
    """Return the network of a manifest."""
    return FinetunedNetwork(
        backbone,
        head,
        per_base=manifest.task.per_base,
        variant_input=manifest.variant_input,
        k=manifest.k,
    )


def read_head(folder: Path, manifest: Manifest, width: int) -> Head:
    """Read the head.

    Raises:
        ModelError: the file is absent or truncated, or its tensors do not fit `finetune.json`.
    """
    path, head = folder / HEAD, head_for(manifest, width)
    check_tensors(path, {name: tuple(x.shape) for name, x in head.state_dict().items()})
    head.load_state_dict(load_file(path))
    check_finite_weights(head, path)
    return head


def with_linear(
    model: LoadedModel, linear: Linear, manifest: Manifest
) -> tuple[FinetunedModel, OpenedModel]:
    """Return a model whose head is a fitted linear map."""
    opened = OpenedModel(model, manifest.layer)
    head = head_for(manifest, opened.backbone.config.hidden_size)
    with torch.no_grad():
        head.linear.weight.copy_(torch.from_numpy(linear.weights))
        head.linear.bias.copy_(torch.from_numpy(linear.bias))
    network = network_for(opened.backbone, head, manifest)
    return FinetunedModel(
        network.to(model.network.device).eval(), model.vocabulary, manifest
    ), opened


def write_finetuned(
    folder: Path, network: FinetunedNetwork, opened: OpenedModel, manifest: Manifest
) -> None:
    """Write a fine-tuned network into an existing folder; `full` restores the opened model.

    Args:
        folder: folder to write to.
        network: the network.
        opened: the model that has its backbone.
        manifest: content of `finetune.json`; its `base` is the base model's folder.
    """
    from safetensors.torch import save_file

    tensors = {name: x.detach().cpu().contiguous() for name, x in network.head.state_dict().items()}
    save_file(tensors, folder / HEAD)
    if manifest.method == "lora":
        backbone: Any = network.backbone
        backbone.save_pretrained(str(folder / ADAPTER), save_embedding_layers=False)
        (folder / ADAPTER / "README.md").unlink(missing_ok=True)  # an empty template
    if manifest.method == "full":
        _write_model(folder / MODEL, opened, model_folder(manifest.base).path)
    write_manifest(folder, manifest)


def _write_model(folder: Path, opened: OpenedModel, base: Path) -> None:
    """Write weights and config, and copy other files, such as the tokenizer, from the base."""
    network = opened.closed()
    with no_bars():
        network.save_pretrained(folder)
    for path in base.iterdir():
        is_weights = path.name.startswith("model") and "safetensors" in path.name
        is_ours = path.name.startswith(".") or path.name in ("config.json", "background.json")
        if path.is_file() and not is_weights and not is_ours:
            shutil.copyfile(path, folder / path.name)
