"""Words of texts: counted where the corpus is made, shared out among its cuts; who needs them."""

from itertools import islice

import numpy as np
import pytest
from conftest import toy_lines, write_text

from unitk.data.batching import Feed
from unitk.data.corpus.columns import WORDS
from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.merge import Options as Merging
from unitk.data.corpus.merge import merge
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.data.corpus.writer import CorpusWriter
from unitk.data.texts import Texts
from unitk.errors import DataError, UsageError

LINES = [
    "One two  three.",
    "",
    "Four\tfive",
    "six seven eight nine",
    "",
    "Ten.",
    "Don't stop now, he said.",
]
COUNTS = [3, 2, 4, 1, 5]


def texts_of(corpora, blocks, size):
    return Texts(corpora, blocks=blocks, size=size, separator=3, seed=1)


def test_words_of_sentences_are_those_between_blanks(tmp_path, toy_vocab):
    toy_vocab.save(tmp_path / "vocab")
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n")
    options = {"input": (str(tmp_path / "a.txt"),), "vocab": tmp_path / "vocab"}
    preprocess(Options(dest=tmp_path / "d", **options))
    corpus = Corpus(tmp_path / "d" / "train")
    assert np.diff(corpus.words).tolist() == COUNTS and corpus.counts.words == sum(COUNTS)
    preprocess(Options(dest=tmp_path / "punct", sentences="punct", **options))
    assert Corpus(tmp_path / "punct" / "train").counts.words == sum(COUNTS)
    for i in range(2):
        preprocess(Options(dest=tmp_path / f"s{i}", shard=f"{i}/2", **options))
    merge(Merging(parts=(tmp_path / "s0", tmp_path / "s1"), dest=tmp_path / "merged"))
    merged = tmp_path / "merged" / "train"
    assert (merged / WORDS.file).read_bytes() == (
        tmp_path / "d" / "train" / WORDS.file
    ).read_bytes()


def test_every_cut_has_all_words_and_whole_sentences_their_own(tmp_path, toy_vocab):
    lines = toy_lines(60)
    for name, some in {"a": lines[:40], "b": lines[40:]}.items():
        write_text(tmp_path / name, toy_vocab, some)
    corpora = [Corpus(tmp_path / name) for name in "ab"]
    words = sum(len(line.split()) for line in lines)
    for blocks in ("doc", "full", "stream", "line"):
        for size in (7, 30, 200):
            texts = texts_of(corpora, blocks, size)
            for epoch in range(12):
                texts.begin(epoch)
                assert len(texts.words) == len(texts.lengths) and (texts.words >= 0).all()
                if blocks != "line" or size == 200:
                    assert texts.words.sum() == words
    texts = texts_of(corpora, "line", 200)
    texts.begin(0)
    assert texts.words.tolist() == [len(line.split()) for line in lines]


def test_the_same_text_with_and_without_words_is_the_same_data(tmp_path, toy_vocab):
    """A run goes on with a corpus that was made again."""
    write_text(tmp_path / "new", toy_vocab, toy_lines(5))
    one = Corpus(tmp_path / "new")
    writer = CorpusWriter(tmp_path / "old", len(toy_vocab))
    toy_vocab.save(tmp_path / "old" / "vocab")
    ids = one.tokens(0, one.counts.tokens)
    writer.add(ids, np.diff(one.sentences), np.diff(one.documents))
    writer.close({"vocab": toy_vocab.hash})
    assert Corpus(tmp_path / "old").fingerprint == one.fingerprint
    assert one.has(WORDS) and not Corpus(tmp_path / "old").has(WORDS)


def feed_of(source, **options):
    return Feed(examples=source, seed=1, max_tokens=400, batch_tokens=300, **options)


def test_updates_are_counted_until_the_words_are_read(start):
    begun = start("--task lm --arch gpt2_tiny --max-epochs 3 --blocks doc")
    feed = feed_of(begun.data.train)
    number = sum(map(feed.updates_per_epoch, range(3)))
    seen = np.cumsum([words for *_, words in islice(begun.data.updates(feed, 0, 0), number)])
    assert seen[-1] == 3 * sum(len(line.split()) for line in toy_lines(200))
    for words in (1, 500, 1594, 1595, seen[3], seen[3] + 1, seen[-1]):
        assert begun.data.updates_until(feed, words) == 1 + (seen < words).sum()


def test_what_has_no_words_is_refused(start, tmp_path, toy_vocab):
    with pytest.raises(UsageError, match="--max-words .*count.*texts.*holds pairs"):
        start("--max-words 1k", data="pairs")
    folder = tmp_path / "old"
    writer = CorpusWriter(folder, len(toy_vocab))
    toy_vocab.save(folder / "vocab")
    writer.add(np.arange(20, 40), np.array([20]), np.array([1]))
    writer.close({"vocab": toy_vocab.hash})
    with pytest.raises(DataError, match="old .*not say.*many .*: run.*again"):
        start(f"--max-steps 1 --save-at-words 1k --data {folder}")
    with pytest.raises(UsageError, match=r"--save-at-words: \.\.\. .*numbers"):
        start("--max-steps 1 --save-at-words 1k,...,5k")


@pytest.mark.parametrize("size", [7, 10, 23])
def test_texts_of_a_stream_lie_side_by_side_with_separators_between_documents(
    toy_data, toy_vocab, size
):
    """Tokens, borders of sentences and neighbours, also where a separator is at a text's edge."""
    corpus = Corpus(toy_data / "text" / "valid")
    bounds = corpus.sentences[corpus.documents]
    whole = np.insert(corpus.tokens(0, corpus.counts.tokens), bounds[1:-1], toy_vocab.sep)
    # a sentence begins after the separator of the document before
    starts = corpus.sentences[:-1] + np.searchsorted(bounds[1:-1], corpus.sentences[:-1], "right")
    texts = Texts([corpus], blocks="stream", size=size, separator=toy_vocab.sep, seed=1)
    at, edges = 0, 0
    for epoch in range(12):
        texts.begin(epoch)
        every = [texts.text(i) for i in range(len(texts.lengths))]
        assert [token for text in every for token in text.ids] == whole.tolist()
        for i, text in enumerate(every):
            at = int(texts.lengths[:i].sum())
            stop = at + len(text.ids)
            own = starts[(starts > at) & (starts < stop)] - at
            first = text.ids[0] == toy_vocab.sep  # it belongs to the sentence that it ends
            assert [*text.sentences] == [0, *own[own > first]]
            assert text.before.tolist() == whole[max(at - 1, 0) : at].tolist()
            assert text.after.tolist() == whole[stop : stop + 1].tolist()
            edges += (text.ids[0] == toy_vocab.sep) + (text.ids[-1] == toy_vocab.sep)
    assert edges > 5
