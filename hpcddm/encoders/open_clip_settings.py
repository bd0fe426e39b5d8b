"""Settings of networks by open_clip, which its encoders of images and of text have in common."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from hpcddm.config.schema import Positive
from hpcddm.config.weights import SettingsWithWeights, WeightsLayout, checked_config
from hpcddm.encoders.weights_layouts import OPEN_CLIP
from hpcddm.errors import UserError
from hpcddm.files.foreign_json import ForeignJson


class OpenClipSettings(SettingsWithWeights):
    """A folder with open_clip_config.json, or with a checkpoint alone and its `architecture`; and the `width`."""

    layout: ClassVar[WeightsLayout] = OPEN_CLIP

    architecture: Annotated[str, Field(pattern=r"^[\w.-]+$")] | None = None
    """Open_clip's name of the network, such as ViT-B-32; ViT-B-32-quickgelu for weights of OpenAI."""
    width: Positive = 512

    def check_config(self, config: ForeignJson) -> None:
        """Raise ValueError unless either the JSON or `architecture` describes the network."""
        if config and self.architecture is not None:
            raise ValueError(f"{self.layout.config} describes the network; remove `architecture`")
        if self.architecture is None and not isinstance(config.get("model_cfg"), dict):
            raise ValueError(
                f"{self.layout.config} with a model_cfg is missing; copy it there, or name the `architecture`"
            )
        if config and (width := self.width_of_model(config)) != self.width:
            raise ValueError(f"width is {self.width} and that of {self.layout.config} is {width}")

    def described_network(self) -> ForeignJson:
        """Read open_clip's description of the network: the folder's JSON, or that of the package for `architecture`.

        Raises `UserError` for missing weights, an unknown architecture, or without the package.
        """
        if self.architecture is None:
            return checked_config(self)
        found = find_spec("open_clip")
        folder = Path(str(found.origin)).parent if found else None
        file = folder / "model_configs" / f"{self.architecture}.json" if folder else None
        if file is None or not file.is_file():
            known = (
                f"the package open_clip describes no {self.architecture}" if folder else "needs the package open_clip"
            )
            raise UserError(f"encoder {self.name}: architecture: {known}")
        return ForeignJson({"model_cfg": ForeignJson.read(file)}, file)

    def width_of_model(self, described: ForeignJson) -> object:
        """Return the number of features in open_clip's description of a network."""
        return described.take("model_cfg.embed_dim", int, None)
