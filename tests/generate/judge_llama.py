"""What llama.cpp makes of our models, and how far it is from exact: written once, judged by tests.

    python -m tests.generate.judge_llama [tiny] [smollm2]

Needs llama-cpp-python, and torch with transformers for sliding windows, which llama.cpp does not
know in the llama architecture. Writes `llama_reference.json` (settings, tokens, answers,
perplexity, digests) and `llama_reference.npz` (logits) beside itself; a part that is not asked for
stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from arenite.fetch import obtain
from tests.generate.exact import ExactModel
from tests.generate.gguf_models import N_TOKENS, TINY, Shape, write_tiny
from tests.generate.reference import FACTS, FIXED_IDS, PASSAGE, PREFIXES, PROMPTS, Reference

SETTINGS = {
    "llama_cpp_python": llama_cpp.__version__,
    "system": llama_cpp.llama_print_system_info().decode(),
    "threads": 2,
    "kv": "float16",
    "flash_attention": False,
    "batch": 512,
}
N_ANSWER = 64
N_TOP = 64
N_LONG = 400
GGML_F32 = 0


def peer(path: Path, context: int, exact_kv: bool = False, **options: Any) -> llama_cpp.Llama:
    """A model as SETTINGS say; keys and values in float32 where `exact_kv`."""
    kind = GGML_F32 if exact_kv else None
    return llama_cpp.Llama(
        str(path),
        n_ctx=context,
        n_batch=SETTINGS["batch"],
        n_ubatch=SETTINGS["batch"],
        n_threads=SETTINGS["threads"],
        n_threads_batch=SETTINGS["threads"],
        flash_attn=SETTINGS["flash_attention"],
        type_k=kind,
        type_v=kind,
        verbose=False,
        **options,
    )


def feed(model: llama_cpp.Llama, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits after the last of some more tokens."""
    model.eval(tokens)
    pointer = llama_cpp.llama_get_logits_ith(model.ctx, -1)
    return np.ctypeslib.as_array(pointer, (model.n_vocab(),)).copy()


