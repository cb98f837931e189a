"""The shape of the code: layers, budgets, and what may be imported where."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys

import pytest
import shape

from unitk import registry

ROOT = shape.ROOT
NAMES = list(shape.files())

LAYER = {
    "options": 0,
    "kernels": 1,
    **dict.fromkeys(["data", "models", "criterions", "optim", "metrics"], 1),
    "tasks": 2,
    **dict.fromkeys(["training", "decoding"], 3),
    **dict.fromkeys(["evaluation", "api"], 4),
    "formats": 5,
    "runs": 5,
    "serving": 5,
    "remote": 5,
    **dict.fromkeys(["families", "fairseq", "comparison"], 6),
    "verbs": 8,
}
"""Package -> layer; a package imports lower layers only, and those of a layer not each other.
`unitk/vocab/`, `unitk/options/` and the modules of unitk itself are layer 0 and may import each
other; kernels and models too, as one asks the other what to multiply and how. optim asks kernels,
too. unitk_cli is above all."""
APART = tuple(f"unitk/{one}/" for one in shape.APART)
"""What the core reaches through the registry only; a family of models knows no other."""
KNOWN: dict[str, str] = {}
"""File -> what it imports although its package may not; entries only leave."""
FORBIDDEN = {"tasks": "models"}
"""A task names its architecture by string."""
PUBLIC = "unitk/__init__.py"
"""What users import; its functions lead to all layers."""

LONG_FILES: dict[str, str] = {
    "unitk/tasks/base.py": "it is the interface, not an objective",
    "unitk/tasks/glm_infill.py": "it has three ways to choose spans, with one assignment a line",
    "unitk/tasks/understanding/base.py": "it is the interface of tasks that predict labels",
}
"""File -> why it may be longer than its budget."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`file:function` -> why it may be longer than its budget."""


def imported(name: str) -> set[str]:
    """Dotted names of everything a file imports, also inside functions."""
    return set(shape.imports(name))


def package(name: str) -> str:
    """The package of a file, a folder of unitk; "" for layer 0."""
    first, second, *rest = name.split("/")
    return second if first == "unitk" and rest and second in LAYER else ""


def family(name: str) -> str:
    """The family of models that a file serves, or nothing."""
    return name.split("/")[2] if name.startswith("unitk/families/") and name.count("/") > 2 else ""


def arrows(name: str) -> set[str]:
    """Files that a file imports although its package may not."""
    here, found = package(name), set[str]()
    for target in shape.edges()[name]:
        there = package(target)
        if family(name) and family(target) and family(name) != family(target):
            found.add(target)
        if not there or there == here or {here, there} == {"kernels", "models"}:
            continue
        if (here, there) == ("optim", "kernels"):
            continue
        if LAYER[there] >= LAYER.get(here, 0) or FORBIDDEN.get(here) == there:
            found.add(target)
        own = any(target.startswith(one) and name.startswith(one) for one in APART)
        if target.startswith(APART) and not own and here not in ("families", "fairseq"):
            found.add(target)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_files_import_lower_layers_only(name):
    assert not name.startswith("unitk/") or not {m for m in imported(name) if "unitk_cli" in m}
    if not name.startswith("unitk_cli/") and name != PUBLIC:
        assert not {one for one in arrows(name) if not one.startswith(KNOWN.get(name, "-"))}


def test_known_arrows_are_still_there():
    assert not {name for name in KNOWN if not arrows(name)}


def test_no_package_apart_is_named_by_a_string():
    """`registry.imported("module:name")` leads down, or stays in a family."""
    for name in NAMES:
        for target in shape.named(name):
            own = family(name) == family(target) and package(name) == package(target)
            assert own or not target.startswith(APART), f"{name} names {target}"


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("unitk/tasks/")])
def test_tasks_are_numpy(name):
    assert not {m for m in imported(name) if m.split(".")[0] == "torch"}, f"{name} imports torch"


def test_what_recipes_import_is_there():
    """Some functions of the package have no other user."""
    lacking = []
    for path in [*ROOT.glob("recipes/**/*.py"), *ROOT.glob("docs/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("unitk"):
                module = importlib.import_module(str(node.module))
                for name in (alias.name for alias in node.names):
                    found = f"{node.module}.{name}"
                    if not hasattr(module, name) and importlib.util.find_spec(found) is None:
                        lacking.append(f"{path.name}: {found}")
    assert not lacking


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
        length = shape.lines((name,))
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
    # only packages are installed; a clone would not show that a file is missing
    folders = {(ROOT / name).parent for name in NAMES}
    assert not [str(folder) for folder in folders if not (folder / "__init__.py").exists()]


def test_names_help_and_usage_errors_need_no_torch():
    program = """
import sys
import unitk, unitk.registry, unitk_cli.main
for kind in set(unitk.registry.KINDS) - set(unitk.registry.MODULES):
    unitk.registry.discover(kind)
slow = {"torch", "matplotlib", "sacrebleu", "rouge_score", "sentencepiece", "tokenizers"}
sys.exit(", ".join(sorted(slow & set(sys.modules))) or 0)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"imported: {done.stderr}"


SPINE = 203_950
"""Symbols of the core that serve everybody; may fall, never rise."""
PRICE = {"task": 1200, "head": 600, "criterion": 700, "reader": 300, "evaluation": 800, "verb": 650}
PRICE |= {"route": 300}
"""Symbols of the core that a registered component may bring."""
CLOSURES = {
    "generate": (83, 126_700),
    "train": (81, 125_200),
    "serve": (94, 141_400),
    "preprocess": (39, 61_900),
    "stack": (21, 34_100),
    "mlm": (11, 24_500),
    "examples": (26, 48_600),
}
"""Entry point (`shape.entry_points`) -> the most files that it imports, and symbols of them; may
fall, never rise."""


def test_the_core_costs_what_its_parts_cost():
    parts = sum(price * len(registry.names(kind)) for kind, price in PRICE.items())
    assert shape.symbols(shape.core()) <= SPINE + parts


@pytest.mark.parametrize("entry", CLOSURES)
def test_what_an_entry_point_imports(entry):
    needed, (files, symbols) = shape.entry_points()[entry], CLOSURES[entry]
    assert (len(needed) <= files, shape.symbols(needed) <= symbols) == (True, True), len(needed)


def test_the_shape_of_folders_and_imports():
    """The figures of `make count`."""
    remarks, code = shape.comments()
    assert 100 * remarks / code >= 4.5
    assert not shape.cycles()
    assert not shape.writers()
    crowded = {folder for folder, count in shape.crowds().items() if count > 12}
    assert crowded <= set(shape.SIDE_BY_SIDE)


MOST = {"twins": 14, "tables": 4, "wide": 22, "sentences": 199}
"""Figure of `make count` -> the most there may be; may fall, never rise."""


def test_names_parameters_and_messages():
    found = {
        "twins": len(shape.twins()),
        "tables": sum(shape.tables().values()),
        "wide": len(shape.wide()),
        "sentences": sum(shape.sentences().values()),
    }
    assert not {name: (found[name], most) for name, most in MOST.items() if found[name] > most}
