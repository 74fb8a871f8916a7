"""A Hugging Face folder: config.json and safetensors, with the names that GGUF gives tensors."""

from __future__ import annotations

import os
import re

from arenite.errors import InvalidFile
from arenite.frontends.language.config import described
from arenite.frontends.language.description import Description
from arenite.frontends.safetensors import SafetensorsFile
from arenite.frontends.stored_tensor import StoredTensor, quoted

#: Parts of names: of a folder, and of GGUF. The first that fits is taken.
DECODER_NAMES = {
    r"model\.embed_tokens": "token_embd",
    r"model\.norm": "output_norm",
    r"lm_head": "output",
    r"model\.layers\.(\d+)\.self_attn\.([qkv])_proj": r"blk.\1.attn_\2",
    r"model\.layers\.(\d+)\.self_attn\.o_proj": r"blk.\1.attn_output",
    r"model\.layers\.(\d+)\.self_attn\.([qk])_norm": r"blk.\1.attn_\2_norm",
    r"model\.layers\.(\d+)\.input_layernorm": r"blk.\1.attn_norm",
    r"model\.layers\.(\d+)\.post_attention_layernorm": r"blk.\1.ffn_norm",
    r"model\.layers\.(\d+)\.mlp\.(gate|up|down)_proj": r"blk.\1.ffn_\2",
    r"model\.layers\.(\d+)\.mlp\.gate": r"blk.\1.ffn_gate_inp",
    r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(gate|up|down)_proj": r"blk.\1.ffn_\3_exps.\2",
    r"model\.layers\.(\d+)\.block_sparse_moe\.gate": r"blk.\1.ffn_gate_inp",
    r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.w1": r"blk.\1.ffn_gate_exps.\2",
    r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.w2": r"blk.\1.ffn_down_exps.\2",
    r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.(\d+)\.w3": r"blk.\1.ffn_up_exps.\2",
    r"model\.layers\.(\d+)\.mlp\.shared_expert\.(gate|up|down)_proj": r"blk.\1.ffn_\2_shexp",
    r"model\.layers\.(\d+)\.mlp\.shared_expert_gate": r"blk.\1.ffn_gate_inp_shexp",
}
_LAYER = r"encoder\.layer\.(\d+)\."
BERT_NAMES = {
    r"embeddings\.word_embeddings": "token_embd",
    r"embeddings\.position_embeddings": "position_embd",
    r"embeddings\.token_type_embeddings": "token_types",
    r"embeddings\.LayerNorm": "token_embd_norm",
    _LAYER + r"attention\.self\.query": r"blk.\1.attn_q",
    _LAYER + r"attention\.self\.key": r"blk.\1.attn_k",
    _LAYER + r"attention\.self\.value": r"blk.\1.attn_v",
    _LAYER + r"attention\.output\.dense": r"blk.\1.attn_output",
    _LAYER + r"attention\.output\.LayerNorm": r"blk.\1.attn_output_norm",
    _LAYER + r"intermediate\.dense": r"blk.\1.ffn_up",
    _LAYER + r"output\.dense": r"blk.\1.ffn_down",
    _LAYER + r"output\.LayerNorm": r"blk.\1.layer_output_norm",
}


def open_folder(path: str) -> tuple[Description, dict[str, StoredTensor]]:
    """What config.json says, and the tensors by their names in GGUF; others are left out."""
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    description = described(folder)
    stored = SafetensorsFile.open(path)
    names = BERT_NAMES if description.architecture == "bert" else DECODER_NAMES
    patterns = [(re.compile(rf"(?:bert\.)?{old}"), new) for old, new in names.items()]
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in stored.tensors.items():
        stem, _, end = name.rpartition(".")
        for pattern, new in patterns:
            match = pattern.fullmatch(stem)
            if match is not None and end in ("weight", "bias"):
                ours = f"{match.expand(new)}.{end}"
                if ours in tensors:
                    raise InvalidFile(
                        f"{path}: tensors {quoted(tensors[ours].name)} and {quoted(name)} are the "
                        "same part of the model"
                    )
                tensors[ours] = tensor
                break
    return description, tensors
