"""The two tables of THU-ERNIE: entities that are predicted right, and relations."""

import json
from pathlib import Path
from typing import Any

from shared import markdown_table, parse_arguments, publish_table


def main(run: Path) -> None:
    """Print and write the tables."""

    def read(name: str) -> dict[str, Any]:
        return json.loads((run / f"{name}.json").read_text())

    unread, all_read = read("entities-0,1,0"), read("entities-0,0,1")
    predicted = {
        "a guess": unread["guess"],
        "the most frequent entity": unread["most frequent"],
        "the model, which reads no entity": unread["accuracy"],
        "the model, which reads all entities": all_read["accuracy"],
    }
    title = f"{unread['asked']:,} names of {unread['candidates']:,} entities"
    rows = [[name, f"{100 * share:.1f}"] for name, share in predicted.items()]
    text = markdown_table([title, "right, %"], rows) + "\n"
    scores = {"with entities": read("entities")["class"], "without": read("none")["class"]}
    rows = [
        [name, f"{figures['accuracy']:.1f}", f"{figures['f1_macro']:.1f}"]
        for name, figures in scores.items()
    ]
    text += markdown_table(["relations", "accuracy", "f1_macro"], rows)
    publish_table(run, text)


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
