"""LanguageFile: a model file, what it says about its model, and the graphs of that model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arenite.dtype import DType
from arenite.errors import InvalidArgument, NotSupported
from arenite.frontends.gguf import GgufFile
from arenite.frontends.language.bert import bert
from arenite.frontends.language.builder import Builder
from arenite.frontends.language.description import Description
from arenite.frontends.language.folder import open_folder
from arenite.frontends.language.gguf import described
from arenite.frontends.language.llama import llama
from arenite.frontends.language.weights import Weights
from arenite.frontends.stored import StoredTensor, quoted
from arenite.ir import Graph, Node

#: How the rows of each architecture are computed, by the name in files.
ARCHITECTURES: dict[str, Callable[[Builder], Node]] = {
    "bert": bert,
    "llama": llama,
    "qwen2": llama,
    "qwen2moe": llama,
    "qwen3": llama,
    "qwen3moe": llama,
}


@dataclass(frozen=True, repr=False)
class LanguageFile:
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
            description, tensors = open_folder(given)
            made = cls(given, description, tensors, None)
        else:
            gguf = GgufFile.open(given)
            architecture = gguf.metadata.text("general.architecture")
            if architecture not in ARCHITECTURES:
                raise NotSupported(
                    f"{given}: architecture {quoted(architecture)} is not known; there are "
                    f"{', '.join(ARCHITECTURES)}"
                )
            made = cls(given, described(gguf.metadata), gguf.tensors, gguf)
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def is_embedding(self) -> bool:
        """Whether the model makes one vector of a text, and not the text that follows."""
        return not self.description.is_causal

    def graph(self, *, context: int, block: int, kv: DType) -> Graph:
        """Of a block of tokens and the position of the first: the logits after the last token; keys
        and values of up to `context` tokens are states."""
        if self.is_embedding:
            raise InvalidArgument(f"{self.path} is a model for embeddings, not for text")
        builder = self._builder(context, block, kv)
        rows = ARCHITECTURES[self.description.architecture](builder)
        return builder.graph({"logits": builder.logits(builder.last(rows))})

    def embedding_graph(self, *, block: int, kv: DType) -> Graph:
        """Of the tokens of one text: one row, pooled as the file says, of length 1."""
        builder = self._builder(block, block, kv)
        rows = ARCHITECTURES[self.description.architecture](builder)
        return builder.graph({"embedding": builder.pooled(rows)})

    def _builder(self, context: int, block: int, kv: DType) -> Builder:
        if not 1 <= block <= context:
            raise InvalidArgument(f"blocks of {block} tokens do not fit a context of {context}")
        weights = Weights(self.path, self.tensors)
        return Builder(self.description, weights, context=context, block=block, kv=kv)

    def __repr__(self) -> str:
        d = self.description
        return (
            f"<LanguageFile {self.path}: {d.architecture}, {d.n_layers} layers of {d.width}, "
            f"{d.n_tokens} tokens>"
        )
