"""A stream read in chunks by stateful rows is the stream read at once: nothing is left out."""

import numpy as np
import pytest
import torch
from exact_options import EXACT

from unitk.data.corpus.corpus import Corpus
from unitk.evaluation import objective as evaluate
from unitk.models.state import StatefulRows
from unitk.slots import TOKEN, Example, collate, lm, stay
from unitk.training import loop
from unitk.training.start import parse_train, prepare

COMMON = (
    "--stateful-rows 1 --max-tokens 4096 --max-steps 1 --valid none --writers none --threads 1"
    f" --device cpu --precision fp32 {EXACT}"
)


@pytest.fixture
def trainer(toy_data, tmp_path):
    def make(words):
        words = f"{words} --data {toy_data / 'text' / 'valid'} --save-dir {tmp_path / 'run'}"
        made = loop.Trainer(prepare(parse_train(f"{words} {COMMON}".split())))
        made.model.eval()
        return made

    return make


@torch.no_grad()
def epoch(trainer, name):
    """What the row reads in an epoch, what it is asked for, and the log-probabilities of that."""
    read, labels, gains, words = [], [], [], 0
    stateful = StatefulRows(1, {})
    for update, _, counted in trainer.data.updates(trainer.feed, 0, 0):
        [batch] = update.batches
        words += counted
        tower = batch.asks[name].tower
        size = int((batch.towers[tower][0, 0] > 0).sum())
        read += batch.towers[tower][TOKEN, 0, :size].tolist()
        labels += batch.asks[name].label.tolist()
        moved = stateful.attach(batch.to("cpu"))
        gains.append(trainer.model.log_probs(moved, moved.asks[name]))
        stateful.keep(moved, trainer.model(moved)[1])
        stateful.advance()
        if not update.cursor:
            return read, labels, torch.cat(gains), words


@torch.no_grad()
def at_once(model, read, rows, labels):
    """The log-probabilities of the labels where all is read as one text."""
    read, places = np.array(read), np.arange(len(read))
    slots = stay(read, pos=places, at=places)
    batch = collate([[Example({"x": slots}, [lm(np.array(rows), labels)])]]).to("cpu")
    return model.log_probs(batch, batch.asks["lm"])


def documents(toy_data, turned):
    corpus = Corpus(toy_data / "text" / "valid")
    bounds = corpus.sentences[corpus.documents]
    found = [corpus.tokens(*run).tolist() for run in zip(bounds, bounds[1:], strict=False)]
    return [one[::-1] for one in found[::-1]] if turned else found, int(corpus.words[-1])


def expected(docs, blocks, start, end):
    """What is read, and at which of these slots what is asked, if all is one text."""
    if blocks == "stream":
        body = [token for doc in docs for token in [*doc, *end]]
        whole = [*start, *body]
        return whole, {i: whole[i + 1] for i in range(len(whole) - 1)}
    read, asked = [], {}
    for number, doc in enumerate(docs):
        own = [*start, *doc, *([] if start else end)]
        following = [*end] if start else docs[number + 1][:1] if number + 1 < len(docs) else []
        labels = [*own[1:], *following]
        asked |= {len(read) + i: label for i, label in enumerate(labels)}
        read += own
    return read, asked


CASES = [
    ("awd_lstm_tiny", "stream", "none", "off", "off"),
    ("awd_lstm_tiny", "stream", "cls", "off", "off"),
    ("awd_lstm_tiny", "stream", "sep", "on", "off"),
    ("awd_lstm_tiny", "stream", "none", "on", "on"),
    ("awd_lstm_tiny", "doc", "cls", "on", "off"),
    ("awd_lstm_tiny", "doc", "none", "on", "off"),
    ("awd_lstm_tiny", "doc", "none", "off", "on"),
    ("awd_lstm_tiny", "doc", "cls", "off", "off"),
    ("awd_lstm_tiny", "full", "sep", "on", "off"),
    ("xlnet_tiny --arch.memory-length 1200", "stream", "none", "off", "off"),
    ("xlnet_tiny --arch.memory-length 1200", "doc", "cls", "on", "off"),
]


