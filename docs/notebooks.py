"""Executes the notebooks of docs/notebooks and stores what they print; makes pages of them.

    python docs/notebooks.py [NAME ...]

Needs nbclient and ipykernel. Each runs in its own folder and writes to a temporary one only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"
KEPT = ("text/plain", "text/html")
"""What is stored of an output."""


def names() -> list[str]:
    """The notebooks, without their ending."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def execute(name: str) -> dict[str, Any]:
    """Run a notebook from its first cell to its last, and return it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    # what rich says of widgets that are not installed is no output
    os.environ["PYTHONWARNINGS"] = "ignore::UserWarning"
    path = FOLDER / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}})
    found: dict[str, Any] = json.loads(nbformat.writes(client.execute()))
    return plain(found)


def plain(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook without times, counts of the session, progress bars, and paths of this machine."""
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    for number, cell in enumerate(notebook["cells"], 1):
        cell["id"], cell["metadata"] = f"cell-{number}", {}
        if cell["cell_type"] != "code":
            continue
        cell["execution_count"], outputs, printed = None, list[dict[str, Any]](), ""
        for one in cell["outputs"]:
            if one["output_type"] == "execute_result":
                data = {kind: text_of(one["data"][kind]) for kind in KEPT if kind in one["data"]}
                result = {"data": data, "execution_count": None, "metadata": {}}
                outputs.append({"output_type": "execute_result", **result})
            elif one.get("name") != "stderr":  # beside a bar, rich displays what is printed
                printed += text_of(one.get("text") or one["data"].get("text/plain", ""))
        stream = {"name": "stdout", "output_type": "stream", "text": printed}
        cell["outputs"] = ([stream] if printed.strip() else []) + outputs
    return notebook


def text_of(text: str | list[str]) -> str:
    """What a notebook stores as a text or as its lines, without the name of a temporary folder."""
    return re.sub(rf"{tempfile.gettempdir()}/tmp\w+", "/tmp/notebook", "".join(text))


def page(name: str) -> str:
    """A notebook as a page of the site."""
    parts = []
    for cell in json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for one in cell["outputs"]:
            data = one.get("data", {})
            # a blank line would end a block of HTML in Markdown
            html = re.sub(r"\n\s*\n", "\n", "".join(data.get("text/html", [])))
            said = "".join(one.get("text", data.get("text/plain", []))).rstrip()
            parts.append(f'<div class="output">{html}</div>' if html else f"```text\n{said}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Execute and store."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=names())
    for name in parser.parse_args().names:
        text = json.dumps(execute(name), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
