"""Weights of other frameworks are refused with what converts them."""

import pytest

from unitk import registry
from unitk.errors import CheckpointError
from unitk.verbs import convert


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("bert_model.ckpt.index", "TensorFlow .*transformers 4.*tf_checkpoint_to_pytorch"),
        ("tf_model.h5", "TensorFlow .*from_tf=True"),
        ("flax_model.msgpack", "Flax .*from_flax=True"),
        ("params/word_embedding", "Paddle .*nghuyong"),
        ("params_shapes.json", "GPT.*transformers 4"),
        ("model.gguf", "llama.cpp .*gguf_file"),
    ],
)
def test_the_message_says_what_converts_them(tmp_path, file, message):
    path = tmp_path / "there" / file
    path.parent.mkdir(parents=True)
    path.write_text("x")
    with pytest.raises(CheckpointError, match=f"there .*{message}"):
        convert.run(f"--from hf {tmp_path / 'there'} --to unitk {tmp_path / 'ours'}".split())
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("file", "reader"),
    [
        ("checkpoints/step-1/manifest.json", "unitk"),
        ("adapter_config.json", "peft"),
        ("checkpoint_best.pt", "fairseq"),
        ("mp_rank_00_model_states.pt", "glm"),
        ("mass.pt", "mass"),
        ("checkpoint-decoder-0/config.json", "optimus"),
        ("discriminator/config.json", "electra_pair"),
    ],
)
def test_a_folder_of_another_format_names_its_reader(tmp_path, file, reader):
    path = tmp_path / "there" / file
    path.parent.mkdir(parents=True)
    path.write_text("x")
    with pytest.raises(CheckpointError, match=f"there .*--from {reader} "):
        convert.run(f"--from hf {tmp_path / 'there'} --to unitk {tmp_path / 'ours'}".split())
    assert reader in registry.names("format") or reader == convert.OURS
