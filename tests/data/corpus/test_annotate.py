"""Annotation bytes: from the surface forms of a file through a corpus to the texts of a task."""

import sys

import numpy as np
import pytest

from unitk.data.corpus.annotate import open_annotator
from unitk.data.corpus.columns import NOTES
from unitk.data.corpus.corpus import VOCAB
from unitk.data.corpus.folders import open_corpus
from unitk.data.corpus.merge import Options as Merge
from unitk.data.corpus.merge import merge
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.data.cuts import Text
from unitk.data.texts import Texts
from unitk.errors import DataError, UsageError
from unitk.options.fields import options, parse_value

from ...conftest import toy_lines

NAMES = "phrases", "entities", "roles"
PLUGIN = """
import numpy as np
from unitk.registry import register


@register("annotator", "lengths")
class Lengths:
    \"\"\"How many characters a token's sentence has.\"\"\"

    def __init__(self, path):
        assert path is None

    def __call__(self, text, ids, vocab):
        return np.full(len(ids), len(text))
"""


def named(text):
    """The value of `--annotate`."""
    [option] = [one for one in options(Options) if one.name == "annotate"]
    return parse_value(text, option.type, "--annotate")


@pytest.fixture
def make(tmp_path, toy_vocab):
    """A corpus of toy lines, five a document, annotated: `make("phrases=FILE")`."""
    toy_vocab.save(tmp_path / VOCAB)
    lines = toy_lines(60)
    blocks = ["\n".join(lines[i : i + 5]) for i in range(0, 60, 5)]
    (tmp_path / "x.txt").write_text("\n\n".join(blocks) + "\n")

    def made(annotate, dest="out", **options):
        files = {"input": (str(tmp_path / "x.txt"),), "vocab": tmp_path / VOCAB}
        given = {"workers": 1, "annotate": named(annotate), **files, **options}
        preprocess(Options(dest=tmp_path / dest, **given))
        return tmp_path / dest / "train"

    return made


@pytest.fixture
def forms(tmp_path):
    """Two words of every third line, and a file that lists them."""
    found = [" ".join(line.split()[1:3]) for line in toy_lines(60)[::3]]
    (tmp_path / "forms.txt").write_text("\n".join(found) + "\n\n")
    return found


def marked(text, vocab):
    """The texts of runs 1 2 2 ..., decoded."""
    begins = np.flatnonzero(text.notes == 1)
    runs = [b + 1 + np.argmin(np.append(text.notes[b + 1 :], 0) == 2) for b in begins]
    return [vocab.decode(text.ids[b:stop]) for b, stop in zip(begins, runs, strict=True)]


def phrases_in(line, forms):
    """What a reading from left to right finds, word by word."""
    words, at, found = line.rstrip(".").split(), 0, []
    while at < len(words):
        pair = " ".join(words[at : at + 2])
        if pair in forms:
            found.append(pair)
        at += 2 if pair in forms else 1
    return found


@pytest.mark.parametrize("blocks", ["line", "doc", "full", "stream"])
def test_notes_reach_the_texts_of_every_cut(make, forms, tmp_path, toy_vocab, blocks):
    corpus = open_corpus(make(f"phrases={tmp_path / 'forms.txt'}"))
    texts = Texts([corpus], blocks=blocks, size=40, separator=toy_vocab.sep, seed=1)
    texts.begin(0)
    count = 0
    for i, length in enumerate(texts.lengths):
        text = texts.text(i)
        assert len(text.notes) == length == len(text.ids)
        assert not text.notes[text.ids == toy_vocab.sep].any()
        if blocks == "line":
            assert marked(text, toy_vocab) == phrases_in(toy_lines(60)[i], forms)
        count += (text.notes == 1).sum()
    assert count == sum(len(phrases_in(line, forms)) for line in toy_lines(60)) > 19


def test_a_corpus_without_notes_has_none(make, toy_vocab):
    corpus = open_corpus(make(""))
    texts = Texts([corpus], blocks="doc", size=40, separator=toy_vocab.sep, seed=1)
    texts.begin(0)
    assert texts.text(0).notes is None and not (corpus.path / NOTES.file).exists()


def test_shards_joined_and_several_processes_give_the_same_bytes(
    make, forms, tmp_path, monkeypatch
):
    monkeypatch.setattr("unitk.data.files.lines.BLOCK", 1 << 8)
    spec = f"phrases={tmp_path / 'forms.txt'}"
    whole = make(spec, "whole")
    for i in range(2):
        make(spec, f"part{i}", shard=f"{i}/2")
    merge(Merge(parts=(tmp_path / "part0", tmp_path / "part1"), dest=tmp_path / "joined"))
    for path in whole.glob("*.*"):
        assert path.read_bytes() == (tmp_path / "joined" / "train" / path.name).read_bytes()
    assert (whole / NOTES.file).stat().st_size == open_corpus(whole).counts.tokens
    plain = make("", "plain")
    with pytest.raises(DataError, match="plain.*no annotations"):
        merge(Merge(parts=(whole, plain), dest=tmp_path / "mixed"))


