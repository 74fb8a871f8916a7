"""OrtValue and IOBinding: arrays as ONNX Runtime hands them around; here they are NumPy's."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from arenite.dtype import BY_NAME, Array, DType
from arenite.errors import InvalidArgument, NotSupported
from arenite.frontends.onnx.types import (
    NAMES,
    NUMBERS,
    MapType,
    OptionalType,
    SequenceType,
    ValueType,
)
from arenite.ir.element import held_dtype, numpy_dtype
from arenite.onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

if TYPE_CHECKING:
    from arenite.onnxruntime.options import RunOptions
    from arenite.onnxruntime.session import InferenceSession, NodeArg


#: Types of elements whose names differ from ours.
_NAMES = {"float32": "float", "float64": "double"}


def element_name(dtype: DType) -> str:
    """A type of elements as ONNX Runtime writes it."""
    name = _NAMES.get(dtype.name, dtype.name)
    return name.replace("_", "") if name.startswith(("float8", "float4")) else name


def type_name(kind: ValueType) -> str:
    """A type as ONNX Runtime writes it: tensor(float), seq(tensor(int64))."""
    if isinstance(kind, SequenceType):
        return f"seq({type_name(kind.element)})"
    if isinstance(kind, OptionalType):
        return f"optional({type_name(kind.element)})"
    if isinstance(kind, MapType):
        return f"map({kind.key},{type_name(kind.element)})"
    return f"tensor({'string' if kind.is_string else element_name(kind.dtype)})"


class OrtDevice:
    """Where memory is: on the CPU."""

    @staticmethod
    def cpu() -> int:
        """The number of the CPU among kinds of devices."""
        return 0

    @staticmethod
    def default_memory() -> int:
        """The number of usual memory."""
        return 0

    @staticmethod
    def make(name: str, device_id: int) -> OrtDevice:
        """That of a name; there is the CPU."""
        _need_cpu(name)
        return OrtDevice()

    def device_type(self) -> str:
        """Always "cpu"."""
        return "cpu"

    def device_id(self) -> int:
        """There is one."""
        return 0


def _need_cpu(device: str) -> None:
    if device.lower() not in ("cpu", "cpu_pinned"):
        raise NotSupported(f"memory of {device!r} is not known here: values are on the CPU")


def _numpy_type(element_type: Any) -> Any:
    """NumPy's type, of one or of a number of ONNX's."""
    if not isinstance(element_type, int):
        return np.dtype(element_type)
    if element_type not in NAMES or NAMES[element_type] not in BY_NAME:
        raise InvalidArgument(f"ONNX has no type {element_type} of arrays")
    return numpy_dtype(BY_NAME[NAMES[element_type]])


def _array_at(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """Memory of the caller's as an array."""
    dtype = _numpy_type(element_type)
    sizes: list[int] = [operator.index(one) for one in shape]
    if any(one < 0 for one in sizes) or (address <= 0 and all(sizes)):
        raise InvalidArgument(f"at address {address} there is no array of {dtype}{sizes}")
    nbytes = int(prod(sizes)) * int(dtype.itemsize)
    if not nbytes:
        return np.empty(sizes, dtype)
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    array: Array = np.frombuffer(memory, dtype).reshape(sizes)
    return array


class OrtValue:
    """A tensor, or a list of them."""

    def __init__(self, value: Any) -> None:
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Array, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Over an array, which is not copied."""
        _need_cpu(device_type)
        return OrtValue(np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """With room for a shape; `element_type` is NumPy's, or a number of ONNX's."""
        _need_cpu(device_type)
        return OrtValue(np.zeros(tuple(shape), _numpy_type(element_type)))

    def numpy(self) -> Array:
        """The tensor."""
        if not self.is_tensor():
            raise InvalidArgument("this OrtValue is a sequence; it has no array")
        array: Array = self._value
        return array

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    @property
    def content(self) -> Any:
        """An array, a list of arrays, or None."""
        return self._value

    def shape(self) -> list[int]:
        """Of the tensor."""
        return list(self.numpy().shape)

    def data_type(self) -> str:
        """As ONNX Runtime writes it: tensor(float)."""
        if isinstance(self._value, list):
            inner = OrtValue(self._value[0]).data_type() if self._value else "tensor(float)"
            return f"seq({inner})"
        array = self.numpy()
        name = "string" if array.dtype.kind in "OUS" else element_name(held_dtype(array.dtype))
        return f"tensor({name})"

    def element_type(self) -> int:
        """A number of ONNX's."""
        array = self.numpy()
        return 8 if array.dtype.kind in "OUS" else NUMBERS[held_dtype(array.dtype).name]

    def tensor_size_in_bytes(self) -> int:
        """Of all elements."""
        return self.numpy().nbytes

    def data_ptr(self) -> int:
        """Where the bytes begin."""
        return int(self.numpy().ctypes.data)

    def device_name(self) -> str:
        """Always "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """Whether it holds something: an optional may not."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is one array."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a list of arrays."""
        return isinstance(self._value, list)

    def is_sparse_tensor(self) -> bool:
        """Never: there are none."""
        return False

    def update_inplace(self, np_arr: Array) -> None:
        """Write other numbers of the same type and shape over it."""
        array = self.numpy()
        if np_arr.shape != array.shape or np_arr.dtype != array.dtype:
            raise InvalidArgument(
                f"an array of {np_arr.dtype}{list(np_arr.shape)} can't be written over one of "
                f"{array.dtype}{list(array.shape)}"
            )
        array[...] = np_arr


class IOBinding:
    """Inputs and outputs of a session by name, for `run_with_iobinding`."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """An array is an input of the next runs."""
        self._need(name, self._session.get_inputs(), "input")
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Memory at an address, of a tensor without gaps, is an input of the next runs. It must be
        there as long."""
        _need_cpu(device_type)
        self.bind_cpu_input(name, _array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """A value is an input of the next runs."""
        self.bind_cpu_input(name, ortvalue.content)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """A new array each run; or memory at an address, which must be there as long."""
        _need_cpu(device_type)
        self._need(name, self._session.get_outputs(), "output")
        self._outputs[name] = None
        if buffer_ptr:
            if element_type is None or shape is None:
                raise InvalidArgument(f"output {name!r} at an address needs a type and a shape")
            self._outputs[name] = OrtValue(_array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """An output is written over a value."""
        self._need(name, self._session.get_outputs(), "output")
        self._outputs[name] = ortvalue

    def _need(self, name: str, known: Sequence[NodeArg], what: str) -> None:
        names = [one.name for one in known]
        if name not in names:
            raise RuntimeException(f"there is no {what} {name!r}; there are {', '.join(names)}")

    def clear_binding_inputs(self) -> None:
        """Let go of all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Let go of all outputs."""
        self._outputs.clear()
        self._results = []

    def synchronize_inputs(self) -> None:
        """Inputs are there."""

    def synchronize_outputs(self) -> None:
        """Outputs are there when a run returns."""

    def run(self, run_options: RunOptions | None = None) -> None:
        """Run the session on what is bound."""
        if not self._outputs:
            raise RuntimeException("no output is bound: bind_output says which are wanted")
        results = self._session.run(list(self._outputs), self._inputs, run_options)
        self._results = []
        targets = list(self._outputs.values())
        for target, result in zip(targets, results, strict=True):
            if target is not None:
                target.update_inplace(result)
            self._results.append(OrtValue(result) if target is None else target)

    def get_outputs(self) -> list[OrtValue]:
        """Those of the last run."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Those of the last run, as arrays."""
        return [one.content for one in self._results]
