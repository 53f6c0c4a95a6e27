"""Functions that make the workers of a command.

They are pickled by name, so this module imports no command-line library.
"""

import base64
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carbon.inference import Model
    from carbon.inference.embed import Float32s
    from carbon.inference.options import ScanOptions
    from carbon.inference.scan import ScanJob, ScanWorker
    from carbon.inference.score import SequenceScore
    from carbon.inference.sequence_job import SequenceWorker
    from carbon.inference.variants import VariantJob, VariantScorer
    from carbon.inference.variants.background_job import BackgroundJob, BackgroundScorer

Loading = dict[str, Any]
"""Keywords of `carbon.load`."""


def variant_scorer(job: "VariantJob", loading: Loading) -> "VariantScorer":
    """Return a worker of `carbon variants` with the model of a job."""
    from carbon.inference import load
    from carbon.inference.variants import VariantScorer

    return VariantScorer(load(job.model, **loading).runner, job)


def background_scorer(job: "BackgroundJob", loading: Loading) -> "BackgroundScorer":
    """Return a worker of `carbon background` with the model of a job."""
    from carbon.inference import load
    from carbon.inference.variants.background_job import BackgroundScorer

    return BackgroundScorer(load(job.model, **loading).runner, job)


def scan_worker(loading: Loading, job: "ScanJob", options: "ScanOptions") -> "ScanWorker":
    """Return a worker of `carbon scan` with the model of a job."""
    from carbon.inference import load
    from carbon.inference.scan import ScanWorker

    return ScanWorker(load(job.model, **loading).runner, job, options)


def scorer(
    model: str, loading: Loading, source: str, method: dict[str, Any], per_base: bool
) -> "SequenceWorker[SequenceScore]":
    """Return a worker that computes the likelihoods of sequences.

    Args:
        model: folder or name.
        loading: keywords of `carbon.load`.
        source: the file of the sequences, for messages.
        method: keywords of `Model.score`.
        per_base: whether the likelihood of each base is needed.
    """
    from carbon.inference import load
    from carbon.inference.score import packing_of
    from carbon.inference.sequence_job import SequenceWorker

    loaded = load(model, **loading)
    about = _about(model, loaded, method | {"dtype": loaded.dtype, "unit": "nats"})
    pack = packing_of(per_base=per_base)[0]
    return SequenceWorker(source, about, partial(loaded.score, **method), pack)


def embedder(
    model: str, loading: Loading, source: str, method: dict[str, Any]
) -> "SequenceWorker[Float32s]":
    """Return a worker that computes the embeddings of sequences.

    Args:
        model: folder or name.
        loading: keywords of `carbon.load`.
        source: the file of the sequences, for messages.
        method: keywords of `Model.embed`.
    """
    from carbon.inference import load
    from carbon.inference.sequence_job import SequenceWorker

    loaded = load(model, **loading)
    width = loaded.model.network.config.hidden_size
    about = _about(model, loaded, method | {"dtype": loaded.dtype, "width": width})
    return SequenceWorker(source, about, partial(loaded.embed, **method), _packed)


def _about(model: str, loaded: "Model", settings: dict[str, Any]) -> dict[str, Any]:
    from carbon.inference.identity import identity_of

    return {
        "settings": {"model": model, "yarn": loaded.yarn, **settings},
        "identity": identity_of(loaded.runner, model),
    }


def _packed(vector: "Float32s") -> str:
    return base64.b64encode(vector.tobytes()).decode()
