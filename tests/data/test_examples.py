"""The data of a run: kinds, epochs, validation, words, and what does not suit a task."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from unitk.data.batching import FixedBatches, draw
from unitk.data.corpus.writer import CorpusWriter
from unitk.errors import DataError, UsageError
from unitk.slots import POS
from unitk.training.start import parse_train, prepare
from unitk.vocab.open import open_vocab


def test_texts_are_pretrained_on_and_pairs_fine_tuned_on(start):
    text, pairs = start("--max-steps 1").data, start("--max-steps 1", data="pairs").data
    assert (text.kind, pairs.kind) == ("text", "pairs")
    assert text.about.startswith("pre-training") and pairs.about.startswith("fine-tuning")
    one = draw(text.train, 1, 0, 3)
    assert len(one.towers["x"]) <= text.train.bounds(0)[3]
    source, target = pairs.train.items.lengths[:2], pairs.train.bounds(0)[:2]
    assert (target - source == 5).all()
    assert (text.parts, pairs.parts) == (0, 1)


def test_opening_cuts_nothing(start):
    """So it takes milliseconds, however large the corpus is."""
    assert start("--max-steps 1 --blocks stream").data.train.items.epoch is None


@pytest.mark.parametrize("blocks", ["doc", "full", "stream"])
def test_an_epoch_has_the_tokens_of_the_corpus(start, blocks):
    """The separators between its documents are none of them."""
    begun = start(f"--max-steps 1 --block-size 20 --blocks {blocks}")
    from unitk.training.loop import Trainer

    trainer = Trainer(begun)
    updates = begun.data.updates(trainer.feed, 0, 0)
    total = 0
    while True:
        update, tokens, _ = next(updates)
        total += tokens
        if update.cursor == 0:
            break
    [corpus] = begun.data.train.corpora
    assert total == corpus.counts.tokens


def test_validation_is_found_beside_train_or_named_or_left_out(start, toy_data):
    found = prepare_words(start, toy_data, "").data.valid
    assert list(found) == ["valid"]
    named = prepare_words(start, toy_data, f"--valid dev={toy_data / 'text'},{toy_data / 'text'}")
    assert list(named.data.valid) == ["dev", "valid"]
    assert not prepare_words(start, toy_data, "--valid none").data.valid
    batches = [b for _, b in FixedBatches(found["valid"], 400)]
    assert sum(len(batch.owner) for batch in batches) == 60


def prepare_words(start, toy_data, words):
    base = f"--task glm_infill --arch glm_tiny --blocks line --data {toy_data / 'text'}"
    return prepare(parse_train(f"{base} --save-dir {toy_data}/run --max-steps 1 {words}".split()))


def test_pairs_count_whole_whatever_the_mixture_of_pre_training(start):
    options = "--max-steps 1 --task.mixture 0.5,0,0.5"
    assert start(options).data.train.loss_weights(0, 1)["lm"] == 0.5
    pairs = start(options, data="pairs").data.train
    assert pairs.loss_weights(0, 1).get("lm", 1.0) == 1


def test_weights_count(start, toy_data):
    data = start(f"--max-steps 1 --data {toy_data / 'text'}=0.5,{toy_data / 'text'}=2").data
    weights = data.train.weights(0)
    assert weights.tolist() == [0.5] * 200 + [2.0] * 200
    assert data.fingerprint != start("--max-steps 1").data.fingerprint


def test_what_is_too_long_is_cut_and_counted(start):
    data = start("--max-steps 1 --max-source-len 5 --max-target-len 2", data="pairs").data
    words = data.train.shortened
    assert "5 source and 2 target tokens" in words
    assert data.train.items.lengths.max() == 7
    lines = start("--max-steps 1 --block-size 12").data
    assert "off at 10 tokens" in lines.train.shortened
    assert not start("--max-steps 1").data.train.shortened


def test_what_fits_the_positions_is_the_limit(start):
    data = start("--max-steps 1 --arch.max-positions 24", data="pairs").data
    longest = max(
        int(slots.table[POS].max())
        for i in range(200)
        for slots in draw(data.train, 1, 0, i).towers.values()
    )
    assert 20 < longest < 24 and "shortened to 20 source" in data.train.shortened


@pytest.mark.parametrize(
    ("words", "data", "message"),
    [
        ("--block-size 600", "text", "--block-size 600 is more than the 513 positions"),
        ("--block-size 2", "text", "--block-size must be above 2"),
        ("--max-source-len 600", "pairs", "only 509 source tokens fit the 513 positions"),
        ("--max-target-len 600", "pairs", "position 601 is beyond --arch.max-positions2 513"),
        ("--block-size 90 --arch.max-positions2 40", "text", "--arch.max-positions2 .* 40 .*90"),
        ("--block-size 90 --task.mixture 0,0,1 --arch.max-positions2 60", "text", " 89 .*got 60"),
        ("--patience 3", "text", "--patience has no effect without --valid"),
        ("--valid {pairs}", "text", "holds text, but .* holds pairs"),
        ("--valid {text} --best-metric dev/loss", "text", "such as valid/loss, got dev/loss"),
    ],
)
def test_options_that_do_not_fit_the_data(start, toy_data, words, data, message):
    words = words.format(pairs=toy_data / "pairs", text=toy_data / "text")
    with pytest.raises(UsageError, match=message):
        start(f"--max-steps 1 {words}", data=data)


@pytest.mark.parametrize("idle", ["patience", "best_metric", "valid_generate"])
def test_options_of_a_file_may_be_idle_without_validation(start, tmp_path, capsys, idle):
    file = tmp_path / "given.yaml"
    file.write_text(f"{idle}: {'valid/lm/nll' if idle == 'best_metric' else 3}\n")
    assert not start(f"--max-steps 1 --config {file}").data.valid
    assert f"{idle} of {file} " in capsys.readouterr().err


def test_two_vocabularies_do_not_mix(start, toy_data, tmp_path):
    other = tmp_path / "other"
    writer = CorpusWriter(other, 50)
    (tmp_path / "some.words").write_text("\n".join(f"w{number}" for number in range(50)))
    vocab = open_vocab(tmp_path / "some.words")
    vocab.save(other / "vocab")
    writer.add(np.arange(9, 19), np.array([10]), np.array([1]))
    writer.close({"vocab": vocab.hash})
    with pytest.raises(DataError, match="made .*another vocabulary") as error:
        start(f"--max-steps 1 --valid {other}")
    assert error.value.code == 3


def test_damaged_and_missing_corpora_are_named(start, toy_data, tmp_path):
    with pytest.raises(DataError, match="--data .*nowhere .*corpus: not found$"):
        start(f"--max-steps 1 --data {tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="--valid .*nowhere .*corpus: not found$"):
        start(f"--max-steps 1 --valid {tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="nowhere .*if .*moved.*path.* --data"):
        start(f"--max-steps 1 --resume --data {tmp_path / 'nowhere'}")
    shutil.copytree(toy_data / "text" / "train", tmp_path / "cut")
    with (tmp_path / "cut" / "tokens.bin").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DataError, match="cut/tokens.bin has 100 bytes"):
        start(f"--max-steps 1 --data {tmp_path / 'cut'}")


def test_altered_tokens_are_refused_before_they_reach_the_model(start, toy_data, tmp_path):
    shutil.copytree(toy_data / "text" / "train", tmp_path / "bad")
    with (tmp_path / "bad" / "tokens.bin").open("r+b") as file:
        file.write(b"\xff\xff")
    data = start(f"--max-steps 1 --data {tmp_path / 'bad'}").data
    with pytest.raises(DataError, match="tokens.bin .*altered.*bytes.* 0 on"):
        draw(data.train, 1, 0, 0)


def test_a_wild_token_of_an_old_corpus_is_named_with_its_place(start, tmp_path):
    """Corpora of 0.1.0 have no hashes of blocks."""
    old = Path(__file__).resolve().parents[1] / "fixtures" / "v0.1" / "corpus" / "train"
    path = shutil.copytree(old, tmp_path / "old") / "tokens.bin"
    raw = np.fromfile(path, np.uint16)
    raw[41] = 60_000
    raw.tofile(path)
    examples = start(f"--max-steps 1 --data {tmp_path / 'old'}").data.train
    with pytest.raises(DataError, match=r"example \d+ .*tokens.bin: token 60000 at byte 82 is"):
        for i in range(20):
            draw(examples, 1, 0, i)


def test_a_schedule_of_the_block_size_cuts_each_epoch_by_its_own_size(start):
    words = "--max-epochs 5 --blocks stream --task lm --arch gpt2_tiny"
    words += " --block-size constant:value=32,warmup=4"
    for _ in range(2):  # whatever was asked before
        train = start(words).data.train
        for epoch in (3, 0, 2, 1, 4):
            assert train.bounds(epoch).max() == min(8 * (epoch + 1), 32)
            assert max(train.items.lengths) == min(8 * (epoch + 1), 32) - 1
    for given in ("inf", "linear:value=inf"):
        with pytest.raises(UsageError, match="--block-size .* finite"):
            start(f"--max-epochs 5 --task lm --arch gpt2_tiny --block-size {given}")
    with pytest.raises(UsageError, match="must be above 1"):
        start(words.replace("32", "4"))
    with pytest.raises(UsageError, match="--block-size: schedule Linear needs .*--max-epochs"):
        start("--max-steps 5 --block-size linear:value=32")
