"""SQuAD's own files -> train, dev and test by the article lists of Du et al. 2017.

    python split.py --squad DIR --lists DIR --dest DIR

DIR of --squad has train-v1.1.json and dev-v1.1.json (or .gz); of --lists doclist-train.txt,
doclist-dev.txt and doclist-test.txt, from data/ of github.com/xinyadu/nqg.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path
from unicodedata import normalize
from urllib.parse import unquote

SPLITS = ("train", "dev", "test")


def key(title):
    """A title without the ways to write the same one."""
    return normalize("NFC", unquote(title.strip())).replace(" ", "_")


def read(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")


def articles(folder):
    """Title -> article, of all files of a folder."""
    files = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if not files:
        sys.exit(f"--squad {folder}: there is no .json in it")
    return {key(one["title"]): one for path in files for one in json.loads(read(path))["data"]}


def split(known, lists):
    """The articles of each split, in the order of its list."""
    names = {name: [key(line) for line in lines if line.strip()] for name, lines in lists.items()}
    everything = [title for titles in names.values() for title in titles]
    twice = sorted({title for title in everything if everything.count(title) > 1})
    absent = [title for title in everything if title not in known]
    for what, titles in (("named twice", twice), ("not in --squad", absent)):
        if titles:
            sys.exit(f"{len(titles)} articles of --lists are {what}: {', '.join(titles[:5])}")
    return {name: [known[title] for title in titles] for name, titles in names.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("squad", "lists", "dest"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    lists = {name: read(args.lists / f"doclist-{name}.txt").split("\n") for name in SPLITS}
    args.dest.mkdir(parents=True, exist_ok=True)
    for name, chosen in split(articles(args.squad), lists).items():
        text = json.dumps({"version": "1.1", "data": chosen}, ensure_ascii=False)
        (args.dest / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        paragraphs = [paragraph for article in chosen for paragraph in article["paragraphs"]]
        count = sum(len(paragraph["qas"]) for paragraph in paragraphs)
        print(
            f"{name}: {len(chosen)} articles, {len(paragraphs):,} paragraphs, {count:,} questions"
        )


if __name__ == "__main__":
    main()
