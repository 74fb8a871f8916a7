"""gguf/: GGUF model files, metadata and tensors, mapped and checked."""

from arenite.frontends.gguf.file import GgufFile
from arenite.frontends.gguf.metadata import Metadata, MetadataArray

__all__ = ["GgufFile", "Metadata", "MetadataArray"]
