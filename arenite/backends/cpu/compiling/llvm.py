"""LLVM IR text becomes an object, assembly, or optimised IR.

In: the text of one module and a target. Out: an ELF relocatable for `runtime.link`. A module says
nothing about its target; every `define` carries `FUNCTION_ATTRIBUTES`, entries are hidden and all
else is internal, so that the linker finds no symbol outside. Kernels arrive as explicit vector
code, hence the short list of passes. llvmlite is imported only when something is compiled; it
holds one lock while it compiles, so `runtime.compile_pool` does it in processes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from arenite.backends.cpu.identity import FUNCTION_ATTRIBUTES as FUNCTION_ATTRIBUTES
from arenite.backends.cpu.identity import PASSES
from arenite.backends.cpu.target import Target
from arenite.errors import CompileFailed

if TYPE_CHECKING:
    import llvmlite.binding as llvm


def compile_object(module_ir: str, target: Target) -> bytes:
    """The module as an ELF relocatable; raises CompileFailed with what LLVM says."""
    machine = _target_machine(target)
    module = _optimised(module_ir, target, machine)
    emitted: bytes = machine.emit_object(module)
    return emitted


def assembly(module_ir: str, target: Target) -> str:
    """What truly runs, to read."""
    machine = _target_machine(target)
    text: str = machine.emit_assembly(_optimised(module_ir, target, machine))
    return text


def functions_defined(module_ir: str) -> list[str]:
    """Names of the functions a module defines that are not internal: its kernels."""
    return [
        found[2] or found[3]
        for found in _DEFINITION.finditer(module_ir)
        if not {"internal", "private"} & {*found[1].split()}
    ]


_DEFINITION = re.compile(r'^\s*define\b([^@\n]*)@(?:"([^"\n]+)"|([\w.$-]+))', re.MULTILINE)


def _optimised(module_ir: str, target: Target, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(module_ir)
        module.triple = target.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        kernels = ", ".join(functions_defined(module_ir)) or "none named"
        raise CompileFailed(f"LLVM refused a module with the kernels {kernels}: {error}") from None
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    tuning = llvm.create_pipeline_tuning_options()
    passes.run(module, llvm.create_pass_builder(machine, tuning))
    return module


@lru_cache(maxsize=1)
def initialise() -> None:
    """What the first compilation would wait for."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Without a parser LLVM aborts the process when it meets inline assembly.
    llvm.initialize_native_asmparser()


@lru_cache(maxsize=8)
def _target_machine(target: Target) -> llvm.TargetMachine:
    import llvmlite.binding as llvm

    initialise()
    try:
        return llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
        )
    except RuntimeError as error:
        raise CompileFailed(f"LLVM has no target {target.triple}: {error}") from None
