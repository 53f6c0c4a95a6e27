"""Models of the Hub as folders of its cache, and a short message if it cannot be reached."""

from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from carbon.errors import ModelError

_SECONDS_TO_ANSWER = 5.0
_CONFIG = ("config.json",)
_FILES = (
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "dna_config.json",
    "background.json",
)


class Published(NamedTuple):
    """A model on the Hub.

    Attributes:
        name: `owner/name`.
        num_parameters: of the network.
        gigabytes: size of the download, mostly weights in bfloat16.
    """

    name: str
    num_parameters: int
    gigabytes: float


# Sizes: the technical report's table 3 and the Hub's lists of files.
PUBLISHED = (
    Published("HuggingFaceBio/Carbon-500M", 511_894_528, 1.02),
    Published("HuggingFaceBio/Carbon-3B", 3_451_444_224, 6.90),
    Published("HuggingFaceBio/Carbon-8B", 8_255_705_088, 16.51),
)


def cached_folder(name: str) -> Path | None:
    """Return the cached folder with a model's config and weights, without asking the Hub."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and any(folder.glob("model*.safetensors")) else None


@cache
def hub_folder(name: str, *, with_weights: bool) -> Path:
    """Return the cached folder with a model's config, or with all of its files.

    The Hub is asked for a newer version; if it cannot be reached, the cached one is used.

    Raises:
        ModelError: there is no such model, or the Hub cannot be reached and the cache lacks it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    patterns = list(_FILES if with_weights else _CONFIG)
    why = why_unreachable()
    try:
        offline = why is not None
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=offline))
    except LocalEntryNotFoundError:
        raise ModelError(
            f"{name}: there is no such folder, and as a name on the Hub it cannot be asked for: "
            f"{why or 'the connection broke'}; mend the path, or give the folder of a download"
        ) from None
    except HfHubHTTPError as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[-1]
        raise ModelError(
            f"{name}: there is no such folder, and the Hub has no such model for you ({reason})"
        ) from None


def why_unreachable() -> str | None:
    """Return why the Hub cannot be asked, or None if it answers within some seconds.

    `snapshot_download` bounds no time: it waits for minutes for a proxy that does not answer.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    host = urlsplit(constants.ENDPOINT).hostname
    try:
        get_session().head(constants.ENDPOINT, timeout=_SECONDS_TO_ANSWER)
    except Exception as error:  # of the HTTP client, which differs between releases of the library
        if "Timeout" in type(error).__name__:
            return f"{host}: no answer within {_SECONDS_TO_ANSWER:g} s"
        return f"{host}: {str(error).rpartition('] ')[2].lower()}"
    return None
