"""fairseq's data-bin folders, read and written: bytes from the format's description, by hand."""

import os
import re
import struct
from types import SimpleNamespace

import numpy as np
import pytest
from fairseq_programs import needs_fairseq, run_fairseq

from unitk.data.corpus.corpus import Pairs
from unitk.data.corpus.folders import corpus_vocab, open_corpus, parts
from unitk.data.examples import train_parts
from unitk.errors import DataError, UnitkError, UsageError
from unitk.fairseq import corpus as fairseq
from unitk.fairseq.corpus import SMALL
from unitk.formats.dictionary import FairseqDictionary
from unitk.verbs import preprocess
from unitk.vocab.open import open_vocab

TEXT = "b a b\n\na c\n c  b <unk> z\n"
DICT = "b 3\na 2\nc 2\nz 1\n"
MAGIC = b"MMIDIDX\x00\x00"


def put(folder, name, items, code=8, words=DICT, langs=()):
    """A split written with struct, as the format's description has it."""
    folder.mkdir(exist_ok=True)
    kind = {1: "u1", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4"}[code]
    data = [np.array(item, kind).tobytes() for item in items]
    offsets = np.cumsum([0, *map(len, data)])[:-1]
    head = MAGIC + struct.pack("<QBQ", 1, code, len(items))
    sizes = struct.pack(f"<{len(items)}i", *map(len, items))
    (folder / f"{name}.idx").write_bytes(
        head + sizes + struct.pack(f"<{len(items)}q", *offsets.tolist())
    )
    (folder / f"{name}.bin").write_bytes(b"".join(data))
    for lang in langs or [""]:
        (folder / f"dict{lang and '.'}{lang}.txt").write_text(words, encoding="utf-8")
    return folder


def run(words):
    preprocess.run(words.split())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


def test_the_bytes_of_a_folder(here):
    """`z` and `<unk>` are rare; b a c and one filler fill 8 ids: b 4, a 5, c 6."""
    run("--input x.txt --format fairseq --vocab-threshold 2 --dest d")
    assert sorted(os.listdir("d")) == ["dict.txt", "train.bin", "train.idx"]
    assert (here / "d" / "dict.txt").read_bytes() == b"b 3\na 2\nc 2\nmadeupword0000 0\n"
    ids = [4, 5, 4, 2, 2, 5, 6, 2, 6, 4, 3, 3, 2]
    assert (here / "d" / "train.bin").read_bytes() == struct.pack("<13H", *ids)
    index = (here / "d" / "train.idx").read_bytes()
    assert index == (
        b"MMIDIDX\x00\x00"
        b"\x01\x00\x00\x00\x00\x00\x00\x00"
        b"\x08"
        b"\x04\x00\x00\x00\x00\x00\x00\x00"
        b"\x04\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x05\x00\x00\x00"
        + struct.pack("<4q", 0, 8, 10, 16)
    )
    assert len(index) == 26 + 12 * 4


@pytest.mark.parametrize(
    ("size", "code", "kind"),
    [(SMALL - 1, 8, "<u2"), (SMALL, 9, "<u4"), ((1 << 32) - 1, 5, "<i8")],
)
def test_the_type_of_ids_follows_the_vocabulary(tmp_path, size, code, kind):
    (tmp_path / "x").write_text("one two\nthree")
    words = SimpleNamespace(size=size, unk=3, line=lambda text: [7] * len(text.split()) + [2])
    assert fairseq._write_side(tmp_path / "train", [tmp_path / "x"], words) == 0
    assert (tmp_path / "train.bin").read_bytes() == np.array([7, 7, 2, 7, 2], kind).tobytes()
    assert (tmp_path / "train.idx").read_bytes()[17] == code


def test_lines_are_those_of_a_text_file(tmp_path):
    (tmp_path / "x").write_bytes("a\r\nb\u2028c\rd\n\n\u3000\te".encode())
    assert list(fairseq._lines([tmp_path / "x"])) == ["a\n", "b\u2028c\n", "d\n", "\n", "\u3000\te"]
    (tmp_path / "x").write_bytes(b"a\nb\xff\n")
    with pytest.raises(DataError, match="x, after line [01]: not UTF-8"):
        list(fairseq._lines([tmp_path / "x"]))


def test_ends_are_dropped_and_empty_lines_end_documents(tmp_path):
    items = [[2], [4, 5, 2], [6, 2], [2], [2], [5, 2], [2]]
    corpus = open_corpus(put(tmp_path / "d", "train", items))
    assert [[s.tolist() for s in corpus.document(i)] for i in range(2)] == [[[4, 5], [6]], [[5]]]
    assert (corpus.counts.documents, corpus.counts.sentences, corpus.counts.tokens) == (2, 3, 4)
    assert corpus.tokens(0, 4).tolist() == [4, 5, 6, 5] and corpus.tokens(1, 3).tolist() == [5, 6]
    assert corpus.tokens(4, 4).tolist() == corpus.tokens(0, 0).tolist() == []
    assert "items dropped" in corpus.note
    vocab = corpus_vocab(tmp_path / "d")
    assert (vocab.cls, vocab.pad, vocab.sep, vocab.unk, vocab.mask) == (0, 1, 2, 3, 8)
    assert vocab.hash == corpus.vocab_hash == open_vocab(tmp_path / "d").hash


@pytest.mark.parametrize("code", [1, 4, 5, 8, 9])
def test_ends_that_some_item_lacks_are_words(tmp_path, code):
    items = [[4, 5, 2], [2], [6], [], [5, 2]]
    corpus = open_corpus(put(tmp_path / "d", "train", items, code))
    assert corpus.tokens(0, 6).tolist() == [4, 5, 2, 6, 5, 2]
    assert "which 2 of 5 items" in corpus.note
    assert corpus.documents.tolist() == [0, 1, 4] and corpus.sentences.tolist() == [0, 3, 4, 4, 6]


def test_any_stretch_of_tokens(tmp_path):
    rng = np.random.default_rng(0)
    items = [[*rng.integers(3, 8, rng.integers(0, 5)).tolist(), 2] for _ in range(60)]
    corpus = open_corpus(put(tmp_path / "d", "train", items))
    plain = [i for item in items for i in item[:-1]]
    for start, stop in np.sort(rng.integers(0, len(plain) + 1, (200, 2))).tolist():
        assert corpus.tokens(start, stop).tolist() == plain[start:stop]


def test_a_folder_is_the_corpus_that_unitk_makes_of_the_same_text(here):
    """The same vocabulary, sentences, documents and ids: a run reads the same."""
    lines = [" ".join(f"w{i * j % 9}" for j in range(i % 5)) for i in range(50)]
    (here / "x.txt").write_text("\n".join(lines))
    run("--input x.txt --format fairseq --dest theirs")
    run("--input x.txt --vocab theirs --dest ours --workers 1")
    theirs, ours = open_corpus(here / "theirs"), open_corpus(here / "ours")
    assert theirs.vocab_hash == ours.vocab_hash
    for name in ("sentences", "documents"):
        assert np.array_equal(getattr(theirs, name), getattr(ours, name))
    assert np.array_equal(
        theirs.tokens(0, theirs.counts.tokens), ours.tokens(0, ours.counts.tokens)
    )


def test_pairs(tmp_path):
    folder = tmp_path / "d"
    put(folder, "train.de-en.de", [[4, 2], [2], [5, 5, 2]], langs=("de",))
    put(folder, "train.de-en.en", [[6, 2], [5, 2], [2]], langs=("en",))
    pairs = open_corpus(folder)
    assert isinstance(pairs, Pairs) and len(pairs) == 3
    found = [
        ([part.tolist() for part in pairs.record(i)[0]], [*pairs.record(i)[1]]) for i in range(3)
    ]
    assert found == [([[4]], [6]), ([[]], [5]), ([[5, 5]], [])]
    back = open_corpus(folder / "train.en-de")
    assert back.source.tokens(0, 2).tolist() == [6, 5] and back.record(0)[1].tolist() == [4]
    one = open_corpus(folder / "train.de-en.de")
    assert one.kind == "text" and one.tokens(0, 3).tolist() == [4, 5, 5]
    put(folder, "train.de-en.en", [[6, 2]], langs=("en",))
    with pytest.raises(DataError, match="train.de-en: 3 sources, but 1 targets"):
        open_corpus(folder)


def test_two_dictionaries_are_refused(tmp_path):
    put(tmp_path / "d", "train.de-en.de", [[4, 2]], langs=("de",))
    put(tmp_path / "d", "train.de-en.en", [[4, 2]], langs=("en",), words="x 1\n")
    for opened in (open_corpus, corpus_vocab):
        with pytest.raises(DataError, match="dict.en.txt differ.* --joined-dictionary"):
            opened(tmp_path / "d")
    with pytest.raises(DataError, match="dict.de.txt and dict.en.txt, which differ"):
        open_vocab(tmp_path / "d")
    assert open_corpus(tmp_path / "d" / "train.de-en.en").counts.tokens == 1


def test_names_of_splits(tmp_path):
    folder = tmp_path / "d"
    for name in ("train", "train1", "train2", "valid", "valid1"):
        put(folder, name, [[4, 2]])
    assert [path.name for path in train_parts(folder)] == ["train", "train1", "train2"]
    assert train_parts(folder / "valid1") == [folder / "valid1"]
    assert parts(folder) == ["train", "train1", "train2", "valid", "valid1"]
    with pytest.raises(DataError, match="holds no split tset .*but train, train1"):
        open_corpus(folder / "tset")
    put(folder, "test.en-None.en", [[4, 2]], langs=("en",))  # --only-source -s en
    assert open_corpus(folder / "test").counts.tokens == 1
    for pair in ("de-en", "fr-en"):
        for lang in pair.split("-"):
            put(folder, f"test.{pair}.{lang}", [[4, 2]], langs=(lang,))
    with pytest.raises(DataError, match="several pairs; give test.de-en or"):
        open_corpus(folder / "test")
    assert len(open_corpus(folder / "test.fr-en")) == 1
    (folder / "test.fr-en.en.idx").unlink()
    with pytest.raises(DataError, match="test.fr-en.en.idx: No such"):
        open_corpus(folder / "test.fr-en")
    (folder / "dict.en.txt").unlink()
    with pytest.raises(DataError, match="dict.en.txt is missing"):
        open_corpus(folder / "test.fr-en")


def test_other_formats_are_refused_by_name(tmp_path):
    folder = put(tmp_path / "d", "train", [[4, 5, 2], [6, 2]])
    index = folder / "train.idx"
    whole = index.read_bytes()
    # Megatron: documents are counted after the items, and their first items come at the end
    more = whole[:26] + struct.pack("<Q", 2) + whole[26:] + struct.pack("<2Q", 0, 2)
    cached = b"TNTIDX\x00\x00" + struct.pack("<5Q", 1, 8, 2, 2, 5)
    for data, message in [
        (more, "is Megatron's index"),
        (cached, "format cached or lazy, .* --dataset-impl mmap"),
        (b"HUFFIDX\x00\x00" + whole[9:], "format huffman"),
        (b"", "does not begin as an index"),
        (whole[:9] + b"\x02" + whole[10:], "does not begin as an index"),
        (whole[:17] + b"\x07" + whole[18:], "of type 7, numbers with a fraction"),
        (whole[:17] + b"\x0b" + whole[18:], "of type 11, no known type"),
        (whole[:-1], "has 49 bytes, which are not 2 items"),
        (whole[:18] + b"\xff" * 8 + whole[26:], "are not 18,446,744,073,709,551,615 items"),
        (whole[:26] + b"\xff" * 4 + whole[30:], "sizes and offsets do not fit"),
        (whole[:34] + b"\x01" + whole[35:], "sizes and offsets do not fit"),
        (whole[:17] + b"\x04" + whole[18:], "sizes and offsets do not fit"),
        (whole[:17] + b"\x03" + whole[18:], None),
    ]:
        index.write_bytes(data)
        if message is None:  # int16 of the same bytes: no id is so high that it matters
            assert open_corpus(folder).tokens(0, 3).tolist() == [4, 5, 6]
            continue
        with pytest.raises(DataError, match=message) as caught:
            open_corpus(folder)
        assert "train.idx" in str(caught.value) and "\n" not in str(caught.value)
    index.write_bytes(whole)
    (folder / "train.bin").write_bytes(b"\x04\x00")
    with pytest.raises(DataError, match="train.bin has 2 bytes instead.* 10 of train.idx"):
        open_corpus(folder)
    (folder / "train.bin").write_bytes(struct.pack("<5H", 4, 5, 2, 9, 2))
    with pytest.raises(DataError, match="train.bin: token 9 at byte 6 .*beyond.* 8"):
        open_corpus(folder)
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "dict.de.txt").write_text(DICT)
    (raw / "train.de-en.de").write_text(TEXT)
    with pytest.raises(DataError, match="of fairseq's.*, .*--dataset-impl mmap"):
        open_corpus(raw)


