"""Operators of ai.onnx.ml that encode labels and fill in what is missing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arenite.dtype import BY_NAME, FLOAT32, INT64, Array, DType
from arenite.frontends.onnx.call import Call
from arenite.frontends.onnx.ops.strings import on_host
from arenite.frontends.onnx.registry import ML, Result, operator
from arenite.frontends.onnx.values import Value
from arenite.ir import constant, make
from arenite.ir.compose import basic
from arenite.ir.compose.reductions import reduce
from arenite.ir.element import numpy_dtype

STRINGS, INTS, FLOATS = "strings", "int64s", "floats"


@operator("Binarizer", domain=ML)
def binarizer(call: Call) -> Result:
    x = call.node(0)
    return basic.cast(x > call.attr("threshold", 0.0), x.dtype)


@operator("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(call: Call) -> Result:
    value, places = call.value(0), call.node(1)
    count = basic.reshape(places, (-1,)) if places.ndim != 1 else places
    node = value.node if value.ndim != 1 else basic.expand_dims(value.node, 0)
    made = make("gather", node, basic.cast(count, INT64), axis=node.ndim - 1)
    return Value.of(made, is_string=value.is_string)


@operator("LabelEncoder", domain=ML, since=2)
def label_encoder(call: Call) -> Result:
    value = call.value(0)
    keys, are_texts = _labels(call, "keys")
    values, give_texts = _labels(call, "values")
    if len(keys) != len(values):
        call.fail(f"{len(keys)} keys and {len(values)} values")
    if are_texts != value.is_string:
        call.fail(f"its keys are {'strings' if are_texts else 'numbers'}, and its input is {value}")
    strings = call.translator.source.strings
    default = _default(call, values, give_texts)
    table: dict[Any, Any] = {_key(key): one for key, one in zip(keys, values, strict=True)}
    dtype = INT64 if give_texts else _dtype(values)

    def mapped(array: Array) -> Array:
        given = strings.texts(array) if are_texts else array
        made = np.asarray([table.get(_key(one), default) for one in given.reshape(-1).tolist()],
                          object if give_texts else numpy_dtype(dtype))  # fmt: skip
        made = made.reshape(array.shape)
        return strings.places(made) if give_texts else made

    return Value.of(on_host(mapped, [value.node], value.shape, dtype), is_string=give_texts)


def _key(key: Any) -> Any:
    return "a NaN" if isinstance(key, float) and math.isnan(key) else key


def _labels(call: Call, which: str) -> tuple[Array, bool]:
    """(labels, whether they are strings), of the one attribute that is given."""
    given = [kind for kind in (STRINGS, INTS, FLOATS) if call.attr(f"{which}_{kind}") is not None]
    tensor = call.attr(f"{which}_tensor")
    if len(given) + (tensor is not None) != 1:
        call.fail(f"one list of {which} is needed, and {len(given)} are given")
    if tensor is not None:
        known = tensor.known
        if known is None or known.ndim != 1:
            call.fail(f"{which}_tensor is no list of labels")
        texts = call.translator.source.strings.texts(known) if tensor.is_string else known
        return texts, tensor.is_string
    [kind] = given
    dtype = {STRINGS: object, INTS: np.int64, FLOATS: np.float32}[kind]
    return np.asarray(call.attr(f"{which}_{kind}"), dtype), kind == STRINGS


def _default(call: Call, values: Array, are_texts: bool) -> Any:
    tensor = call.attr("default_tensor")
    if tensor is not None:
        known = tensor.known
        texts = call.translator.source.strings.texts(known) if tensor.is_string else known
        return texts.reshape(-1)[0]
    if are_texts:
        return call.attr("default_string", "_Unused")
    if values.dtype.kind == "f":
        return call.attr("default_float", -0.0)
    return call.attr("default_int64", -1)


def _dtype(values: Array) -> DType:
    return BY_NAME[values.dtype.name]


@operator("Imputer", domain=ML)
def imputer(call: Call) -> Result:
    x = call.node(0)
    kind, by = ("int64", np.int64) if x.dtype == INT64 else ("float", np.float32)
    values = np.asarray(call.need_attr(f"imputed_value_{kind}s"), by)
    if len(values) not in (1, x.shape[-1]):
        call.fail(f"{len(values)} values for an input of shape {x.shape}")
    replaced = call.attr(f"replaced_value_{kind}", 0)
    is_replaced = basic.binary("eq", x, replaced)
    if math.isnan(replaced):
        is_replaced = make("isnan", x)
    return basic.where(is_replaced, basic.cast(constant(values), x.dtype), x)


@operator("OneHotEncoder", domain=ML)
def one_hot_encoder(call: Call) -> Result:
    value = call.value(0)
    kind = STRINGS if value.is_string else INTS
    given = call.need_attr(f"cats_{kind}")
    if len(set(given)) < len(given):
        call.refuse("one of its categories is there twice")
    known = np.asarray(given, object if value.is_string else np.int64)
    table = call.translator.source.strings.keep(known) if value.is_string else known
    x = basic.expand_dims(basic.cast(value.node, INT64), value.ndim)
    is_category = basic.binary("eq", x, constant(table))
    if call.attr("zeros", 1):
        return basic.cast(is_category, FLOAT32)
    # What is none of them has a place outside, which ends a run.
    found, n = reduce("any", is_category, [value.ndim]), len(given)
    place = basic.where(found, make("argmax", is_category, axis=value.ndim), n)
    place = make("gather", constant(np.arange(n)), place, axis=0)
    return basic.cast(
        basic.binary("eq", basic.expand_dims(place, place.ndim), basic.iota(n)), FLOAT32
    )


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: Call) -> Result:
    widths = call.need_attr("inputdimensions")
    if [one.shape[-1:] for one in call.nodes] != [(width,) for width in widths]:
        call.refuse(f"its inputs are not as wide as {list(widths)}")
    rows = [basic.reshape(one, (-1, one.shape[-1])) for one in call.nodes]
    return basic.concat([basic.cast(one, FLOAT32) for one in rows], 1)