def judge_tiny(reference: Reference) -> None:
    """Each tiny model: logits after some first tokens (an embedding for BERT), by llama.cpp with
    keys and values in float16 and in float32. The latter must agree with the exact model where
    weights are float32, or one of the two judges is wrong."""
    rng = np.random.default_rng(7)
    tokens = [1, *(int(t) for t in rng.integers(3, N_TOKENS, max(PREFIXES) - 1))]
    reference.facts["tiny"] = {"tokens": tokens, "digests": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, shape in TINY.items():
            path = write_tiny(name, Path(folder))
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            reference.facts["tiny"]["digests"][name] = digest
            exact = ExactModel(path)
            if shape.architecture == "bert":
                kinds = {"": np.stack([embedding(path, tokens[:n]) for n in PREFIXES])}
                wanted = np.stack([exact.embedding(tokens[:n]) for n in PREFIXES])
            else:
                model = windowed if shape.window else prefixes
                kinds = {kind: model(path, shape, tokens, bool(kind)) for kind in ("", "/kv32")}
                wanted = exact.logits(tokens)[[n - 1 for n in PREFIXES]]
            for kind, logits in kinds.items():
                reference.arrays[f"tiny/{name}{kind}"] = logits
                off = float(np.abs(logits - wanted).max())
                print(f"{name}{kind}: off by {off:.1e} of {wanted.std():.2f}", flush=True)
            if set(shape.weights) == {"F32"} and off > 1e-3:
                sys.exit(f"{name}: llama.cpp and the exact model disagree")


def prefixes(path: Path, shape: Shape, tokens: list[int], exact_kv: bool) -> NDArray[np.float32]:
    model = peer(path, max(PREFIXES), exact_kv)
    rows = []
    for n in PREFIXES:
        model.reset()
        rows.append(feed(model, tokens[:n]))
    return np.stack(rows)


def embedding(path: Path, tokens: list[int]) -> NDArray[np.float32]:
    model = peer(path, max(PREFIXES), embedding=True)
    model._batch.set_batch(batch=tokens, n_past=0, logits_all=True)
    assert llama_cpp.llama_encode(model.ctx, model._batch.batch) == 0
    pointer = llama_cpp.llama_get_embeddings_seq(model.ctx, 0)
    found = np.ctypeslib.as_array(pointer, (model.n_embd(),)).copy()
    unit: NDArray[np.float32] = found / np.linalg.norm(found)
    return unit


def windowed(path: Path, shape: Shape, tokens: list[int], exact_kv: bool) -> NDArray[np.float32]:
    """The same by transformers' Mistral in float32, whatever the type of keys and values."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM

    model = MistralForCausalLM(
        MistralConfig(
            vocab_size=shape.n_tokens,
            hidden_size=shape.width,
            intermediate_size=shape.ffn,
            num_hidden_layers=shape.n_layers,
            num_attention_heads=shape.n_heads,
            num_key_value_heads=shape.n_kv_heads,
            head_dim=shape.head_size,
            rms_norm_eps=1e-5,
            rope_theta=shape.rope_base,
            sliding_window=shape.window,
            attn_implementation="eager",
        )
    )
    weights = {
        _their_name(tensor.name): torch.tensor(_their_order(shape, tensor.name, tensor.data))
        for tensor in GGUFReader(path).tensors
    }
    model.load_state_dict(weights)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].numpy()
    rows: NDArray[np.float32] = logits[[n - 1 for n in PREFIXES]]
    return rows


def _their_name(name: str) -> str:
    if name == "output.weight":
        return "lm_head.weight"
    for ours, theirs in (
        ("blk.", "layers."),
        ("token_embd", "embed_tokens"),
        ("output_norm", "norm"),
        ("attn_norm", "input_layernorm"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_", "self_attn."),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_", "mlp."),
    ):
        name = name.replace(ours, theirs)
    for part in ("q", "k", "v", "gate", "up", "down"):
        name = name.replace(f".{part}.weight", f".{part}_proj.weight")
    return "model." + name


def _their_order(shape: Shape, name: str, data: NDArray[Any]) -> NDArray[Any]:
    """Rows of a head in halves, where GGUF's llama has pairs of neighbours."""
    if ".attn_q." not in name and ".attn_k." not in name:
        return np.array(data)
    pairs = data.reshape(-1, shape.head_size // 2, 2, shape.width)
    return pairs.transpose(0, 2, 1, 3).reshape(data.shape).copy()


def judge_smollm2(reference: Reference) -> None:
    """Prompts, the logits after each, a greedy answer; perplexity of the passage; both judges."""
    path = obtain("smollm2-135m-instruct")
    passage = PASSAGE.read_text()
    model = peer(path, 2048)
    texts = json.loads(PROMPTS.read_text())
    tokens = {
        name: model.tokenize(text.encode(), add_bos=False, special=name == "chat")
        for name, text in texts.items()
    }
    passage_tokens = model.tokenize(passage.encode(), add_bos=False, special=False)
    tokens["passage"] = passage_tokens[:N_LONG]
    prompts: dict[str, Any] = {}
    for name, prompt in tokens.items():
        model.reset()
        logits = feed(model, prompt)
        top = np.argsort(-logits)[:N_TOP].astype(np.int32)
        reference.arrays[f"smollm2/{name}/top"] = top
        ids = np.concatenate([top, FIXED_IDS])
        reference.arrays[f"smollm2/{name}/llama"] = logits[ids]
        answer, margins = [], []
        for _ in range(N_ANSWER):
            second, first = np.partition(logits, -2)[-2:]
            answer.append(int(logits.argmax()))
            margins.append(round(float(first - second), 4))
            logits = feed(model, answer[-1:])
        prompts[name] = {"tokens": prompt, "answer": answer, "margins": margins}
        print(f"{name}: {model.detokenize(answer).decode(errors='replace')!r}", flush=True)
    exact = ExactModel(path)
    for name, prompt in tokens.items():
        logits64 = exact.logits(prompt)[-1]
        ids = np.concatenate([reference.arrays[f"smollm2/{name}/top"], FIXED_IDS])
        reference.arrays[f"smollm2/{name}/exact"] = logits64[ids].astype(np.float32)
        prompts[name]["exact_best"] = int(logits64.argmax())
        off = reference.arrays[f"smollm2/{name}/llama"] - logits64[ids]
        print(f"{name}: off by {np.abs(off).max():.3f}, rms {off.std():.3f}", flush=True)
    model = peer(path, 1024, logits_all=True)
    model.eval(passage_tokens)
    n = len(passage_tokens)
    reference.facts["smollm2"] = {
        "file": path.name,
        "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
        "prompts": prompts,
        "passage": passage_tokens,
        "perplexity": perplexity(model.scores[:n], passage_tokens),
        "exact_perplexity": perplexity(exact.logits(passage_tokens), passage_tokens),
    }


def perplexity(logits: NDArray[Any], tokens: Sequence[int]) -> float:
    """Of tokens 1 on, each after all before it; `logits` (tokens, vocabulary)."""
    rows = logits[:-1].astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    chosen = rows[np.arange(len(rows)), tokens[1:]]
    return float(np.exp((np.log(np.exp(rows).sum(-1)) - chosen).mean()))


def main() -> None:
    parts = {"tiny": judge_tiny, "smollm2": judge_smollm2}
    reference = Reference.read() if FACTS.exists() else Reference()
    reference.facts["settings"] = SETTINGS
    for name in sys.argv[1:] or parts:
        parts[name](reference)
        reference.write()


if __name__ == "__main__":
    main()
