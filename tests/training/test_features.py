"""Feature-based training: heads over a frozen model, of any of its layers or of its latent."""

import pytest
import torch
from labelled_corpora import write_corpora
from safetensors.torch import load_file, save_file

import unitk
from unitk.errors import UsageError
from unitk.files import seal
from unitk.training import loop
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train, prepare


@pytest.fixture(scope="module")
def labelled(tmp_path_factory, toy_vocab):
    return write_corpora(tmp_path_factory.mktemp("labelled"), toy_vocab)


def trained(words):
    loop.train(prepare(parse_train(f"{words} --precision fp32 --writers none".split())))


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("task", "how"),
    [
        ("mlm", "--arch.head-layers 0,1,2"),
        ("mlm", "--arch.head-layers -1 --arch.head-pooler off"),
        ("optimus", "--task.layout optimus --arch.head-latent on --arch.head-pooler off"),
        ("optimus", "--arch.head-layers 0,1,...,2"),
    ],
)
def test_only_the_head_of_a_frozen_model_is_trained(labelled, toy_data, tmp_path, task, how):
    first, second = tmp_path / "first", tmp_path / "second"
    arch = {"mlm": "bert_tiny", "optimus": "optimus_tiny"}[task]
    trained(
        f"--task {task} --arch {arch} --data {toy_data / 'text'} --save-dir {first} --max-steps 2"
    )
    trained(
        f"--task classify --init-from {first} --data {labelled / 'class'} --save-dir {second}"
        f" --max-steps 6 --lr 1e-2 --batch-texts 16 --freeze [!h]* {how}"
    )
    before, after = (load(path).model.state_dict() for path in (first, second))
    kept = [name for name in after if not name.startswith("heads.")]
    assert len(kept) > 20 and all(torch.equal(before[name], after[name]) for name in kept)
    own = {name: tensor for name, tensor in after.items() if name.startswith("heads.class:label.")}
    assert ("heads.class:label.mix.weight" in own) == ("head-layers" in how)
    if "0,1" in how:
        weight, scale = own["heads.class:label.mix.weight"], own["heads.class:label.mix.scale"]
        assert weight.all() and scale != 1
    assert {"label", "probability"} == unitk.load(second).predict(["lala"])[0].keys()


def test_a_factor_that_was_stored_as_a_scalar_is_read(labelled, tmp_path):
    words = f"--task classify --arch bert_tiny --data {labelled / 'class'} --save-dir {tmp_path}"
    trained(f"{words} --max-steps 1 --arch.head-layers 0,1")
    folder = tmp_path / "checkpoints" / "step-1"
    tensors = load_file(folder / "model.safetensors")
    name = "heads.class:label.mix.scale"
    save_file(tensors | {name: tensors[name][0].clone()}, folder / "model.safetensors")
    seal(folder)
    assert torch.equal(load(folder).model.state_dict()[name], tensors[name])


def test_a_latent_is_read_where_there_is_one(labelled, tmp_path):
    words = f"--task classify --arch bert_tiny --data {labelled / 'class'} --save-dir {tmp_path}"
    with pytest.raises(UsageError, match="--arch.head-latent: arch bert_tiny .*no such"):
        parse_train(f"{words} --max-steps 1 --arch.head-latent on".split())
