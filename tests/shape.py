"""Figures of the package's shape: `make count` prints them, test_architecture.py holds them.

A file's imports count wherever they are, at the top or in functions. Those for types only count
too, but not as dependencies of an entry point.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APART = "families", "formats", "fairseq", "runs", "comparison", "serving/openai", "remote"
VERTICAL = tuple(f"unitk/{package}/" for package in APART)
"""Packages of one family of models, of other systems' formats, of fairseq's users, of what goes
with training runs, of comparisons, of OpenAI's API, and of stores of objects; the rest is the
core."""
SIDE_BY_SIDE = ("unitk/verbs", "unitk/tasks", "unitk/formats")
"""Folders with a file a verb, objective or format."""
SENTENCE = re.compile(r"(?<![\w.*-])(?:[A-Za-z][a-z']*[,;:]? ){2,}[A-Za-z][a-z']*(?![\w-])")
"""Three plain words in a row: a test of a message matches its option or file, and its value."""
ALIKE = {"find", "read", "write", "run", "draw", "layout", "value", "Options"}
"""What many modules define, as each does the same in another place."""
TABLES = ("KINDS", "PARTS", "FILE", "VERBS")
"""Names that say nothing of what a table holds."""
MOVES = {"replace", "rename"}
"""Calls of `os`, and of paths, that put a finished file or folder in its place."""


@cache
def files() -> tuple[str, ...]:
    """Python files of the package, relative to the repository's root."""
    found = [*ROOT.glob("unitk/**/*.py"), *ROOT.glob("unitk_cli/**/*.py")]
    return tuple(sorted(str(path.relative_to(ROOT)) for path in found))


@cache
def text(name: str) -> str:
    """The content of a file."""
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree(name: str) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(text(name))


@cache
def nodes(name: str) -> tuple[ast.AST, ...]:
    """All nodes of a file's syntax tree."""
    return tuple(ast.walk(tree(name)))


def lines(names: tuple[str, ...]) -> int:
    """Lines of some files."""
    return sum(len(text(name).splitlines()) for name in names)


LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
"""Tokens that are no code."""


@cache
def _symbols(name: str) -> int:
    """Python's tokens in a file, without layout, comments and strings that stand alone."""
    count = inside = 0
    for token in tokenize.generate_tokens(io.StringIO(text(name)).readline):
        # an f-string is one token, also in Python from 3.12, which divides it
        kind = tokenize.tok_name[token.type]
        count += token.type not in LAYOUT and not inside
        inside += (kind == "FSTRING_START") - (kind == "FSTRING_END")
    return count - sum(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in nodes(name)
    )


def symbols(names: tuple[str, ...]) -> int:
    """How much code some files hold: names, numbers, strings and operators.

    Unlike lines, it doesn't fall where two statements are put into one, or a docstring is left out.
    """
    return sum(map(_symbols, names))


def core() -> tuple[str, ...]:
    """The files that serve neither other systems nor a single objective's toolbox."""
    return tuple(name for name in files() if not name.startswith(VERTICAL))


def closure(*entry_points: str) -> tuple[str, ...]:
    """Some files and all that they import; deferred imports and modules in strings count."""
    found, waiting = set[str](), list(entry_points)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += [*edges(types=False)[name], *named(name)]
    return tuple(sorted(found))


def entry_points() -> dict[str, tuple[str, ...]]:
    """Name of an entry point -> its file and all that it imports."""
    verbs = {
        verb: f"unitk/verbs/{verb}.py" for verb in ("generate", "train", "serve", "preprocess")
    }
    others = {"stack": "models/stack", "mlm": "tasks/mlm", "examples": "data/examples"}
    every = verbs | {entry: f"unitk/{name}.py" for entry, name in others.items()}
    more = {"serve": "unitk/serving/routes.py"}  # which the registry finds
    return {entry: closure(name, *filter(None, [more.get(entry)])) for entry, name in every.items()}


def crowds() -> Counter[str]:
    """Folder -> how many files it holds beside `__init__`, subfolders left out."""
    paths = [Path(name) for name in files()]
    return Counter(str(path.parent) for path in paths if path.name != "__init__.py")


