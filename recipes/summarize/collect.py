"""CNN/DailyMail stories or XSum pages, as they are published -> json-lines for each split.

    python collect.py --stories cnn/stories dailymail/stories --lists url_lists --dest data/cnndm
    python collect.py --pages bbc-summary-data --ids splits.json --dest data/xsum

A story's file is called after the SHA-1 of its address; the lists all_train.txt, all_val.txt and
all_test.txt (abisee/cnn-dailymail on GitHub) hold addresses. --ids is XSum's json with the ids of
each split (XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json of EdinburghNLP/XSum on GitHub).
"""

import argparse
import gzip
import hashlib
import json
import sys
from pathlib import Path

from unitk.data.pairs import read_bbc, read_story

LISTS = {"train": "all_train.txt", "valid": "all_val.txt", "test": "all_test.txt"}
IDS = {"train": "train", "valid": "validation", "test": "test"}


def stories(folders, lists):
    """Split -> the files of its stories."""
    known = {path.stem: path for folder in folders for path in folder.glob("*.story")}
    for split, name in LISTS.items():
        addresses = (lists / name).read_text(encoding="utf-8").split()
        names = [hashlib.sha1(address.encode()).hexdigest() for address in addresses]
        yield split, [known.get(name) or sys.exit(f"there is no {name}.story") for name in names]


def pages(folder, ids):
    """Split -> the files of its pages."""
    tree = json.loads(ids.read_text(encoding="utf-8"))
    for split, name in IDS.items():
        yield split, [folder / f"{one}.summary" for one in tree[name]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stories", type=Path, nargs="+")
    parser.add_argument("--lists", type=Path)
    parser.add_argument("--pages", type=Path)
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--dest", type=Path, required=True)
    given = parser.parse_args()
    if bool(given.stories and given.lists) == bool(given.pages and given.ids):
        parser.error("give --stories and --lists, or --pages and --ids")
    read = read_story if given.stories else read_bbc
    found = stories(given.stories, given.lists) if given.stories else pages(given.pages, given.ids)
    given.dest.mkdir(parents=True, exist_ok=True)
    for split, paths in found:
        with gzip.open(given.dest / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            for path in paths:
                pair = read(path)
                record = {"id": path.stem, "source": pair.source[0], "target": pair.target}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        print(f"{split}: {len(paths):,}")


if __name__ == "__main__":
    main()
