"""ELMo in training: updates go on where they stopped, and frozen features stay as they are."""

import labelled_corpora
import pytest
from exact_options import EXACT
from safetensors.torch import load_file

from unitk.training import loop
from unitk.training.start import parse_train, prepare

FIXED = (
    f"--precision fp32 {EXACT} --valid none --writers none --threads 1 --lr 1e-2"
    " --lr-schedule constant --max-tokens 500"
)


def train(text):
    loop.train(prepare(parse_train(f"{text} {FIXED}".split())))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory, toy_vocab):
    return labelled_corpora.write_corpora(tmp_path_factory.mktemp("labelled"), toy_vocab)


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_its_features_stay_frozen(toy_data, corpora, tmp_path):
    words = f"--task bilm --arch elmo_tiny --data {toy_data / 'text'}"
    train(f"{words} --save-dir {tmp_path / 'whole'} --max-steps 4")
    for stop in (2, 4):
        train(f"{words} --save-dir {tmp_path / 'parts'} --max-steps {stop} --resume on")
    whole, parts = (
        load_file(tmp_path / run / "last" / "model.safetensors") for run in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    assert all(whole[name].equal(parts[name]) for name in whole)

    frozen = "--freeze embed.*,layers.*,bwd.*"
    heads = "--arch.head-layers 0,1,2 --arch.head-dropout 0.5"
    given = f"--data {corpora / 'class' / 'train'} --init-from {tmp_path / 'whole'} {frozen}"
    train(
        f"--task classify --task.layout bilm {heads} {given} --save-dir {tmp_path / 'classes'}"
        " --max-steps 3"
    )
    after = load_file(tmp_path / "classes" / "last" / "model.safetensors")
    kept = [name for name in whole if not name.startswith("heads.")]
    assert all(after[name].equal(whole[name]) for name in kept)
    assert after["heads.class:label.mix.weight"].any()
    assert after["heads.class:label.dense.weight"].shape == (64, 64)
