"""Entities of a run: vectors are never trained, checkpoints need no other file, and fine-tuning
reads what pre-training read."""

import json
import shutil

import entity_files
import numpy as np
import pytest
import torch
from exact_options import EXACT
from labelled_corpora import write_corpora

from unitk.data.corpus.preprocess import Options, preprocess
from unitk.decoding.config import PredictConfig
from unitk.decoding.understand.predict import predict
from unitk.errors import UsageError
from unitk.families.thu_ernie.config import CANDIDATES
from unitk.formats.vectors import read_vectors
from unitk.training.loop import train as train_run
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train, prepare

TABLE = f"heads.{CANDIDATES}.table.weight"
SMALL = f"--lr-schedule constant --writers none --valid none {EXACT} --precision fp32 --threads 1"


@pytest.fixture
def linked(tmp_path, toy_vocab):
    return entity_files.write_entities(tmp_path / "given", toy_vocab)


@pytest.fixture
def train(tmp_path, toy_data):
    def run(words, name, steps=3, data=None, rate="1e-2"):
        given = (
            f"--data {data or toy_data / 'text'} --save-dir {tmp_path / name} --lr {rate} {SMALL}"
        )
        train_run(prepare(parse_train(f"{words} {given} --max-steps {steps}".split())))
        return tmp_path / name

    return run


def asked(linked, **more):
    return "--task thu_ernie --arch thu_ernie_tiny " + " ".join(
        f"--task.{key} {value}" for key, value in {**linked, **more}.items()
    )


def log(folder):
    events = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [event for event in events if "train/loss" in event]


@pytest.mark.slow
def test_vectors_are_those_of_the_file_whatever_is_trained(train, linked, tmp_path):
    folder = train(asked(linked), "run")
    names, vectors = read_vectors(tmp_path / "given" / "vectors.txt")
    found = load(folder)
    table = found.model.state_dict()[TABLE]
    assert torch.equal(table[1:], torch.from_numpy(vectors)) and not table[0].any()
    assert found.config["arch.heads"].endswith(f"{CANDIDATES}:{len(names) + 1}")
    assert {"train/mlm", "train/nsp", "train/dea"} <= {*log(folder)[-1]}
    # an average of the weights has them, too
    averaged = load(train(asked(linked) + " --ema 0.9", "ema"))
    assert torch.equal(averaged.model.state_dict()[TABLE], table)


def test_a_bert_is_where_it_begins(train, linked, tmp_path):
    bert = train("--task mlm --arch bert_tiny --task.nsp on", "bert")
    begun = train(f"{asked(linked)} --init-from {bert}", "begun", steps=1, rate="1e-30")
    one, two = (load(path).model.state_dict() for path in (bert, begun))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert {name.partition(".")[0] for name in two.keys() - one.keys()} == {"fusions", "heads"}


@pytest.mark.slow
def test_a_checkpoint_needs_no_file_of_the_user(train, linked, tmp_path, toy_vocab):
    folder = train(asked(linked), "first")
    classes = write_corpora(tmp_path / "labelled", toy_vocab) / "class"
    shutil.rmtree(tmp_path / "given")
    # by default fine-tuning lays texts out as the run that it begins with
    tuned = train(f"--task classify --init-from {folder}", "tuned", data=classes)
    shutil.move(folder, tmp_path / "moved")
    found = load(tuned)
    assert torch.equal(
        found.model.state_dict()[TABLE], load(tmp_path / "moved").model.state_dict()[TABLE]
    )
    name = next(iter(found.task.layout.find.entities))
    assert found.task.lay_out_parts([np.array(name)]).example.inputs["x.entity"][1] > 0
    (said,) = predict(found.model, found.task, [[np.array(name)]], PredictConfig())
    assert said["label"] in ("no", "yes")
    again = train(f"--task classify --init-from {tuned}", "again", data=classes)
    shutil.rmtree(tuned)
    assert load(again).task.layout.files == found.task.layout.files


@pytest.mark.slow
def test_a_resumed_run_goes_on_and_keeps_its_files(train, linked, tmp_path):
    whole = train(asked(linked), "whole", steps=4)
    train(asked(linked), "parts", steps=2)
    parts = train(f"{asked(linked)} --resume", "parts", steps=4)
    one, two = (load(path).model.state_dict() for path in (whole, parts))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    names = tmp_path / "given" / "names.tsv"
    names.write_text(names.read_text().replace("Q1\n", "Q2\n"))
    with pytest.raises(UsageError, match=r"forms.tsv, .*copy.*changed"):
        train(f"{asked(linked)} --resume", "parts", steps=5)


def test_links_of_a_corpus(train, linked, tmp_path, toy_vocab):
    texts = ["baba lala na", "lala tete"]
    records = [
        {"text": text, "links": [[0, 4, "Q1"], [5, 9, "Q2" if i % 2 else "unknown"]]}
        for i, text in enumerate(texts * 20)
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, records)))
    preprocess(
        Options(
            dest=tmp_path / "linked",
            vocab=toy_vocab_at(tmp_path, toy_vocab),
            input=(str(tmp_path / "r.jsonl"),),
            source_field=("text",),
            label_field="links",
            labels="links",
        )
    )
    words = asked({"entities": linked["entities"]})
    folder = train(words, "run", data=tmp_path / "linked", steps=2)
    assert log(folder)[-1]["train/dea"] > 0 and "train/nsp" not in log(folder)[-1]
    # without a file of names, marked relations have no entities: the model reads them as BERT
    classes = write_corpora(tmp_path / "labelled", toy_vocab) / "class"
    tuned = load(train(f"--task classify --init-from {folder}", "tuned", data=classes, steps=1))
    source = [np.array([40, 41])]
    assert tuned.task.layout.numbers and not tuned.task.lay_out_parts(source).example.inputs
    (said,) = predict(tuned.model, tuned.task, [source], PredictConfig())
    plain = tuned.task.with_attributes(layout=tuned.task.layout.with_attributes(numbers={}))
    assert predict(tuned.model, plain, [source], PredictConfig()) == [said]
    with pytest.raises(UsageError, match="their vectors.* --task.entities FILE"):
        train(asked({}), "none", data=tmp_path / "linked")


def toy_vocab_at(folder, vocab):
    vocab.save(folder / "vocab")
    return folder / "vocab"


def test_widths_and_architectures_that_do_not_fit_are_refused(train, linked, tmp_path):
    with pytest.raises(UsageError) as error:
        train(asked(linked) + " --arch.entity-width 8", "run")
    wanted = "--task.entities: vectors of 16 numbers need --arch.entity-width 16, got 8"
    assert str(error.value) == wanted
    with pytest.raises(UsageError, match="this --arch .*entities; thu_. have"):
        train(asked(linked).replace("thu_ernie_tiny", "bert_tiny"), "other")
