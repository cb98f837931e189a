"""Outputs that are scored while a model trains."""

import numpy as np
import pytest
from ranks import run_ranks

import unitk
from unitk.data.corpus.folders import open_corpus
from unitk.errors import UsageError
from unitk.metrics.texts import Written, score_texts
from unitk.training import loop
from unitk.training.config import SCORES
from unitk.training.reporting.sinks import validation_at
from unitk.training.start import parse_train, prepare

WORDS = (
    "--device cpu --arch bart_tiny --max-tokens 400 --precision fp32 --products torch"
    " --writers none --log-every 3"
)


@pytest.fixture
def words(toy_data, tmp_path):
    return lambda more, run="run", data="pairs", task="seq2seq", lr=1e-2: (
        f"{WORDS} --task {task} --lr {lr} --data {toy_data / data} --save-dir {tmp_path / run}"
        f" {more}"
    )


@pytest.fixture
def train(words):
    return lambda *args, **how: loop.train(prepare(parse_train(words(*args, **how).split())))


def test_metrics_are_those_of_unitk_score():
    assert {*SCORES} == {*Written.__args__}
    text = ["so many words of a text"]
    found = score_texts([*SCORES], text, [text], text)
    for metric, figures in SCORES.items():
        own = {name.removeprefix("qg_") for name in figures}
        assert not own or own & {*found[metric].figures}


@pytest.mark.slow
def test_scores_are_those_of_what_the_checkpoint_generates(train, tmp_path, toy_data):
    progress = train(
        "--max-steps 40 --valid-generate 9 --valid-beam 2 --valid-metric rouge,chrf,qg"
        " --best-metric valid/bleu4"
    )
    model = unitk.load(tmp_path / "run" / "checkpoints" / f"step-{progress.step}")
    train_set, pairs = (open_corpus(toy_data / "pairs" / name) for name in ("train", "valid"))
    decode, longest = model.vocab.decode, int(train_set.target_lengths.max())
    records = [pairs.record(int(i)) for i in np.linspace(0, len(pairs) - 1, 9)]
    sources = [[decode(part) for part in source] for source, _ in records]
    outputs = [best.text for best, *_ in model.generate(sources, beam=2, max_len=longest)]
    wanted = [[decode(target)] for _, target in records]
    scores = score_texts(["rouge", "chrf", "qg"], outputs, wanted, [one for (one,) in sources])
    found = validation_at(tmp_path / "run", progress.step)
    for metric, figure in [("rouge", "rouge1"), ("chrf", "chrf"), ("qg", "bleu4")]:
        assert found[f"valid/{figure}"] == pytest.approx(scores[metric].figures[figure])
    assert found["valid/qg_rougeL"] == pytest.approx(scores["qg"].figures["rougeL"])
    assert found["valid/chrf"] > 0


@pytest.mark.slow
def test_two_ranks_write_what_one_writes(words, train, tmp_path):
    train("--max-steps 40 --valid none", run="first")
    more = "--max-steps 1 --valid-generate 7 --valid-metric stats,chrf --batch-tokens 800"
    more += f" --init-from {tmp_path / 'first'}"
    train(more, lr=1e-30)  # the weights stay, in either
    two = words(more, run="two", lr=1e-30).replace("--device cpu ", "")  # which they name
    assert run_ranks(two, 2) == [0, 0]
    one, two = (validation_at(tmp_path / run, 1) for run in ("run", "two"))
    assert one["valid/stats/words"] > 0
    assert two == pytest.approx(one, rel=1e-5)


def test_the_highest_score_is_best_and_patience_counts_it(train, monkeypatch, caplog):
    caplog.set_level("INFO")
    scores = iter([20.0, 30.0, 25.0, 10.0, 40.0])
    monkeypatch.setattr(
        "unitk.runs.written.WrittenScores.values",
        lambda *_: {"valid/rouge1": next(scores), "valid/rougeL": 1.0},
    )
    progress = train(
        "--max-steps 9 --valid-every 1 --valid-generate 2 --best-metric valid/rouge1 --patience 2"
    )
    assert (progress.step, progress.best, progress.best_step) == (4, 30.0, 2)
    assert "valid/rouge1 20  (best yet)" in caplog.text


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("--valid-metric rouge", "--valid-metric.*--valid-generate"),
        ("--valid-beam 2", "--valid-beam.*--valid-generate"),
        ("--best-metric valid/rouge1", "--best-metric valid/rouge1.*--valid-generate"),
        (
            "--valid-generate 2 --valid-metric bleu --best-metric valid/rouge2",
            "--valid-metric rouge",
        ),
        ("--valid-generate 2 --valid-metric blue", "--valid-metric.*rouge, bleu.*'?blue"),
        ("--valid-generate 2 --valid none", "--valid-generate.*--valid"),
    ],
)
def test_options_that_lack_another_are_refused(train, more, named):
    with pytest.raises(UsageError, match=named):
        train(f"--max-steps 1 {more}")


@pytest.mark.parametrize(("there", "asked"), [(False, "meteor"), (True, "meteor_exact_stem")])
def test_a_figure_that_this_machine_cannot_compute_is_refused_at_once(
    train, monkeypatch, there, asked
):
    from unitk.metrics import meteor

    monkeypatch.setattr(meteor, "_wordnet", object if there else meteor._NoSynonyms)
    monkeypatch.setattr(loop.Trainer, "run", lambda self: pytest.fail("it has begun to train"))
    other = "meteor" if there else "meteor_exact_stem"
    with pytest.raises(UsageError, match=f"--best-metric valid/{asked}: .* {other} .*WordNet"):
        train(f"--max-steps 1 --valid-generate 2 --best-metric valid/{asked}")


def test_texts_are_no_pairs(train):
    with pytest.raises(UsageError, match="--valid-generate.*bart"):
        train("--max-steps 1 --valid-generate 2", data="text", task="bart")


def test_the_readme_shows_what_was_written_last(train, tmp_path, monkeypatch):
    train("--max-steps 2 --valid-every 1 --valid-generate 2 --valid-metric chrf")
    page = (tmp_path / "run" / "README.md").read_text()
    assert "at step 2\n\n>" in page and page.count("> wanted: ") == 2
    train("--max-steps 1", run="short")  # which takes less than a minute
    assert "> wanted: " not in (tmp_path / "short" / "README.md").read_text()
    monkeypatch.setattr("unitk.training.reporting.report.LONG", 0.0)
    train("--max-steps 1", run="long")
    assert (tmp_path / "long" / "README.md").read_text().count("> written: ") == 3
    train("--max-steps 1", run="text", data="text", task="bart")
    assert "> wanted: " not in (tmp_path / "text" / "README.md").read_text()


@pytest.mark.parametrize("more", ["", "--valid-generate 2"])
@pytest.mark.parametrize("data", ["pairs", "text"])
def test_a_long_run_of_several_tasks_ends_well(words, monkeypatch, tmp_path, data, more):
    monkeypatch.setattr("unitk.training.reporting.report.LONG", 0.0)
    mixed = words(f"--max-steps 1 {more}", data=data, task="lm=1 --task glm_infill=1")
    start = prepare(parse_train(mixed.replace("bart_tiny", "glm_tiny").split()))
    if data == "text" and more:
        with pytest.raises(UsageError, match="--valid-generate.*: lm, glm_infill"):
            loop.train(start)
        return
    loop.train(start)
    readme = (tmp_path / "run" / "README.md").read_text()
    assert ("## What" in readme) == (data == "pairs")
