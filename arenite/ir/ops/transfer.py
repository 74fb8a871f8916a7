"""transfer(x; device): the same value in the memory of another device.

A kernel of its own: a program whose kernels run on one device and whose arguments and results lie
on another has one for each of these. It is planned, ordered and shown like every other.
"""

from __future__ import annotations

from arenite.ir.ops.define import define

define(
    "transfer",
    "transfer",
    (1, 1),
    lambda inputs, attrs: (inputs[0].shape, inputs[0].dtype),
    lambda arrays, attrs, shape, dtype: arrays[0],
    {"device": str},
)
