"""The shape of the code: layers, budgets, and what may be imported where."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
import shape

ROOT = shape.ROOT
NAMES = list(shape.files())

LAYER = {
    **dict.fromkeys(["data", "models", "criterions", "optim", "score"], 1),
    "tasks": 2,
    **dict.fromkeys(["training", "decoding", "interop"], 3),
    **dict.fromkeys(["latent", "fairseq", "analysis", "translation"], 4),
    "api": 5,
    "serving": 6,
}
"""Package of unitk -> layer; a package imports lower layers only. `unitk/vocab/` and the modules of
unitk itself are layer 0 and may import each other. Those of layer 4 serve one objective or one
foreign system: the core reaches them through the registry only. unitk_cli is above all."""
VERTICAL = {"latent", "fairseq", "interop", "translation"}
BY_NAME: dict[str, str] = {}
"""File of the core -> why it imports a vertical package by name."""
FORBIDDEN = {"tasks": "models"}
"""A task names its architecture by string."""
DOOR = "unitk/__init__.py"
"""What users import; its functions lead to all layers."""

LONG_FILES: dict[str, str] = {
    "unitk/tasks/base.py": "it is the interface, not an objective",
}
"""File -> why it may be longer than its budget."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`file:function` -> why it may be longer than its budget."""


def imported(name: str) -> set[str]:
    """Dotted names of everything a file imports, also inside functions."""
    return set(shape.imports(name))


def part(module: str) -> str:
    """The package of unitk a dotted name belongs to; "" for modules of unitk itself."""
    words = module.split(".")
    return words[1] if words[0] == "unitk" and len(words) > 1 and words[1] in LAYER else ""


@pytest.mark.parametrize("name", NAMES)
def test_layers(name):
    if name.startswith("unitk_cli/") or name == DOOR:
        return
    here = part(name.removesuffix(".py").replace("/", "."))
    for module in sorted(imported(name)):
        assert module.split(".")[0] != "unitk_cli", f"{name} imports {module} of layer 4"
        there = part(module)
        if there in VERTICAL and VERTICAL.isdisjoint({here}) and name in BY_NAME:
            continue
        if there and there != here and not (here in VERTICAL and there in VERTICAL):
            assert LAYER[there] < LAYER.get(here, 0), (
                f"{name} imports {module} of layer {LAYER[there]}"
            )
            assert FORBIDDEN.get(here) != there, f"{name} imports {module}"


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("unitk/tasks/")])
def test_tasks_are_numpy(name):
    assert not {m for m in imported(name) if m.split(".")[0] == "torch"}, f"{name} imports torch"


def test_one_file_knows_ranks():
    users = []
    for name in NAMES:
        text = (ROOT / name).read_text()
        dotted = {ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)}
        if any(used.startswith("torch.distributed") for used in dotted | imported(name)):
            users.append(name)
    assert set(users) <= {"unitk/training/parallel.py"}


def test_files_stay_short():
    over = {}
    for name in NAMES:
        length = len((ROOT / name).read_text().splitlines())
        budget = 170 if name.startswith("unitk/tasks/") else 450
        if length > budget:
            over[name] = f"{length} lines, budget {budget}"
    assert not (found := {k: v for k, v in over.items() if k not in LONG_FILES}), found
    assert not (stale := LONG_FILES.keys() - over.keys()), f"no longer over the budget: {stale}"


def test_functions_stay_short():
    over = {}
    for name in NAMES:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > 60:
                    over[f"{name}:{node.name}"] = f"{length} lines, budget 60"
    assert not (found := {k: v for k, v in over.items() if k not in LONG_FUNCTIONS}), found
    assert not (stale := LONG_FUNCTIONS.keys() - over.keys()), f"no longer over the budget: {stale}"


def test_every_folder_is_a_package():
    # setup.py installs packages only; a clone would not show that a file is missing
    folders = {(ROOT / name).parent for name in NAMES}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_names_help_and_usage_errors_need_no_torch():
    program = """
import importlib, pkgutil, sys
import unitk, unitk.registry, unitk_cli.main
for kind in set(unitk.registry.KINDS) - set(unitk.registry.MODULES):
    unitk.registry.discover(kind)
for verb in pkgutil.iter_modules(unitk_cli.__path__):
    if verb.name != "__main__":
        importlib.import_module("unitk_cli." + verb.name)
slow = {"torch", "matplotlib", "sacrebleu", "rouge_score", "sentencepiece", "tokenizers"}
sys.exit(", ".join(sorted(slow & set(sys.modules))) or 0)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"imported: {done.stderr}"


def test_the_package_does_not_grow_unseen():
    """The figures of `make count`; whoever passes one makes room first, or argues the new one."""
    remarks, code = shape.comments()
    assert shape.lines(shape.files()) <= 40_952
    assert shape.lines(shape.core()) <= 33_483
    assert 100 * remarks / code >= 4.5
    assert not shape.cycles()
    assert not shape.writers()
    crowded = {folder for folder, count in shape.crowds().items() if count > 12}
    assert crowded <= set(shape.SIDE_BY_SIDE)
