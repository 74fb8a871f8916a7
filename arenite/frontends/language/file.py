"""LanguageFile: a model file, what it says about its model, and the graphs of that model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from arenite.errors import NotSupported, printable
from arenite.frontends.language.description import Description
from arenite.frontends.language.recipe import Recipe
from arenite.frontends.stored_tensor import StoredTensor, quoted

if TYPE_CHECKING:
    from typing import Unpack

    from arenite.frontends.gguf import GgufFile
    from arenite.frontends.language.batch import Pool
    from arenite.frontends.language.recipe import Sizes
    from arenite.ir.graph import Graph

#: By an architecture's name in files: the module here, and its function of the same name, that
#: computes the rows. It is imported when a graph is built.
ARCHITECTURES = {
    "bert": "bert",
    "llama": "llama",
    "qwen2": "llama",
    "qwen2moe": "llama",
    "qwen3": "llama",
    "qwen3moe": "llama",
}


class LanguageFile(NamedTuple):
    """A file or folder, mapped; `gguf` is None for a folder of safetensors."""

    path: str
    description: Description
    tensors: Mapping[str, StoredTensor]  # by the names that GGUF gives them
    gguf: GgufFile | None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> LanguageFile:
        """Read a GGUF file (any shard of it) or a Hugging Face folder; no weights are read."""
        given = os.fspath(path)
        if os.path.isdir(given) or given.endswith((".safetensors", ".safetensors.index.json")):
            from arenite.frontends.language.folder import open_folder

            description, tensors = open_folder(given)
            file = cls(given, description, tensors, None)
        else:
            from arenite.frontends.gguf import GgufFile
            from arenite.frontends.language.gguf import described

            gguf = GgufFile.open(given)
            architecture = gguf.metadata.text("general.architecture")
            if architecture not in ARCHITECTURES:
                raise NotSupported(
                    f"{given}: architecture {quoted(architecture)} is not known; there are "
                    f"{', '.join(ARCHITECTURES)}"
                )
            file = cls(given, described(gguf.metadata), gguf.tensors, gguf)
        return file

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def key(self) -> str:
        """All of the file that decides its graphs; the name of the model does not."""
        tensors = sorted(
            (name, tensor.name, tensor.dtype.name, tensor.shape)
            for name, tensor in self.tensors.items()
        )
        return repr((self.description._replace(name=""), tensors))

    @property
    def is_embedding(self) -> bool:
        """Whether the model makes one vector of a text, and not the text that follows."""
        return not self.description.is_causal

    def recipe(self, pool: Pool | None = None, **sizes: Unpack[Sizes]) -> Recipe:
        """How a graph of the model is made. Of text: of a block of tokens and the position of the
        first it makes the logits after the last token, and keys and values of up to `context`
        tokens are states, with a copy for each of `sessions` texts. Of embeddings: of all tokens of
        one text it makes one row. `offloaded`: for a device with memory of its own. With a `pool`
        blocks are of many texts, of which pages of it hold keys and values."""
        return Recipe(self, pool, **sizes)

    def graph(self, **sizes: Unpack[Sizes]) -> Graph:
        """The graph of a recipe."""
        return self.recipe(**sizes).build()

    def __repr__(self) -> str:
        d = self.description
        return (
            f"<LanguageFile {printable(self.path)}: {d.architecture}, {d.n_layers} layers of "
            f"{d.width}, {d.n_tokens} tokens>"
        )
