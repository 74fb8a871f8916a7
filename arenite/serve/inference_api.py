"""The Open Inference Protocol, version 2: an ONNX model's arrays over HTTP.

In: requests as `tritonclient.http` sends them: JSON, or JSON followed by the bytes of arrays. Out:
the same. Names, shapes and bytes are checked before an array is made.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from arenite import __version__
from arenite.serve.bodies import ApiError, Body
from arenite.serve.connection import until_gone

if TYPE_CHECKING:
    from arenite.model import ValueInfo
    from arenite.serve.served_model import ServedArrays

#: Types of elements by their names here.
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{kind}{bits}": np.dtype(f"{kind.lower()}{bits}")
       for kind in ("INT", "UINT") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "BYTES": np.dtype(object),
}  # fmt: skip
NAMES = {str(dtype): name for name, dtype in DTYPES.items()}
#: What JSON has for elements, by kinds of types (V is BF16's); the others are whole numbers.
ELEMENTS: dict[str, set[type]] = {"O": {str}, "b": {bool}, "f": {int, float}, "V": {int, float}}
VERSION = "1"
LENGTH_HEADER = "inference-header-content-length"
#: Of characters, in what JSON has as texts: no encoding has them.
HALVES = re.compile("[\ud800-\udfff]")
MAX_RANK = 64
MAX_ARRAYS = 4096


def routes(served: ServedArrays) -> list[Route]:
    """What this API answers to."""
    api = Inference(served)
    name = "/v2/models/{name}"
    versioned = name + "/versions/{version}"
    return [
        Route("/v2", api.server),
        Route("/v2/health/live", api.healthy),
        Route("/v2/health/ready", api.healthy),
        *(Route(f"{base}/ready", api.ready) for base in (name, versioned)),
        *(Route(f"{base}/infer", api.infer, methods=["POST"]) for base in (name, versioned)),
        *(Route(base, api.model) for base in (name, versioned)),
    ]


def error_body(problem: ApiError) -> dict[str, Any]:
    """An error as this API has it."""
    return {"error": problem.message}


class Inference:
    """The handlers, each for one route."""

    def __init__(self, served: ServedArrays) -> None:
        self.served = served

    async def server(self, _: Request) -> Response:
        extensions = ["binary_tensor_data"]
        return JSONResponse({"name": "arenite", "version": __version__, "extensions": extensions})

    async def healthy(self, _: Request) -> Response:
        return Response(status_code=200)

    async def ready(self, request: Request) -> Response:
        self._check(request)
        return Response(status_code=200)

    def _check(self, request: Request) -> None:
        """ApiError where another model, or another version of it, is asked for."""
        self.served.check_name(request.path_params["name"])
        version = request.path_params.get("version", VERSION)
        if version != VERSION:
            told = f"version {version[:40]!r} of {self.served.name!r} is not served; {VERSION!r} is"
            raise ApiError(404, told)

    async def model(self, request: Request) -> Response:
        self._check(request)
        return JSONResponse(
            {
                "name": self.served.name,
                "versions": [VERSION],
                "platform": "onnx",
                "inputs": [_described(one) for one in self.served.model.inputs],
                "outputs": [_described(one) for one in self.served.model.outputs],
            }
        )

    async def infer(self, request: Request) -> Response:
        self._check(request)
        async with self.served.content(request) as content:
            n_json = _json_length(request, len(content))
            body = Body.read(content[:n_json])
            arrays = _inputs(body, memoryview(content)[n_json:])
            forms = _forms(body, [one.name for one in self.served.model.outputs])
            head = {"model_name": self.served.name, "model_version": VERSION}
            if "id" in body:
                head["id"] = body.text("id")
            results = await until_gone(request, self.served.run(arrays))
        return _answer(head, forms, results)


def _described(value: ValueInfo) -> dict[str, Any]:
    sizes = value.shape or ()
    return {
        "name": value.name,
        "datatype": "BYTES" if value.dtype is None else _datatype(str(value.dtype)),
        "shape": [size if isinstance(size, int) else -1 for size in sizes],
    }


def _datatype(dtype: str) -> str:
    """The name that elements have here."""
    if dtype not in NAMES:
        raise ApiError(400, f"arrays of {dtype} have no name in this protocol")
    return NAMES[dtype]


def _json_length(request: Request, n_content: int) -> int:
    told = request.headers.get(LENGTH_HEADER)
    if told is None:
        return n_content
    if not told.isdecimal() or len(told) > 12 or int(told) > n_content:
        raise ApiError(400, f"{LENGTH_HEADER} is {told[:40]!r}; the body has {n_content} bytes")
    return int(told)


def _inputs(body: Body, rest: memoryview) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    at = 0
    for one in body.objects("inputs", MAX_ARRAYS):
        name = one.text("name")
        if name in arrays:
            raise one.wrong("name", "a name that no other input has")
        dtype = DTYPES.get(one.text("datatype"))
        if dtype is None:
            raise one.wrong("datatype", f"one of {', '.join(DTYPES)}")
        shape = _shape(one)
        parameters = one.object("parameters")
        _check_parameters(parameters)
        nbytes = None if parameters is None else parameters.whole("binary_data_size", 0, len(rest))
        if nbytes is None:
            arrays[name] = _of_json(one, dtype, shape)
            continue
        if at + nbytes > len(rest):
            raise ApiError(400, f"{one.name_of('')[:-1]}: its {nbytes} bytes end behind the body")
        arrays[name] = _of_bytes(one, dtype, shape, rest[at : at + nbytes])
        at += nbytes
    if at != len(rest):
        raise ApiError(400, f"{len(rest) - at} bytes of the body belong to no input")
    return arrays


def _check_parameters(parameters: Body | None) -> None:
    """ApiError where an array is asked for in a way that is not known."""
    for name in ("shared_memory_region", "classification"):
        if parameters is not None and parameters.get(name):
            raise parameters.refused(name, "this server does not know it")


def _shape(one: Body) -> tuple[int, ...]:
    given = one.get("shape")
    is_good = isinstance(given, list) and len(given) <= MAX_RANK
    if not is_good or not all(type(size) is int and 0 <= size < 2**48 for size in given):
        raise one.wrong("shape", "a list of sizes")
    return tuple(given)


def _of_json(one: Body, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array whose elements are JSON's, in one list or in lists within lists."""
    given = one.get("data")
    if not isinstance(given, list):
        raise one.wrong("data", "a list of elements")
    level: list[Any] = given
    while level and isinstance(level[0], list):
        if not all(isinstance(inner, list) for inner in level):
            raise one.wrong("data", "lists of one depth")
        level = [item for inner in level for item in inner]
    if len(level) != math.prod(shape):
        raise ApiError(
            400, f"{one.name_of('data')} has {len(level)} elements; the shape {list(shape)} "
            f"needs {math.prod(shape)}", field=one.name_of("data")
        )  # fmt: skip
    if not set(map(type, level)) <= ELEMENTS.get(dtype.kind, {int}):
        raise one.wrong("data", f"elements of type {one.text('datatype')}")
    if dtype.kind == "O" and any(HALVES.search(text) for text in level):
        raise one.wrong("data", "texts without halves of characters")
    try:
        return np.array(level, dtype).reshape(shape)
    except (OverflowError, ValueError, TypeError) as error:
        raise ApiError(400, f"{one.name_of('data')}: {error}", field=one.name_of("data")) from None


