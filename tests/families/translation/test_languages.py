"""Texts and pairs are laid out in the languages of their corpora."""

import numpy as np
import pytest

from unitk.data.batching import draw
from unitk.data.corpus.folders import open_corpus
from unitk.data.corpus.merge import Options as MergeOptions
from unitk.data.corpus.merge import merge
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.data.cuts import Text
from unitk.errors import DataError, UsageError
from unitk.families.translation.languages import BackTranslation, Translation, longest_translation
from unitk.tasks.mass import MASS


def spoken(data):
    """The languages of encoder and decoder of each example, and what each reads."""
    examples = data.train
    drawn = [draw(examples, 1, 0, i) for i in range(len(examples.bounds(0)))]
    return [
        tuple({*one.towers[name].seg.tolist()} for name in ("enc", "dec")) for one in drawn
    ], drawn


@pytest.mark.parametrize("task", ["mass_translation", "back_translation"])
def test_texts_are_in_the_language_of_their_corpus(start, task):
    seen, drawn = spoken(start(f"--task {task}", "text1", "text0").data)
    assert seen == [({1}, {1})] * 60 + [({0}, {0})] * 60
    if task == "back_translation":  # into the other one
        assert [int(one.inputs["into"][0]) for one in drawn] == [0] * 60 + [1] * 60


@pytest.mark.parametrize("task", ["mass_translation", "back_translation"])
def test_pairs_are_in_the_languages_of_their_corpus(start, task):
    seen, _ = spoken(start(f"--task {task}", "pairs0", "pairs1").data)
    assert seen == [({0}, {1})] * 60 + [({1}, {0})] * 60


def test_a_corpus_without_languages_has_those_of_the_task(start, corpora, toy_data):
    seen, _ = spoken(
        start(f"--task mass_translation --task.languages 1,0 --data {toy_data / 'pairs'}").data
    )
    assert {(*map(tuple, pair),) for pair in seen} == {((1,), (0,))}
    seen, _ = spoken(
        start(f"--task mass_translation --task.languages 1,0 --data {toy_data / 'text'}").data
    )
    assert {(*map(tuple, pair),) for pair in seen} == {((1,), (1,))}


def test_a_text_is_laid_out_as_by_mass(toy_vocab):
    """But for the languages, and the S at both ends."""
    ids = toy_vocab.encode("the cat sat on the mat in the hat and so on")
    text = Text([np.array(ids)], np.zeros(1, np.int64))
    ours = Translation(Translation.Config(languages=(1, 0)), toy_vocab)
    plain = MASS(MASS.Config(opening="seps"), toy_vocab)
    for seed in range(20):
        some, others = (
            one.pretrain(text, np.random.default_rng(seed)).towers for one in (ours, plain)
        )
        for name in ("enc", "dec"):
            assert (some[name].seg == 1).all()
            some[name].seg[:] = 0
            assert (some[name].table == others[name].table).all()


def test_languages_are_part_of_a_corpus(corpora, tmp_path, toy_vocab):
    one, other = open_corpus(corpora.text0), open_corpus(corpora.pairs1)
    assert one.manifest["languages"] == [0] and other.manifest["languages"] == [1, 0]
    given = {"input": (f"{corpora.folder}/0.txt",), "vocab": corpora.folder / "vocab"}
    for number, languages in enumerate([(), (1,), (0,)]):
        dest = tmp_path / str(number)
        preprocess(Options(**given, dest=dest, workers=1, documents="line", languages=languages))
    prints = [open_corpus(tmp_path / name).fingerprint for name in "012"]
    assert len({*prints}) == 3 and prints[2] == one.fingerprint
    merge(MergeOptions(parts=(corpora.text0, tmp_path / "2"), dest=tmp_path / "both"))
    assert open_corpus(tmp_path / "both").manifest["languages"] == [0]
    with pytest.raises(DataError, match="1/train .*languages"):
        merge(MergeOptions(parts=(corpora.text0, tmp_path / "1"), dest=tmp_path / "mixed"))


@pytest.mark.parametrize(
    ("languages", "files", "message"),
    [
        ((0, 1), "text", "--languages must be 1 of 0 or more for text, got 0,1"),
        ((-1,), "text", "got -1"),
        ((1,), "pairs", "--languages must be 2 of 0 or more for pairs, got 1"),
        ((1,), "labels", "--languages has no effect: the files hold labelled"),
    ],
)
def test_languages_that_do_not_fit_are_refused(corpora, tmp_path, languages, files, message):
    text = f"{corpora.folder}/0.txt"
    named = {"source_file": (text,), "target_file": (text,)} if files == "pairs" else {}
    if files == "text":
        named = {"input": (text,)}
    elif files != "pairs":
        path = tmp_path / "labels.jsonl"
        path.write_text('{"text": "a", "label": "b"}\n')
        named = {"input": (str(path),), "source_field": ("text",), "label_field": "label"}
    with pytest.raises(UsageError, match=message):
        vocab = corpora.folder / "vocab"
        preprocess(Options(**named, vocab=vocab, dest=tmp_path / "x", languages=languages))


def test_options_that_do_not_fit_are_refused(start):
    with pytest.raises(UsageError, match="must .*two.*got 1,1"):
        start("--task back_translation --task.languages 1,1", "text0")
    with pytest.raises(UsageError, match="at least 0, got -1"):
        start("--task mass_translation --task.languages -1,0", "text0")
    wrong = "--task back_translation --criterion cross_entropy"
    message = "cross_entropy cannot learn what --task back_translation asks; .* back_translation"
    with pytest.raises(UsageError, match=message):
        start(wrong, "text0")
    mixed = "--task mass_translation=0.5 --task back_translation=0.5"
    with pytest.raises(UsageError, match=message):
        start(f"{mixed} --criterion cross_entropy", "text0")
    with pytest.raises(UsageError, match="--criterion.temperature .*at least 0"):
        start("--task back_translation --criterion.temperature -1", "text0")
    with pytest.raises(UsageError, match="--criterion.label-smoothing must be"):
        start("--task back_translation --criterion.label-smoothing 1", "text0")
    with pytest.raises(UsageError, match="segment 2 is beyond --arch.num-segments 2"):
        start("--task mass_translation --arch.num-segments 2", "text2")
    with pytest.raises(UsageError, match="--shard: .*model.*trains"):
        start(f"{mixed} --criterion back_translation --shard on --nproc 2", "text0")


def test_the_bound_holds_for_the_longest_translation(toy_vocab):
    task = BackTranslation(BackTranslation.Config(), toy_vocab)
    n = np.arange(1, 60)
    assert (longest_translation(n) == np.floor(1.3 * n + 1e-9) + 5).all()
    assert (task.slots(n) == task.frame + longest_translation(n)).all()
