"""The Hub's models as folders, and a quick word where it cannot be reached."""

import socket
import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

from carbon.errors import ModelError

_SECONDS_TO_CONNECT = 1.5
_CONFIG = ("config.json",)
_FILES = (
    *(
        "config.json",
        "generation_config.json",
        "model*.safetensors",
        "model.safetensors.index.json",
    ),
    *("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json", "dna_config.json"),
    "background.json",
)


class Published(NamedTuple):
    """A model that the Hub has.

    Attributes:
        name: `owner/name`.
        num_parameters: of the network.
        gigabytes: that are fetched, for the most part weights in bfloat16.
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
    """Return the folder of the cache with a model's config and weights; nobody is asked."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    folder = Path(config).parent if isinstance(config, str) else None
    return folder if folder and any(folder.glob("model*.safetensors")) else None


@cache
def hub_folder(name: str, *, with_weights: bool) -> Path:
    """Return the folder of the cache with a model's config, or with all of its files.

    The Hub is asked for what is new; where it cannot be reached, what is there is taken.

    Raises:
        ModelError: there is no such model, or the Hub cannot be reached and the cache has it not.
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
            f"{why or 'the line broke'}; mend the path, or give the folder of a download"
        ) from None
    except HfHubHTTPError as error:
        reason = (str(error).strip().splitlines() or ["no answer"])[-1]
        raise ModelError(
            f"{name}: there is no such folder, and the Hub has no such model for you ({reason})"
        ) from None


def why_unreachable() -> str | None:
    """Say why the Hub cannot be asked, or None: a connection is tried for a second and a half."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    endpoint = urlsplit(constants.ENDPOINT)
    proxy = urlsplit(getproxies().get(endpoint.scheme, ""))
    at = proxy if proxy.hostname else endpoint
    port = at.port or (443 if at.scheme == "https" else 80)
    failure = [f"no answer within {_SECONDS_TO_CONNECT:g} s"]

    def connect() -> None:
        try:
            socket.create_connection((at.hostname, port), _SECONDS_TO_CONNECT).close()
            failure.clear()
        except OSError as error:
            failure[:] = [(error.strerror or str(error)).lower()]

    # In a thread: nothing bounds the time of looking up a name.
    asking = threading.Thread(target=connect, daemon=True)
    asking.start()
    asking.join(_SECONDS_TO_CONNECT)
    return f"{at.hostname}: {failure[0]}" if failure else None