def _of_bytes(
    one: Body, dtype: np.dtype[Any], shape: tuple[int, ...], content: memoryview
) -> NDArray[Any]:
    """An array whose bytes came behind the JSON, little-endian; texts have their lengths before."""
    count = math.prod(shape)
    if dtype.kind != "O":
        if len(content) != count * dtype.itemsize:
            raise ApiError(
                400, f"{one.name_of('shape')[:-6]} has {len(content)} bytes; {list(shape)} of "
                f"{one.text('datatype')} needs {count * dtype.itemsize}"
            )  # fmt: skip
        return np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype).reshape(shape)
    texts: list[bytes] = []
    at = 0
    while at < len(content):
        end = at + 4 + int.from_bytes(content[at : at + 4], "little")
        if at + 4 > len(content) or end > len(content):
            raise ApiError(400, f"{one.name_of('shape')[:-6]}: a text ends behind its bytes")
        texts.append(bytes(content[at + 4 : end]))
        at = end
    if len(texts) != count:
        raise ApiError(400, f"{one.name_of('shape')[:-6]} has {len(texts)} texts, not {count}")
    try:
        return np.array([text.decode() for text in texts], object).reshape(shape)
    except UnicodeDecodeError as error:
        told = f"{one.name_of('shape')[:-6]}: a text is not UTF-8: {error.reason}"
        raise ApiError(400, told) from None


def _forms(body: Body, names: list[str]) -> dict[str, bool]:
    """The outputs that are asked for, and whether each is to come as bytes."""
    parameters = body.object("parameters")
    all_binary = parameters is not None and parameters.flag("binary_data_output")
    wanted = body.objects("outputs", MAX_ARRAYS)
    if not wanted:
        return dict.fromkeys(names, all_binary)
    forms: dict[str, bool] = {}
    for one in wanted:
        output = one.text("name")
        if output not in names:
            raise one.wrong("name", f"one of {', '.join(names)}")
        own = one.object("parameters")
        _check_parameters(own)
        forms[output] = all_binary if own is None else own.flag("binary_data", all_binary)
    return forms


def _answer(
    head: dict[str, str], forms: dict[str, bool], results: dict[str, NDArray[Any]]
) -> Response:
    outputs: list[dict[str, Any]] = []
    rest: list[bytes] = []
    for output, is_binary in forms.items():
        array = results[output]
        output_told: dict[str, Any] = {
            "name": output,
            "datatype": "BYTES" if array.dtype.kind in "USO" else _datatype(str(array.dtype)),
            "shape": list(array.shape),
        }
        if is_binary:
            rest.append(_bytes_of(array))
            output_told["parameters"] = {"binary_data_size": len(rest[-1])}
        else:
            output_told["data"] = _finite(array)
        outputs.append(output_told)
    told = json.dumps(head | {"outputs": outputs}, allow_nan=False).encode()
    if not rest:
        return Response(told, media_type="application/json")
    return Response(
        b"".join([told, *rest]),
        media_type="application/octet-stream",
        headers={"Inference-Header-Content-Length": str(len(told))},
    )


def _bytes_of(array: NDArray[Any]) -> bytes:
    if array.dtype.kind not in "USO":
        return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [str(text).encode() for text in array.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _finite(array: NDArray[Any]) -> list[Any]:
    """Elements as JSON has them, which knows no infinities."""
    if array.dtype.kind in "fV" and not np.isfinite(array).all():
        raise ApiError(400, "a result is not finite, which JSON can't say; ask for binary_data")
    if array.dtype.kind in "USO":
        return [str(text) for text in array.ravel()]
    return list(array.ravel().tolist())
