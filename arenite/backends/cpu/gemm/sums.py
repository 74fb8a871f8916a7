"""What builders of micro-kernels share: from a finished sum to what is stored."""

from __future__ import annotations

from arenite.backends.cpu.gemm.kernel import SUM
from arenite.codegen import loop_ir as ir
from arenite.codegen.kernels.build import Builder
from arenite.codegen.kernels.values import Scope
from arenite.dtype import DType
from arenite.ir.node import Node
from arenite.ir.ops.access import is_elementwise
from arenite.ir.ops.define import OPS
from arenite.schedule.kernel import Role


class SumBuilder(Builder):
    """A kernel around one node that sums products, in `sum_dtype`."""

    node: Node
    sum_dtype: DType

    def epilogue(self) -> ir.Block:
        scope = Scope()
        total: ir.Expr = ir.Name(SUM, self.sum_dtype)
        if self.node.dtype != self.sum_dtype:
            total = ir.Cast(total, self.node.dtype)
        self._name_scalar(self.node, total, scope)
        for stage in self.kernel.stages:
            if stage.role is Role.SCALAR:
                self._scalar(stage.node, scope)
        return scope.block

    def epilogue_ops(self) -> int:
        return sum(OPS[node.op].cost for node in self._inlined() if is_elementwise(node))
