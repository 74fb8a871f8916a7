"""Operators on strings: done on the host, on the places of strings in the model's table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from arenite.dtype import BOOL, FLOAT32, INT64, Array, DType, Kind
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.regex import Pattern
from arenite.frontends.onnx.registry import Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import Dim, Node, make
from arenite.ir.compose import basic
from arenite.ir.element import numpy_dtype
from arenite.ir.ops.control import cut
from arenite.ir.ops.define import broadcast
from arenite.ir.ops.host import HostFunction
from arenite.ir.ops.unbounded import arange

CASES: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


def on_host(
    function: Callable[..., Array], nodes: Sequence[Node], shape: Sequence[Dim], dtype: DType
) -> Node:
    """What a Python function makes of arrays, as a node."""
    return make("host", *nodes, function=HostFunction(function), shape=tuple(shape), dtype=dtype)


def _string(call: Call, index: int) -> Value:
    value = call.value(index)
    if not value.is_string:
        call.fail(f"input {index} is {value}, not of strings")
    return value


@operator("StringConcat", since=20)
def string_concat(call: Call) -> Result:
    values = [_string(call, 0), _string(call, 1)]
    shape = broadcast("StringConcat", *(one.shape for one in values))
    nodes = [basic.broadcast_to(one.node, shape) for one in values]
    strings = call.translator.source.strings

    def joined(a: Array, b: Array) -> Array:
        return strings.places(strings.texts(a) + strings.texts(b))

    return Value.of(on_host(joined, nodes, shape, INT64), is_string=True)


@operator("StringNormalizer", since=10)
def string_normalizer(call: Call) -> Result:
    value = _string(call, 0)
    if value.ndim not in (1, 2) or (value.ndim == 2 and value.shape[0] != 1):
        call.fail(f"its input has shape {value.shape}, neither [C] nor [1, C]")
    change = CASES.get(call.attr("case_change_action", "NONE"))
    if change is None:
        call.fail(f"case_change_action is {call.attr('case_change_action')!r}")
    is_sensitive = bool(call.attr("is_case_sensitive", 0))
    same: Callable[[str], str] = str if is_sensitive else str.lower
    stopwords = {same(word) for word in call.attr("stopwords", ())}
    strings = call.translator.source.strings
    size = value.shape[-1]
    room: Dim = 1 if size == 0 else size

    def kept(places: Array) -> list[str]:
        words = [word for word in strings.texts(places).tolist() if same(word) not in stopwords]
        return [change(word) for word in words] or [""]

    def words(places: Array) -> Array:
        found = kept(places)
        count = max(1, len(places))
        return strings.places(np.asarray(found + [""] * (count - len(found)), object))

    def count(places: Array) -> Array:
        return np.asarray(len(kept(places)), np.int64)

    flat = basic.reshape(value.node, (size,))
    made = cut(on_host(words, [flat], (room,), INT64), on_host(count, [flat], (), INT64))
    if value.ndim == 2:
        made = basic.expand_dims(made, 0)
    return Value.of(made, is_string=True)


@operator("StringSplit", since=20)
def string_split(call: Call) -> Result:
    value = _string(call, 0)
    strings = call.translator.source.strings
    delimiter, most = call.attr("delimiter") or None, call.attr("maxsplit", -1)

    def parts(places: Array) -> list[list[str]]:
        return [one.split(delimiter, most) for one in strings.texts(places).reshape(-1).tolist()]

    def counts(places: Array) -> Array:
        return np.asarray([len(one) for one in parts(places)], np.int64).reshape(places.shape)

    def largest(places: Array) -> Array:
        return np.asarray(max((len(one) for one in parts(places)), default=0), np.int64)

    def split(places: Array, numbers: Array) -> Array:
        found = np.full((places.size, len(numbers)), "", object)
        for row, words in zip(found, parts(places), strict=True):
            row[: len(words)] = words
        return strings.places(found.reshape(*places.shape, len(numbers)))

    numbers = arange(on_host(largest, [value.node], (), INT64))
    shape = (*value.shape, numbers.shape[0])
    substrings = on_host(split, [value.node, numbers], shape, INT64)
    return (
        Value.of(substrings, is_string=True),
        on_host(counts, [value.node], value.shape, INT64),
    )


@operator("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(call: Call) -> Result:
    value = call.value(0)
    if value.ndim not in (1, 2):
        call.fail(f"its input has {value.ndim} axes, not 1 or 2")
    pool = call.attr("pool_strings") or call.attr("pool_int64s") or []
    if bool(call.attr("pool_strings")) != value.is_string:
        call.fail("its pool and its input are not both of strings or both of numbers")
    starts, places = call.need_attr("ngram_counts"), call.need_attr("ngram_indexes")
    shortest, longest = call.need_attr("min_gram_length"), call.need_attr("max_gram_length")
    skips = call.need_attr("max_skip_count")
    mode = call.need_attr("mode")
    if mode not in ("TF", "IDF", "TFIDF") or not places or min(places) < 0:
        call.fail(f"mode {mode!r} with {len(places)} n-grams")
    grams = _grams(call, pool, starts)
    if len(grams) != len(places):
        call.fail(f"{len(grams)} n-grams in the pool and {len(places)} places for them")
    weights = np.asarray(call.attr("weights") or [1.0] * len(places), np.float32)
    if len(weights) != len(places):
        call.fail(f"{len(weights)} weights for {len(places)} n-grams")
    width = max(places) + 1
    where = {gram: k for k, gram in enumerate(grams)}
    columns = np.asarray(places)
    strings = call.translator.source.strings

    def counted(rows: Array) -> Array:
        data = strings.texts(rows) if value.is_string else rows
        made = np.zeros((*rows.shape[:-1], width), np.float32)
        for row, counts in zip(
            data.reshape(-1, rows.shape[-1]).tolist(), made.reshape(-1, width), strict=True
        ):
            _count(row, counts)
        if mode == "TF":
            return made
        found = made[..., columns]
        made[..., columns] = (np.minimum(found, 1) if mode == "IDF" else found) * weights
        return made

    def _count(row: list[Any], counts: Array) -> None:
        # No n-gram is longer than those of the pool, nor skips more than there is.
        for n in range(max(1, shortest), min(longest, len(starts), len(row)) + 1):
            # One element is the same whatever is skipped between elements.
            for step in range(1, (min(skips, len(row)) if n > 1 else 0) + 2):
                for start in range(len(row) - step * (n - 1)):
                    k = where.get(tuple(row[start : start + step * (n - 1) + 1 : step]))
                    if k is not None:
                        counts[places[k]] += 1

    return on_host(counted, [value.node], (*value.shape[:-1], width), FLOAT32)


def _grams(call: Call, pool: Sequence[Any], starts: Sequence[int]) -> list[tuple[Any, ...]]:
    grams: list[tuple[Any, ...]] = []
    for n, start in enumerate(starts, 1):
        end = starts[n] if n < len(starts) else len(pool)
        if not 0 <= start <= end <= len(pool) or (end - start) % n:
            call.fail(f"ngram_counts {list(starts)} do not divide a pool of {len(pool)}")
        grams += [tuple(pool[k : k + n]) for k in range(start, end, n)]
    return grams


def cast_to_string(call: Call, value: Value) -> Value:
    """Numbers as text, as NumPy writes them."""
    strings = call.translator.source.strings

    def written(array: Array) -> Array:
        return strings.places(np.asarray([_written(one) for one in array.reshape(-1)], object)
                              .reshape(array.shape))  # fmt: skip

    return Value.of(on_host(written, [value.node], value.shape, INT64), is_string=True)


def _written(number: Any) -> str:
    if isinstance(number, np.bool_):
        return str(int(number))
    text = str(number)
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


def cast_from_string(call: Call, value: Value, dtype: DType) -> Node:
    """Text as numbers."""
    strings = call.translator.source.strings
    is_float = dtype.kind is Kind.FLOAT
    held = numpy_dtype(dtype if dtype.has_numpy else FLOAT32)

    def read(array: Array) -> Array:
        texts = strings.texts(array).reshape(-1).tolist()
        numbers = [float(text) if is_float else int(float(text)) for text in texts]
        return np.asarray(numbers, held).reshape(array.shape)

    made = on_host(read, [value.node], value.shape, dtype if dtype.has_numpy else FLOAT32)
    return made if dtype.has_numpy else basic.cast(made, dtype)


@operator("RegexFullMatch", since=20)
def regex_full_match(call: Call) -> Result:
    value = _string(call, 0)
    pattern = Pattern(call.need_attr("pattern"))
    strings = call.translator.source.strings

    def matched(places: Array) -> Array:
        texts = strings.texts(places).reshape(-1).tolist()
        return np.asarray([pattern.matches(one) for one in texts], bool).reshape(places.shape)

    return on_host(matched, [value.node], value.shape, BOOL)
