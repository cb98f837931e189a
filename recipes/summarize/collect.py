"""CNN/DailyMail stories or XSum pages, as they are published -> json-lines for each split.

    python collect.py --stories cnn/stories dailymail/stories --lists url_lists --dest data/cnndm
    python collect.py --chunks finished_files --dest data/cnndm
    python collect.py --pages bbc-summary-data --ids splits.json --dest data/xsum

A story's file is called after the SHA-1 of its address; the lists all_train.txt, all_val.txt and
all_test.txt (abisee/cnn-dailymail on GitHub) hold addresses. --chunks has the .bin files of See et
al. 2017, lower-cased words: train.bin, val.bin and test.bin, or the chunks of each. --ids is XSum's
json with the ids of each split (XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json of EdinburghNLP/XSum on
GitHub).
"""

import argparse
import gzip
import hashlib
import json
import sys
from pathlib import Path

from published import read_bbc, read_chunk, read_story

LISTS = {"train": "all_train.txt", "valid": "all_val.txt", "test": "all_test.txt"}
IDS = {"train": "train", "valid": "validation", "test": "test"}
CHUNKS = {"train": "train", "valid": "val", "test": "test"}


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
        yield split, [folder / f"{number}.summary" for number in tree[name]]


def chunks(folder):
    """Split -> its chunks, in order; one file where it is in one."""
    for split, name in CHUNKS.items():
        some = sorted([*folder.glob(f"**/{name}.bin"), *folder.glob(f"**/{name}_*.bin")])
        several = [path for path in some if path.stem != name] or some
        yield split, several or sys.exit(f"--chunks {folder}: no {name}.bin or {name}_000.bin")


def records(args):
    """Split -> the id and the pair of each text."""
    if args.chunks:
        for split, paths in chunks(args.chunks):
            pairs = (pair for path in paths for pair in read_chunk(path))
            yield split, ((f"{split}-{i}", pair) for i, pair in enumerate(pairs))
        return
    splits = stories(args.stories, args.lists) if args.stories else pages(args.pages, args.ids)
    read = read_story if args.stories else read_bbc
    for split, paths in splits:
        yield split, ((path.stem, read(path)) for path in paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stories", type=Path, nargs="+")
    for name in ("lists", "chunks", "pages", "ids"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    ways = args.stories and args.lists, args.chunks, args.pages and args.ids
    if sum(map(bool, ways)) != 1:
        parser.error("give --stories and --lists, or --chunks, or --pages and --ids")
    args.dest.mkdir(parents=True, exist_ok=True)
    for split, pairs in records(args):
        count = 0
        with gzip.open(args.dest / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            for name, pair in pairs:
                record = {"id": name, "source": pair.source[0], "target": pair.target}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
        print(f"{split}: {count:,}")


if __name__ == "__main__":
    main()
