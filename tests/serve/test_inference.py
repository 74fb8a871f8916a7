"""The Open Inference Protocol, judged by Triton's client and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from tritonclient import http
from tritonclient.utils import InferenceServerException

from arenite.model import Model
from arenite.serve.served_model import ServedArrays
from tests.model.models import network
from tests.serve.running import Address, serving

CONTENT = network().SerializeToString()
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    model = Model.of_bytes(CONTENT)
    with (
        ServedArrays(
            "net", model, model.compile(), model.plan(batch=4), queue=2, max_body=2**20
        ) as served,
        serving(served) as address,
    ):
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[http.InferenceServerClient]:
    made = http.InferenceServerClient(server.url.removeprefix("http://"))
    yield made
    made.close()


def expected(x: np.ndarray[Any, Any]) -> Any:
    session = onnxruntime.InferenceSession(CONTENT, providers=["CPUExecutionProvider"])
    [name] = [one.name for one in session.get_inputs()]
    return session.run(None, {name: x})[0]


def test_the_server_and_the_model_are_told_of(client: http.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("net")
    assert client.get_server_metadata()["name"] == "arenite"
    told = client.get_model_metadata("net")
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}]


@pytest.mark.parametrize("sends_bytes", [False, True])
@pytest.mark.parametrize("wants_bytes", [False, True])
def test_arrays_come_and_go(
    client: http.InferenceServerClient, sends_bytes: bool, wants_bytes: bool
) -> None:
    given = http.InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X, binary_data=sends_bytes)
    name = client.get_model_metadata("net")["outputs"][0]["name"]
    wanted = http.InferRequestedOutput(name, binary_data=wants_bytes)
    answer = client.infer("net", [given], outputs=[wanted], request_id="7")
    assert answer.get_response()["id"] == "7"
    np.testing.assert_allclose(answer.as_numpy(name), expected(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_may_be_packed(client: http.InferenceServerClient, algorithm: str) -> None:
    given = http.InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X)
    answer = client.infer("net", [given], request_compression_algorithm=algorithm)
    np.testing.assert_allclose(answer.as_numpy("y"), expected(X), rtol=1e-5, atol=1e-6)


@contextmanager
def serving_node(op: str, elements: int, shape: list[int | str]) -> Iterator[Address]:
    """A model of one node from x to y."""
    ends = [helper.make_tensor_value_info(name, elements, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 18)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    model = Model.of_bytes(made.SerializeToString())
    options: dict[str, Any] = {"queue": 2, "max_body": None}
    with (
        ServedArrays("one", model, model.compile(), model.plan(), **options) as served,
        serving(served) as address,
    ):
        yield address


def test_arrays_of_bfloat16_come_and_go() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    with serving_node("Neg", TensorProto.BFLOAT16, [3, 8]) as address:
        client = http.InferenceServerClient(address.url.removeprefix("http://"))
        given = http.InferInput("x", [3, 8], "BF16")
        given.set_data_from_numpy(x)
        answer = client.infer("one", [given])
        assert answer.get_output("y")["datatype"] == "BF16"
        found = np.asarray(answer.as_numpy("y")).astype(np.float32)
        client.close()
        one = {"name": "x", "shape": [3, 8], "datatype": "BF16"}
        for values in ([1.5] * 24, [1e39] * 24):
            body = {"inputs": [one | {"data": values}]}
            status, told = address.json("POST", "/v2/models/one/infer", body)
            if values[0] == 1.5:
                assert told["outputs"][0]["data"] == [-1.5] * 24
            else:
                assert (status, "not finite" in told["error"]) == (400, True)
    np.testing.assert_array_equal(found, -x.astype(np.float32))


def test_texts_are_told_as_they_are_or_refused() -> None:
    path = "/v2/models/one/infer"
    head = b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":'
    head += b'{"binary_data_size":6}}]}'
    headers = {"Inference-Header-Content-Length": str(len(head))}
    half = b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["\\ud800"]}]}'
    with serving_node("Identity", TensorProto.STRING, ["n"]) as address:
        for content, expected in (("ä".encode(), "ä"), (b"\xff\xfe", None)):
            rest = b"\2\0\0\0" + content
            status, told = address.json("POST", path, head + rest, headers=headers)
            if expected is None:
                assert (status, "not UTF-8" in told["error"]) == (400, True)
            else:
                assert told["outputs"][0]["data"] == [expected]
        status, told = address.json("POST", path, half)
        assert (status, "halves" in told["error"]) == (400, True)


def test_what_is_wrong_with_a_request_is_told_before_a_run(server: Address) -> None:
    def n_runs() -> int:
        return int(server.json("GET", "/stats")[1]["requests"])

    one = {"name": "x", "shape": [3, 8], "datatype": "FP32", "data": X.ravel().tolist()}
    before = n_runs()
    several: list[dict[str, Any]] = [{"outputs": [{"name": "z"}]}, {"id": 5}, {"parameters": []}]
    for wrong in several:
        status, _ = server.json("POST", "/v2/models/net/infer", {"inputs": [one]} | wrong)
        assert status == 400
    assert n_runs() == before
    assert server.json("POST", "/v2/models/net/infer", {"inputs": [one]})[0] == 200
    name = 'arenite_requests_total{path="/v2/models/{name}/infer",status="200"}'
    assert name in server.ask("GET", "/metrics")[1].decode()


def test_another_version_is_refused(client: http.InferenceServerClient) -> None:
    assert client.get_model_metadata("net", "1")["versions"] == ["1"]
    assert not client.is_model_ready("net", "7")
    with pytest.raises(InferenceServerException, match="version '7' of 'net' is not served"):
        client.get_model_metadata("net", "7")


def test_what_is_not_done_is_refused(client: http.InferenceServerClient) -> None:
    given = http.InferInput("x", list(X.shape), "FP32")
    given.set_shared_memory("region", X.nbytes)
    with pytest.raises(InferenceServerException, match="shared_memory_region is given"):
        client.infer("net", [given])
    given = http.InferInput("x", list(X.shape), "FP32")
    given.set_data_from_numpy(X)
    wanted = http.InferRequestedOutput("y", class_count=2)
    with pytest.raises(InferenceServerException, match="classification is given"):
        client.infer("net", [given], outputs=[wanted])
    half = http.InferInput("x", list(X.shape), "FP16")
    half.set_data_from_numpy(X.astype(np.float16))
    with pytest.raises(InferenceServerException, match="array of float16") as told:
        client.infer("net", [half])
    assert told.value.status() == "400"


def test_another_model_is_refused(client: http.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="'other' is not served"):
        client.get_model_metadata("other")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"shape": [3, 9]}, "27"),
        ({"shape": [-3, 8]}, "sizes"),
        ({"shape": [2**47, 2**47]}, "elements"),
        ({"datatype": "FP8"}, "datatype"),
        ({"datatype": "INT32"}, "elements of type INT32"),
        ({"datatype": "INT32", "data": [True] * 24}, "elements of type INT32"),
        ({"data": [1.0, "x"] * 12}, "FP32"),
        ({"data": [[1.0], 2.0]}, "one depth"),
        ({"name": "y"}, "y"),
        ({"parameters": {"binary_data_size": 4}}, "binary_data_size"),
    ],
)
def test_what_is_wrong_with_an_array_is_told(
    server: Address, change: dict[str, Any], what: str
) -> None:
    one = {"name": "x", "shape": [3, 8], "datatype": "FP32", "data": X.ravel().tolist()}
    status, told = server.json("POST", "/v2/models/net/infer", {"inputs": [one | change]})
    assert status == 400
    assert what in told["error"]


def test_bytes_that_are_not_there_are_told(server: Address) -> None:
    head = b'{"inputs":[{"name":"x","shape":[3,8],"datatype":"FP32","parameters":'
    head += b'{"binary_data_size":96}}]}'
    for rest, what in ((b"\0" * 40, "96"), (b"\0" * 100, "belong to no input")):
        headers = {"Inference-Header-Content-Length": str(len(head))}
        path = "/v2/models/net/infer"
        status, told = server.json("POST", path, head + rest, headers=headers)
        assert (status, what in told["error"]) == (400, True), told
    headers = {"Inference-Header-Content-Length": "999999"}
    assert server.json("POST", path, head, headers=headers)[0] == 400
