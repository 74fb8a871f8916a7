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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from arenite.codegen.target import Target
from arenite.errors import CompileFailed

if TYPE_CHECKING:
    import llvmlite.binding as llvm

#: For the `define` line of every function. no-builtins: zero loops would become calls of memset;
#: nounwind and no uwtable: no unwind tables; the widths are a ceiling that narrow targets ignore.
FUNCTION_ATTRIBUTES = (
    'nounwind "no-builtins" "frame-pointer"="none" "no-stack-arg-probe" '
    '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
)

#: In this order. As fast as O2 in every family of kernels, at an eighth of its time. Strength
#: reduction is left to code generation: as a pass of its own it can break what the next one needs.
PASSES = (
    "always_inliner",
    "sroa",
    "instruction_combine",
    "simplify_cfg",
    "loop_rotate",
    "new_gvn",
    "instruction_combine",
)


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


def optimised_ir(module_ir: str, target: Target) -> str:
    """The module as code generation sees it."""
    return str(_optimised(module_ir, target, _target_machine(target)))


def functions_defined(module_ir: str) -> list[str]:
    """Names of the functions a module defines that are not internal: its kernels."""
    return [
        found[2] or found[3]
        for found in _DEFINITION.finditer(module_ir)
        if not {"internal", "private"} & {*found[1].split()}
    ]


_DEFINITION = re.compile(r'^\s*define\b([^@\n]*)@(?:"([^"\n]+)"|([\w.$-]+))', re.MULTILINE)


@lru_cache(maxsize=1)
def compiler_identity() -> str:
    """llvmlite's version and our passes, without importing llvmlite: part of every cache key."""
    spec = find_spec("llvmlite")
    folders = spec.submodule_search_locations if spec is not None else None
    version = "none"
    if folders:
        text = (Path(folders[0]) / "_version.py").read_text()
        found = re.search(r"['\"](\d+\.\d+[^'\"]*)['\"]", text)
        version = found[1] if found is not None else "unknown"
    return f"llvmlite={version} passes={','.join(PASSES)} attributes={FUNCTION_ATTRIBUTES}"


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


@lru_cache(maxsize=8)
def _target_machine(target: Target) -> llvm.TargetMachine:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    # Without a parser LLVM aborts the process when it meets inline assembly.
    llvm.initialize_native_asmparser()
    try:
        return llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
        )
    except RuntimeError as error:
        raise CompileFailed(f"LLVM has no target {target.triple}: {error}") from None