def test_a_dictionary_that_has_a_symbol_again(tmp_path):
    """With the flag that fairseq asks for, a line more has an id more (as CamemBERT's)."""
    (tmp_path / "dict.txt").write_text("<unk> 9 #fairseq:overwrite\n<s> 8 #fairseq:overwrite\na 1")
    model = open_vocab(tmp_path / "dict.txt").model
    assert isinstance(model, FairseqDictionary)
    assert (model.size, model.find("<s>"), model.find("a"), model.unk) == (7, 5, 6, 3)


def test_marks_of_word_pieces_are_undone(tmp_path):
    path = tmp_path / "dict.txt"
    path.write_text("\u2581the 9\n\u2581c 5\nat 2\n", encoding="utf-8")
    vocab = open_vocab(path)
    assert vocab.decode([4, 5, 6]) == "the cat" and vocab.encode("\u2581the at") == [4, 6]
    assert vocab.starts[4:7].tolist() == [True, True, False]
    path.write_text("the 9\nc@@ 5\nat 2\n")
    assert open_vocab(path).decode([4, 5, 6, 5]) == "the cat c"
    path.write_text("the 9\nc 5\nat 2\n")
    assert open_vocab(path).decode([4, 5, 6]) == "the c at"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--input x.txt --workers 2", "--workers has no effect with --format fairseq"),
        ("--input x.txt --documents line", "--documents has no effect with --format fairseq"),
        ("--input x.txt --vocab-size 4", "--vocab-size must be above 4"),
        ("--input x.txt --input-format squad", "takes text or pairs of lines, not squad"),
        ("--source-file x.txt --target-file x.txt --source-lang d-e", "must differ and have no"),
        ("--input x.txt --vocab spm", "spm: --format fairseq needs a dict.txt"),
        ("--valid x.txt", "--format fairseq needs --input or --source-file"),
    ],
)
def test_a_line_that_cannot_be_meant(here, toy_vocab, words, message):
    toy_vocab.save(here / "spm")
    with pytest.raises(UsageError, match=message):
        run(f"{words} --format fairseq --dest d")
    assert not (here / "d").exists()
    with pytest.raises(UsageError, match="--source-lang .*no effect.* --format unitk"):
        run("--input x.txt --source-lang de --dest d")


