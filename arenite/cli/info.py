"""`arenite info`: what a model is, before anything of it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import gpus, language, onnx, output
from arenite.cli.options import AnyModelName
from arenite.device.allocator import readable_nbytes

if TYPE_CHECKING:
    from arenite.model import Interface


def info(
    model: AnyModelName = None,
    offline: onnx.Offline = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Say what a model is: what goes in and out, who made it, how large it is. No weight is read.

    `arenite plan` says what it needs to run.
    """
    path = language.obtain(model, offline)
    title = language.title(model, path)
    if onnx.is_onnx(path):
        _onnx_info(path, title, json)
    else:
        _language_info(path, title, json)
    if not json:
        _tell_of_gpus()
    return output.EXIT_DONE


def _onnx_info(path: Path, title: str, json: bool) -> None:
    from arenite.model import Model

    model = Model.open(path)
    facts = model.metadata
    n_nodes = model.description.n_nodes
    nbytes = path.stat().st_size
    if json:
        fields: dict[str, Any] = {
            "file": str(path),
            "format": "onnx",
            "file_nbytes": nbytes,
            "producer": facts.producer,
            "operator_sets": dict(facts.operator_sets),
            "n_nodes": n_nodes,
            "sizes": list(model.sizes),
            "inputs": _fields(model.inputs),
            "outputs": _fields(model.outputs),
            "metadata": dict(facts.more),
            "unused_gpus": gpus.present(),
        }
        output.print_json("info", fields)
        return
    sets = ", ".join(f"{name or 'ai.onnx'} {n}" for name, n in facts.operator_sets.items())
    shown = {
        "file": str(path),
        "kind": f"ONNX, {n_nodes} nodes, {readable_nbytes(nbytes)}",
        "operators": sets,
        "made by": facts.producer,
        "about": facts.description,
        "open sizes": ", ".join(model.sizes),
    }
    output.print_pairs(title, {name: value for name, value in shown.items() if value})
    for what, values in (("input", model.inputs), ("output", model.outputs)):
        output.out.print()
        output.print_table((what, "type", "shape"), values.rows()[1:], right=())


def _fields(values: Interface) -> list[dict[str, Any]]:
    rows = []
    for one, (_, kind, _) in zip(values, values.rows()[1:], strict=True):
        shape = None if one.shape is None else list(one.shape)
        rows.append({"name": one.name, "type": kind, "shape": shape, "required": one.is_required})
    return rows


def _language_info(path: Path, title: str, json: bool) -> None:
    from arenite.frontends.language import LanguageFile

    file = LanguageFile.open(path)
    d = file.description
    if json:
        output.print_json(
            "info",
            {
                "file": str(path),
                "format": "safetensors" if file.gguf is None else "gguf",
                "file_nbytes": file.nbytes,
                "architecture": d.architecture,
                "name": d.name,
                "n_layers": d.n_layers,
                "width": d.width,
                "n_tokens": d.n_tokens,
                "context": d.context,
                "is_embedding": file.is_embedding,
                "unused_gpus": gpus.present(),
            },
        )
        return
    purpose = "embeddings" if file.is_embedding else "text"
    shown = {
        "file": str(path),
        "name inside": d.name,
        "kind": f"{d.architecture}, {d.n_layers} layers of {d.width:,}, for {purpose}",
        "weights": f"{len(file.tensors)} tensors, {readable_nbytes(file.nbytes)}",
        "vocabulary": f"{d.n_tokens:,} tokens",
        "context": f"up to {d.context:,} tokens",
    }
    output.print_pairs(title, {name: value for name, value in shown.items() if value})


def _tell_of_gpus() -> None:
    """A GPU that is there and idle is worth a word."""
    found = gpus.present()
    if found:
        names = ", ".join(dict.fromkeys(found))
        output.note(
            f"{names}: here and not used. Models run on the CPU, unless --device webgpu asks for "
            'it, or Python for device="webgpu"'
        )
