"""Stock decoders for DNA: architectures, sizes, loading, saving, conversion.

Names are imported on first use, so that the sizes do not need torch.
"""

from typing import TYPE_CHECKING

from carbon.lazy import lazy_names

if TYPE_CHECKING:
    from carbon.model.folder import model_folder
    from carbon.model.load import LoadedModel, load_model
    from carbon.model.presets import PRESETS
    from carbon.model.save import name_tags, save_model

_HOMES = {
    "PRESETS": "carbon.model.presets",
    "LoadedModel": "carbon.model.load",
    "load_model": "carbon.model.load",
    "name_tags": "carbon.model.save",
    "save_model": "carbon.model.save",
    "model_folder": "carbon.model.folder",
}

__all__ = [
    "PRESETS",
    "LoadedModel",
    "load_model",
    "model_folder",
    "name_tags",
    "save_model",
]

__getattr__ = lazy_names(__name__, _HOMES)