@pytest.mark.every(2)
@pytest.mark.parametrize(("arch", "blocks", "opening", "ends", "backward"), CASES)
def test_chunks_are_the_stream_and_ask_for_every_token_once(
    trainer, toy_data, toy_vocab, arch, blocks, opening, ends, backward
):
    made = trainer(
        f"--task lm --arch {arch} --blocks {blocks} --block-size 24 --task.opening {opening}"
        f" --task.ends {ends} --task.backward {backward}"
    )
    read, labels, gains, words = epoch(made, "lm")
    v = toy_vocab
    start = {"cls": [v.cls], "sep": [v.sep], "none": []}[opening]
    docs, every = documents(toy_data, backward == "on")
    whole, asked = expected(
        docs, "stream" if blocks == "stream" else "doc", start, [v.sep] * (ends == "on")
    )
    if blocks == "full":
        # documents within a block have a separator, which is read, and no opening
        assert [t for t in read if t != v.sep] == [t for doc in docs for t in doc]
        assert labels == [t for doc in docs for t in [*doc, v.sep]]
        return
    assert read == whole[: len(read)] and len(whole) - len(read) <= 1
    assert labels == [*asked.values()]
    near = at_once(made.model, read, [*asked], labels)
    torch.testing.assert_close(gains, near, rtol=1e-5, atol=1e-5)
    assert words == every


@pytest.mark.slow
def test_both_directions_are_asked_for_every_word_once(trainer, toy_data, toy_vocab):
    made = trainer("--task bilm --arch elmo_tiny --blocks stream --block-size 20 --task.ends off")
    read, labels, gains, words = epoch(made, "fwd")
    docs, every = documents(toy_data, turned=False)
    whole = [token for doc in docs for token in doc]
    assert read == whole and labels == whole[1:] and words == every
    assert epoch(made, "bwd")[1] == whole[:-1]
    sizes = made.data.train.items.lengths
    assert sizes.max() == 20, "a block is as long as it says"
    places = np.arange(len(whole))
    towers = {
        way: stay(read, pos=places, at=sign * places) for way, sign in (("bwd", -1), ("fwd", 1))
    }
    chars = made.data.task.chars[np.array(read)]
    ask = lm(places[:-1], labels, name="fwd", tower="fwd")
    batch = collate([[Example(towers, [ask], inputs={"fwd.chars": chars})]]).to("cpu")
    with torch.no_grad():
        near = made.model.log_probs(batch, batch.asks["fwd"])
    torch.testing.assert_close(gains, near, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_words_of_cut_documents_are_asked_for_by_their_neighbours(trainer, toy_data, toy_vocab):
    made = trainer("--task bilm --arch elmo_tiny --block-size 20")
    docs, _ = documents(toy_data, turned=False)
    v = toy_vocab
    framed = [[v.cls, *doc, v.sep] for doc in docs]
    read, labels, *_ = epoch(made, "fwd")
    assert read == [token for doc in framed for token in doc]
    assert labels == [token for doc in framed for token in doc[1:]]
    assert epoch(made, "bwd")[1] == [token for doc in framed for token in doc[:-1]]


def test_evaluation_reads_the_stream(trainer, toy_data, tmp_path):
    made = trainer(
        "--task lm --arch awd_lstm_tiny --blocks stream --block-size 24 --task.opening none"
    )
    start = made.start
    loop.train(start)
    opened = evaluate.open_setup(
        tmp_path / "run", toy_data / "text" / "valid", torch.device("cpu"), rows=1
    )
    found = evaluate.objective(opened, 300, lambda done: None)
    docs, _ = documents(toy_data, turned=False)
    whole, asked = expected(docs, "stream", [], [opened.data.vocab.sep])
    near = at_once(opened.model, whole, [*asked], [*asked.values()])
    assert found["loss"] == pytest.approx(-float(near.mean()), rel=1e-5)


def test_documents_that_are_cut_have_one_end_each(trainer, toy_data, tmp_path):
    """Perplexities count the ends of documents, not those of blocks; so does the model."""
    made = trainer("--task lm --arch awd_lstm_tiny --block-size 24")
    loop.train(made.start)
    corpus = toy_data / "text" / "valid"
    opened = evaluate.open_setup(tmp_path / "run", corpus, torch.device("cpu"))
    found = evaluate.objective(opened, 300, lambda done: None)
    docs, _ = documents(toy_data, turned=False)
    assert opened.num_texts > 2 * len(docs)
    assert found["tokens"] == sum(map(len, docs)) + len(docs)
    assert found["ppl_token"] == pytest.approx(found["lm/ppl"], rel=1e-6)