def test_a_folder_is_whole_or_not_there(here):
    (here / "y.txt").write_text("a\n")
    for files, message in [
        ("--source-file x.txt --target-file y.txt", "x.txt has 4 lines, but y.txt has 1"),
        ("--input x.txt --valid empty.txt", "empty.txt: there is no text in it"),
    ]:
        (here / "empty.txt").write_text("\n\n")
        with pytest.raises(DataError, match=message):
            run(f"{files} --format fairseq --dest d")
        assert sorted(os.listdir()) == ["empty.txt", "x.txt", "y.txt"]
    run("--input x.txt --format fairseq --dest d")
    with pytest.raises(UsageError, match="--overwrite replaces it"):
        run("--input x.txt --format fairseq --dest d")
    run("--input x.txt --valid x.txt --vocab d --format fairseq --dest d2")
    assert (here / "d2" / "valid.bin").read_bytes() == (here / "d" / "train.bin").read_bytes()
    run("--input x.txt --format fairseq --vocab-only --overwrite --dest d")
    assert os.listdir("d") == ["dict.txt"]


def text_of(rng, lines):
    """Lines of words, empty ones among them, with all that separates words and lines."""
    words = [f"w{i}" for i in range(300)] + ["<unk>", "<s>", "\u00e9", "\u4e2d", "madeupword0001"]
    odds = 1 / np.arange(1, len(words) + 1)
    found = []
    for _ in range(lines):
        some = rng.choice(words, rng.integers(0, 20), p=odds / odds.sum())
        found.append(rng.choice([" ", "  ", "\t", "\u3000", "\u2028"]).join(some))
    return "\n".join(found) + rng.choice(["", "\n", "\r\n"])


