"""`unitk mix`: what is cut, searched, judged, resumed and refused."""

import json

import numpy as np
import pytest
from exact_options import EXACT

from unitk.data.corpus.corpus import Corpus
from unitk.errors import NonFiniteError, UsageError
from unitk.evaluation.objective import objective, open_setup
from unitk.options.config import parse
from unitk.runs.experiments import jobs, mix
from unitk.training.device import choose_device


@pytest.fixture
def base(toy_data):
    words = "--arch gpt2_tiny --arch.dropout 0 --arch.num-layers 1 --blocks line --block-size 64"
    words += f" --max-tokens 400 {EXACT} --precision fp32 --writers none --valid-texts 2"
    return f"{words} --max-steps 16 --data {toy_data}/text".split()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(jobs, "MINUTE", 0.0)
    monkeypatch.setattr(mix, "LEAST", 4)


def options(folder, **more):
    given = {"tasks": "lm,mlm", "grid": 2, "divide": 4} | more
    words = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return parse("mix", mix.Options, [*words, f"--save-dir={folder}"]).main


@pytest.mark.slow
def test_mixtures_are_searched_verified_and_not_trained_again(base, tmp_path, monkeypatch):
    found = mix.search_mixtures(options(tmp_path / "m"), base)
    assert found == json.loads((tmp_path / "m/mix.json").read_text())
    rows = {name: [tuple(row["shares"].values()) for row in found[name]] for name in mix.ROUNDS}
    assert {(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)} <= {*rows["search"]}
    # then what is half a step from the best of these
    best = min(found["search"], key=lambda row: row["behind"])
    assert found["search"][0] == best and len(rows["search"]) in (4, 5)
    assert {*rows["whole"]} == {(1.0, 0.0), (0.0, 1.0), rows["search"][0]}
    assert [row["updates"] for row in found["plan"]] == [4, 4, 16]
    alone = {row["shares"]["lm"]: row["losses"] for row in found["search"]}
    for row in found["search"]:
        own = row["losses"]
        apart = (own["lm"] - alone[1.0]["lm"], own["mlm"] - alone[0.0]["mlm"])
        assert row["behind"] == pytest.approx(np.mean(apart), abs=1e-9)
    text = "\n".join(mix.mixture_lines(found))
    assert f"--task lm={rows['search'][0][0]:g} --task mlm=" in text

    def never(*_):
        raise AssertionError("done twice")

    for room, name in (
        (jobs, "train_job"),
        (mix, "judge_mixture"),
        (mix, "cut_corpus"),
        (mix, "time_jobs"),
    ):
        monkeypatch.setattr(room, name, never)
    assert mix.search_mixtures(options(tmp_path / "m"), base) == found
    with pytest.raises(UsageError, match="--save-dir .* --divide 4, not 2"):
        mix.search_mixtures(options(tmp_path / "m", divide=2), base)


def test_the_loss_of_an_objective_is_that_of_evaluate(base, tmp_path):
    """With a share of 1, the loss of the mixture is that of the objective over all texts."""
    search = mix.open_search(options(tmp_path / "m"), base)
    job = search.job((4, 0), "whole")
    jobs.train_job(job)
    start = job.trial.start
    place = mix.corpora_of(start.config)[1]["valid"]
    setup = open_setup(start.run.newest(), place, choose_device("cpu"))
    own = objective(setup, 400, lambda _: None)["loss"]
    found = mix.judge_mixture(job)
    assert found["lm"] == pytest.approx(own, rel=1e-5) and found["mlm"] != found["lm"]


def test_a_part_has_its_share_of_the_tokens_and_whole_texts(toy_data, tmp_path):
    source = toy_data / "text/train"
    mix.cut_corpus(source, tmp_path / "part", 4, seed=1)
    whole, part = Corpus(source), Corpus(tmp_path / "part")
    part.verify()
    texts = {tuple(map(tuple, whole.document(i))) for i in range(len(whole))}
    own = [tuple(map(tuple, part.document(i))) for i in range(len(part))]
    assert {*own} <= texts
    longest = whole.document_lengths().max()
    assert abs(part.counts.tokens - whole.counts.tokens / 4) <= longest
    assert part.counts.words == sum(part.words[1:] - part.words[:-1])
    assert part.vocab_hash == whole.vocab_hash