class Characters:
    """A token a character."""

    def token_spans(self, text, places):
        return places


def notes_of(spec, text):
    return open_annotator(named(spec))(text, list(range(len(text))), Characters()).tolist()


def test_the_longest_form_is_marked_and_each_character_of_chinese_is_a_unit(tmp_path, toy_vocab):
    (tmp_path / "f").write_text("new york\nnew york city\n北京\nyork city hall\n")

    text = "a new york city hall, new-york new york 在北京市"
    notes = "".join(map(str, notes_of(f"phrases={tmp_path / 'f'}", text)))
    # the longest form may end after the text
    assert notes_of(f"phrases={tmp_path / 'f'}", "a new york") == [0, 0, 1, *[2] * 7]
    expected = text.replace("new york city", "1222222222222", 1).replace("new york", "12222222")
    expected = expected.replace("北京", "12")
    assert notes == "".join(c if c in "12" else "0" for c in expected)


def test_several_annotators_have_bits_of_their_own(tmp_path):
    (tmp_path / "p").write_text("b c\n")
    (tmp_path / "e").write_text("c d\nb c d e\n")
    (tmp_path / "r").write_text("x:\na b\n")
    phrases, entities, roles = (f"{name}={tmp_path / name[0]}" for name in NAMES)
    text = "a b c d"
    assert notes_of(phrases, text) == [0, 0, 1, 2, 2, 0, 0]
    assert notes_of(entities, text) == [0, 0, 0, 0, 4, 8, 8]
    assert notes_of(roles, text) == [32] * 7 and notes_of(roles, "b a: x") == [16] * 6
    both = notes_of(",".join([phrases, entities, roles]), text)
    assert both == [32, 32, 33, 34, 38, 40, 40]


def test_words_of_several_chinese_characters_are_phrases(tmp_path):
    pytest.importorskip("jieba")
    text = "我们在 New York 学习中文"
    assert notes_of("jieba", text) == [1, 2, *[0] * 11, 1, 2, 1, 2]
    (tmp_path / "own").write_text("学习中文\n")
    assert notes_of(f"jieba={tmp_path / 'own'}", text)[-4:] == [1, 2, 2, 2]


def test_a_file_may_have_a_comma_in_its_name(tmp_path):
    (tmp_path / "a, b.txt").write_text("c\n")
    (tmp_path / "d").write_text("e\n")
    both = f"phrases={tmp_path / 'a, b.txt'},entities={tmp_path / 'd'}"
    assert notes_of(both, "c e") == [1, 0, 4]


def test_jieba_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(UsageError, match=r"needs .*package jieba.*install 'unitk\[chinese\]"):
        open_annotator(["jieba"])


def test_a_plug_in_annotates(make, tmp_path):
    from unitk import registry

    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "lengths.py").write_text(PLUGIN)
    registry.load_plugins(tmp_path / "plugins")
    try:
        corpus = open_corpus(make("lengths"))
        edges = corpus.sentences
        for i, line in enumerate(toy_lines(60)):
            assert (corpus.notes((edges[i], edges[i + 1])) == len(line)).all()
    finally:
        del registry._entries["annotator"]["lengths"]


def test_what_cannot_be_annotated_is_named(make, tmp_path, toy_vocab):
    (tmp_path / "empty").write_text("\n")
    for spec, error, message in [
        ("phrases", UsageError, "phrases needs a file with a text a line"),
        ("roles", UsageError, "roles needs a file with a text a line: roles=FILE"),
        (f"roles={tmp_path / 'empty'}", DataError, "there is no opening in it"),
        (f"phrases={tmp_path / 'empty'}", DataError, "there is no surface form in it"),
        (f"phrases={tmp_path / 'nowhere'}", DataError, "nowhere: No such file"),
        (
            "phrase=x",
            UsageError,
            "--annotate: there is no annotator 'phrase'; did you mean phrases",
        ),
    ]:
        with pytest.raises(error, match=message):
            make(spec)
    file = str(tmp_path / "x.txt")
    with pytest.raises(UsageError, match="--annotate .*no effect.*pairs"):
        make("phrases=x", input=(), source_file=(file,), target_file=(file,))


def test_altered_notes_are_refused(make, forms, tmp_path):
    folder = make(f"phrases={tmp_path / 'forms.txt'}")
    raw = bytearray((folder / NOTES.file).read_bytes())
    raw[3] ^= 1
    (folder / NOTES.file).write_bytes(raw)
    with pytest.raises(DataError, match=NOTES.file):
        open_corpus(folder).notes((0, 5))
    assert Text([np.arange(3)], np.zeros(1, int)).notes is None