@pytest.mark.slow
@needs_fairseq
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            "--input a.de --valid b.de --input-format text",
            "--only-source --trainpref A --validpref B",
        ),
        ("--vocab-size 50", "--nwordssrc 50"),
        ("--vocab-threshold 3", "--thresholdsrc 3 --workers 2"),
        ("--vocab old.txt", "--srcdict old.txt"),
    ],
)
def test_the_bytes_are_those_of_fairseq(here, ours, theirs):
    rng = np.random.default_rng(1)
    for name in ("a.de", "a.en", "b.de", "b.en"):
        (here / name).write_text(text_of(rng, 200), encoding="utf-8", newline="")
    (here / "old.txt").write_text("".join(f"w{i} {90 - i}\n" for i in range(40)))
    if "--input" not in ours:
        ours += " --source-file a.de --target-file a.en --source-lang de --target-lang en"
        ours += " --valid-source-file b.de --valid-target-file b.en"
        theirs += " -s de -t en --joined-dictionary --trainpref a --validpref b"
    run(f"{ours} --format fairseq --dest ours")
    words = theirs.replace("A", "a.de").replace("B", "b.de").split()
    run_fairseq("preprocess", *words, "--destdir", "theirs")
    names = sorted(os.listdir("ours"))
    assert names == sorted({*os.listdir("theirs")} - {"preprocess.log"})
    for name in names:
        assert (here / "ours" / name).read_bytes() == (here / "theirs" / name).read_bytes(), name