@pytest.mark.parametrize("count", [2, 3])
def test_the_grid_has_every_mixture_once(count):
    found = mix.grid_of(count, 4)
    assert len(found) == len({*found}) == {2: 5, 3: 15}[count]
    assert all(sum(one) == 8 and all(part % 2 == 0 for part in one) for one in found)
    near = mix.list_neighbors(found[1])
    assert all(sum(one) == 8 and min(one) >= 0 for one in near) and found[1] not in near


def test_a_plan_writes_nothing(base, tmp_path):
    found = mix.search_mixtures(options(tmp_path / "m", plan="on"), base)
    assert not (tmp_path / "m").exists() and len(found["plan"]) == 3
    assert "whole" in "\n".join(mix.mixture_lines(found))


def test_the_length_is_a_number_of_updates(base, tmp_path):
    """Also where a file says it."""
    words = [word for word in base if word not in ("--max-steps", "16")]
    with pytest.raises(UsageError, match="^--max-steps is needed"):
        mix.search_mixtures(options(tmp_path / "m"), words)
    (tmp_path / "x.yaml").write_text("max-epochs: 3\n")
    with pytest.raises(UsageError, match="^--max-epochs excludes mix"):
        mix.search_mixtures(options(tmp_path / "m"), [*base, f"--config={tmp_path / 'x.yaml'}"])


@pytest.mark.parametrize(
    ("more", "words", "named"),
    [
        ({"tasks": "lm"}, [], "--tasks must name two"),
        ({"tasks": "lm,lm"}, [], "--tasks must name two"),
        ({"judge": "glm_infill"}, [], "--judge glm_infill: "),
        ({"judge": "lm=0"}, [], "--judge lm=0: "),
        ({"judge": "lm="}, [], "--judge lm=: "),
        ({"judge": "lm,lm=2"}, [], "--judge names lm twice"),
        ({"tasks": "lm=1,mlm=1"}, [], "--tasks lm=1: write names"),
        ({}, ["--dry-run"], "--dry-run excludes mix: --plan"),
        ({"divide": 8}, [], "--max-steps 32 or more"),
        ({}, ["--task", "lm"], "--task excludes mix"),
        ({}, ["--max-epochs=9"], "--max-epochs excludes mix"),
        ({}, ["--valid", "none"], "give --valid"),
        ({"jobs": "100000"}, [], "--jobs 100000 needs .* GB"),
    ],
)
def test_what_cannot_be_searched(more, words, named, base, tmp_path, monkeypatch):
    monkeypatch.setattr(mix, "plan_of", lambda *_: [{"bytes": 1e12}])
    with pytest.raises(UsageError, match=named):
        mix.search_mixtures(options(tmp_path / "m", **more), [*base, *words])
    assert not (tmp_path / "m").exists()


def test_pairs_are_refused(base, toy_data, tmp_path):
    words = [*base[:-1], f"{toy_data}/pairs"]
    with pytest.raises(UsageError, match="--data holds pairs"):
        mix.search_mixtures(options(tmp_path / "m", tasks="lm,unilm"), words)


@pytest.mark.parametrize("losses", [3, {"search/4-0": 1}, {"search/4-0": {"lm": 1.0}}])
def test_losses_that_were_damaged_are_named(losses, tmp_path):
    good = {"search/4-0": {"lm": 1.0, "mlm": 2.0}, "search/0-4": None}
    mix.check_losses(tmp_path / "mix.json", good, ("lm", "mlm"))
    with pytest.raises(UsageError, match="mix.json: .* damaged"):
        mix.check_losses(tmp_path / "mix.json", losses, ("lm", "mlm"))


def test_a_mixture_that_broke_is_no_candidate(base, tmp_path):
    """Its loss is unknown, and the search goes on without it, unless an objective alone broke."""

    search = mix.open_search(options(tmp_path / "m"), base)
    losses = {f"search/{name}": {"lm": 3.0, "mlm": 4.0} for name in ("4-0", "0-4")}
    rows = search.rows([(4, 0), (2, 2), (0, 4)], "search", {**losses, "search/2-2": None})
    assert [row["shares"]["lm"] for row in rows] == [1.0, 0.0]
    with pytest.raises(NonFiniteError, match=r"mlm alone .*search/0-4.*--lr"):
        search.rows([(4, 0), (0, 4)], "search", {**losses, "search/0-4": None})