def module(name: str) -> str:
    """The dotted name of a file."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(name: str, types: bool = True) -> Iterator[str]:
    """Dotted names of everything a file imports, or of all but what it imports for types only."""
    typed = {
        id(inner)
        for node in nodes(name)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    package = module(name) if name.endswith("__init__.py") else module(name).rpartition(".")[0]
    for node in nodes(name):
        if id(node) in typed and not types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def named(name: str) -> Iterator[str]:
    """Files that a file names by a string "module:name", for `registry.import_object`."""
    by_module = {module(one): one for one in files()}
    for node in nodes(name):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"unitk\.[\w.]+:\w+", node.value):
                yield by_module[node.value.partition(":")[0]]


@cache
def edges(types: bool = True) -> dict[str, set[str]]:
    """File -> files it imports; `types`: also for types only.

    A package's `__init__` counts only if a name is taken from it.
    """
    by_module = {module(name): name for name in files()}
    found: dict[str, set[str]] = {}
    for name in files():
        targets = (
            by_module.get(one) or by_module.get(one.rpartition(".")[0])
            for one in imports(name, types)
        )
        found[name] = {target for target in targets if target and target != name}
    return found


def cycles() -> list[list[str]]:
    """Groups of files that reach each other through imports (strongly connected components)."""
    graph, order, seen = edges(), [], set[str]()

    def visit(start: str, graph: dict[str, set[str]], out: list[str]) -> None:
        stack = [(start, iter(sorted(graph[start])))]
        seen.add(start)
        while stack:
            name, rest = stack[-1]
            following = next((one for one in rest if one not in seen), None)
            if following is None:
                stack.pop()
                out.append(name)
            else:
                seen.add(following)
                stack.append((following, iter(sorted(graph[following]))))

    for name in graph:
        if name not in seen:
            visit(name, graph, order)
    turned: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            turned[target].add(name)
    seen.clear()
    groups = []
    for name in reversed(order):
        if name not in seen:
            group: list[str] = []
            visit(name, turned, group)
            groups.append(sorted(group))
    return [group for group in groups if len(group) > 1]


def comments() -> tuple[int, int]:
    """Comments and lines of code (no blank lines, comments or docstrings) of the package."""
    remarks = code = 0
    for name in files():
        kept = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
        rows: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text(name)).readline):
            remarks += token.type == tokenize.COMMENT
            if token.type not in kept and token.type != tokenize.ENDMARKER:
                rows.update(range(token.start[0], token.end[0] + 1))
        for node in nodes(name):  # strings that stand alone are docstrings
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                rows.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
        code += len(rows)
    return remarks, code


def calls(attributes: set[str]) -> Counter[str]:
    """File -> calls of methods or module functions of these names, as in `os.replace(...)`."""
    found: Counter[str] = Counter()
    for name in files():
        for node in nodes(name):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                found[name] += node.func.attr in attributes
    return +found


def writers() -> Counter[str]:
    """Files that rename what they have written, beside `unitk/files.py`."""
    found: Counter[str] = Counter()
    for name in files():
        for node in nodes(name):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                moved = node.func.attr == "rename" or (owner, node.func.attr) == ("os", "replace")
                # a path's replace has one argument, a text's has two
                path = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
                found[name] += moved or path
    found.pop("unitk/files.py", None)
    return +found


def twins() -> dict[str, list[str]]:
    """Functions and classes that two or more modules define -> these modules."""
    found: dict[str, list[str]] = {}
    for name in files():
        for node in tree(name).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                if node.name not in ALIKE and not node.name.startswith("_"):
                    found.setdefault(node.name, []).append(name)
    return {one: modules for one, modules in found.items() if len(modules) > 1}


def tables() -> dict[str, int]:
    """How many modules define a table with a name that says nothing."""
    every = Counter(
        node.targets[0].id
        for name in files()
        for node in tree(name).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    )
    return {one: every[one] for one in TABLES}


def wide() -> list[str]:
    """Functions with more than six parameters, `self` and `cls` left out: "FILE:NAME"."""
    found = []
    for name in files():
        for node in nodes(name):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if len([one for one in given if one.arg not in ("self", "cls")]) > 6:
                    found.append(f"{name}:{node.name}")
    return found


def sentences() -> Counter[str]:
    """File of tests -> messages that it compares with `SENTENCE`s: by `match`, or in an assert."""
    found: Counter[str] = Counter()
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                given = [one.value for one in node.keywords if one.arg == "match"]
            elif isinstance(node, ast.Compare):
                given = [node.left, *node.comparators]
            else:
                continue
            found[str(path.relative_to(ROOT))] += sum(
                bool(SENTENCE.search(literal(one))) for one in given
            )
    return +found


def literal(node: ast.AST) -> str:
    """The text of a string, without what an f-string fills in; "" if the node is none."""
    if isinstance(node, ast.JoinedStr):
        return "\0".join(literal(one) for one in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def main() -> None:
    """Print every figure."""
    remarks, code = comments()
    print(f"package                  {lines(files()):,} lines in {len(files())} files")
    size = f"{lines(core()):,} lines, {symbols(core()):,} symbols"
    print(f"core                     {size} (without {', '.join(VERTICAL)})")
    for entry, needed in entry_points().items():
        print(f"imports of {entry:<14}{len(needed)} files, {symbols(needed):,} symbols")
    print(f"comments                 {100 * remarks / code:.1f} per 100 of {code:,} lines of code")
    print(f"import cycles            {len(cycles())}")
    for group in cycles():
        print(f"  {' <-> '.join(group)}")
    print(f"writers outside files.py {len(writers())} {dict(writers()) or ''}")
    print(f"log-probability places   {dict(calls({'cross_entropy', 'nll_loss', 'compare'}))}")
    print(f"names in several modules {len(twins())}")
    print(f"tables named for nothing {tables()}")
    print(f"more than 6 parameters   {len(wide())}")
    print(f"sentences in tests       {sum(sentences().values())}")
    print("files beside __init__    " + ", ".join(f"{k} {n}" for k, n in crowds().most_common()))


if __name__ == "__main__":
    main()