def mutated(data, rng):
    """A file's bytes, damaged in one of the ways that happen; mostly near the start."""
    kind, at = rng.integers(6), int(rng.integers(len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        flipped = bytearray(data)
        for _ in range(rng.integers(1, 8)):
            flipped[int(len(data) * rng.random() ** 4)] = rng.integers(256)
        return bytes(flipped)
    if kind == 2:
        return data[:at] + bytes(rng.integers(0, 256, 40, dtype=np.uint8)) + data[at:]
    if kind == 3:  # huge counts and sizes
        return data[:at] + b"\xff" * 8 + data[at + 8 :]
    if kind == 4:  # another type, or another count
        place = int(rng.choice([17, 18, 19, 25]))
        return data[:place] + bytes([rng.integers(256)]) + data[place + 1 :]
    return data[:at] + data[at + int(rng.integers(1, 64)) :]


def fuzz(folder, count, seed, limit=64 << 20):
    """How many of so many damaged files were refused; the others say what their bytes say."""
    import tracemalloc

    rng = np.random.default_rng(seed)
    words = "".join(f"w{i} {200 - i}\n" for i in range(196))
    for name in ("train", "train.de-en.de", "train.de-en.en"):
        items = [[*rng.integers(3, 200, rng.integers(0, 9)).tolist(), 2] for _ in range(40)]
        put(folder / name[:5], name, items, words=words, langs=name[12:].split())
        if name == "train":
            (folder / "train").rename(folder / "text")
    (folder / "train").rename(folder / "pairs")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = {path: path.read_bytes() for path in files}
    ended = 0
    tracemalloc.start()
    for number in range(count):
        victim = files[number % len(files)]
        victim.write_bytes(mutated(whole[victim], rng))
        try:
            corpus = open_corpus(victim.parent)
        except UnitkError as error:
            ended += 1
            said = str(error)
            assert "\n" not in said and len(said) < 500 and victim.parent.name in said, said
            assert not re.search(r"Traceback|object at 0x|NoneType|KeyError", said), said
        else:
            check_read(corpus)
        victim.write_bytes(whole[victim])
    assert tracemalloc.get_traced_memory()[1] < limit
    tracemalloc.stop()
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == files
    return ended


def check_read(corpus):
    """What was read is what the files say, word for word, by another way of reading them."""
    for one in (corpus.source, corpus.target) if isinstance(corpus, Pairs) else (corpus,):
        index = one.path.with_name(one.path.name + ".idx").read_bytes()
        sizes = np.frombuffer(index, "<i4", (len(index) - 26) // 12, 26)
        ids = np.frombuffer(one.file.read_bytes(), one.dtype)
        items = np.split(ids, np.cumsum(sizes)[:-1])
        if one is corpus:  # empty lines end documents
            items = [item for item in items if item.tolist() != [2]]
        if one.ended:
            items = [item[:-1] for item in items]
        assert one.tokens(0, one.counts.tokens).tolist() == np.concatenate(items).tolist()
        assert ids.max() < 200


def test_damaged_files_are_told_in_one_line(tmp_path):
    assert fuzz(tmp_path, 100, seed=0) > 30


@pytest.mark.slow
def test_many_damaged_files_are_told_in_one_line(tmp_path):
    assert fuzz(tmp_path, 1500, seed=1) > 500
