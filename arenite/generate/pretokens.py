"""How byte-pair vocabularies cut a text into words before merging: one rule a family of models.

In: the name a GGUF file gives under `tokenizer.ggml.pre`. Out: a `WordRule`. The patterns belong to
the models: each was trained on words cut this way, and cut otherwise it sees unfamiliar tokens.
Patterns are applied one after the other, each to the pieces that those before it left.
"""

from __future__ import annotations

from dataclasses import dataclass

from arenite.errors import NotSupported
from arenite.frontends.stored_tensor import quoted

_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ASCII_SIGN = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_LEAD = r"[^\r\n\p{L}\p{N}]?"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


def _llama3(digits: str) -> str:
    """Words with one sign before them, digits in groups, signs with the line ends after them."""
    signs = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    return rf"{_CONTRACTION}|{_LEAD}\p{{L}}+|{digits}|{signs}|{_SPACES}"


def _cased(ending: str, digits: str) -> str:
    """Words cut where small letters end and capitals begin."""
    words = rf"{_LEAD}{_UPPER}*{_LOWER}+{ending}|{_LEAD}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_DEEPSEEK_WORDS = (
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
_STOPS = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


@dataclass(frozen=True)
class WordRule:
    """Patterns in order. `whole_words`: a word that is a token is taken without merging.
    `as_text`: merges work on characters, and bytes are for those that are no token."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    as_text: bool = False
    adds_bos: bool = False  # where the file does not say


_DIGIT_THEN_GPT2 = WordRule((r"\p{N}", _GPT2))
_QWEN2 = WordRule((_llama3(r"\p{N}"),))
_LLAMA3 = WordRule((_llama3(r"\p{N}{1,3}"),))

_RULES: dict[str, WordRule] = {
    "default": WordRule((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo"
    " jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe": WordRule(
        (_GPT2,)
    ),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": _DIGIT_THEN_GPT2,
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": WordRule(
        _LLAMA3.patterns, whole_words=True, adds_bos=True
    ),
    "dbrx smaug-bpe chatglm-bpe": _LLAMA3,
    "glm4 glm5": WordRule(_LLAMA3.patterns, whole_words=True),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2": _QWEN2,
    "qwen35": WordRule(
        (
            rf"{_CONTRACTION}|{_LEAD}[\p{{L}}\p{{M}}]+|\p{{N}}"
            rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
        )
    ),
    "minicpm5": WordRule((r"\p{N}{1,3}", _llama3(r"\p{N}+")), whole_words=True),
    "tekken": WordRule((_cased("", r"\p{N}"),), whole_words=True, adds_bos=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": WordRule(
        (_cased(f"{_CONTRACTION}?", r"\p{N}{1,3}"),)
    ),
    "deepseek-coder": WordRule(
        (
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            _ASIAN,
            r"\p{N}",
        )
    ),
    "deepseek-v3 hunyuan-dense joyai-llm": WordRule((r"\p{N}{1,3}", _CJK, _DEEPSEEK_WORDS)),
    "gemma4": WordRule((r"[^\n]+|\n+",), as_text=True, adds_bos=True),
    "falcon": WordRule((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    "poro-chat bloom gpt3-finnish": WordRule((_STOPS,)),
    "viking": WordRule((_STOPS, r"\p{N}")),
    "bailingmoe bailingmoe2 llada-moe": WordRule(
        (
            rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_LEAD}\p{{L}}+|\p{{N}}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "seed-coder": WordRule(
        (rf"{_CONTRACTION}|{_LEAD}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)
    ),
}

RULES: dict[str, WordRule] = {
    name: rule for names, rule in _RULES.items() for name in names.split()
}


def word_rule(name: str, path: str) -> WordRule:
    """The rule of a family; `path` names the file in the error."""
    if name not in RULES:
        raise NotSupported(
            f"{path}: its words are cut as {quoted(name)} has it (tokenizer.ggml.pre), which "
            f"Arenite does not know; it knows {', '.join(sorted(RULES))}"
        )
    return RULES[name]
