"""CNN/DailyMail and XSum as they are published: chunks, stories and pages become pairs.

A chunk of See et al. 2017 (arXiv 1704.04368) is a `.bin` file of tf.train.Example: records, each an
int64 (little-endian) of its size and so many bytes: a protocol buffer whose field 1 is a map (field
1 again) of names to lists of bytes. TensorFlow is not needed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from unitk.data.files.lines import read_pieces, read_text
from unitk.data.files.pairs import PairText, join_sentences
from unitk.errors import DataError
from unitk.vocab.subwords import fields

SENTENCE = re.compile(r"<s>(.*?)</s>", re.DOTALL)
HIGHLIGHT = "@highlight"
SECTION = re.compile(r"\[SN\]([A-Z-]+)\[SN\]")
"""What is before each section of a page of XSum's."""
BUTTONS = {"Share this with", "Email", "Facebook", "Messenger", "Twitter", "Pinterest", "WhatsApp"}
BUTTONS |= {"Linkedin", "LinkedIn", "Copy this link"}
BUTTONS |= {"These are external links and will open in a new window"}
"""Lines of such a page that are no text."""


def read_chunk(path: Path) -> Iterator[PairText]:
    """The pairs of a file: article -> the sentences of its abstract, one a line."""
    data, at = b"".join(piece for piece, _ in read_pieces(path)), 0
    while at < len(data):
        where = f"{path}, byte {at}"
        size = struct.unpack("<q", data[at : at + 8].ljust(8, b"\0"))[0]
        record, at = data[at + 8 : at + 8 + size], at + 8 + size
        try:
            if not 0 <= size == len(record):
                raise IndexError
            values = features(record)
            article, abstract = (values[name].decode() for name in ("article", "abstract"))
        except (IndexError, KeyError, UnicodeDecodeError) as error:
            raise DataError(f"{where}: no tf.train.Example of article and abstract") from error
        lines = [sentence.strip() for sentence in SENTENCE.findall(abstract)]
        yield PairText([article.strip()], "\n".join(lines or [abstract.strip()]))


def features(record: bytes) -> dict[str, bytes]:
    """The features of a tf.train.Example that are bytes, and of each the first value."""
    values = {}
    for entry in inside(b"".join(inside(record))):
        key, value = (b"".join(inside(entry, number)) for number in (1, 2))
        values[key.decode()] = next(inside(b"".join(inside(value))), b"")
    return values


def inside(message: bytes, field: int = 1) -> Iterator[bytes]:
    """The values of one field of a message that are bytes; IndexError where it is cut off."""
    return (value for number, value in fields(message) if number == field and type(value) is bytes)


def read_story(path: Path) -> PairText:
    """A .story file of CNN/DailyMail (Hermann et al. 2015): article -> highlights, one a line."""
    article, *highlights = read_text(path).split(HIGHLIGHT)
    lines = [join_sentences(text.split("\n"), "") for text in highlights]
    return PairText([join_sentences(article.split("\n"), "")], "\n".join(lines))


def read_bbc(path: Path) -> PairText:
    """A .summary file of XSum (Narayan et al. 2018): the rest of a page -> its first sentence."""
    names_and_texts = SECTION.split(read_text(path))[1:]
    sections = dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))
    for name in ("FIRST-SENTENCE", "RESTBODY"):
        if name not in sections:
            raise DataError(f"{path}: no section [SN]{name}[SN], so this is no page of XSum's")
    rest = [line for line in sections["RESTBODY"].split("\n") if line.strip() not in BUTTONS]
    return PairText(
        [join_sentences(rest, "")], join_sentences(sections["FIRST-SENTENCE"].split("\n"), "")
    )
