"""The card of an exported model says what its checkpoint and its scores say."""

import json
from types import SimpleNamespace

import pytest
import yaml

from unitk.errors import UsageError
from unitk.formats.hf import families
from unitk.formats.hf.families import CHOICES, PLACES, TEXTS, WORDS
from unitk.training.reporting.card import CLASSES, pipeline_tag
from unitk.verbs import convert


@pytest.fixture
def run(train, tmp_path):
    train("--max-steps 2 --task lm --arch gpt2_tiny")
    return tmp_path / "run"


def give(run, dest, *more, to="hf"):
    convert.run(["--from", "unitk", str(run), "--to", to, str(dest), *map(str, more)])
    return (dest / "README.md").read_text()


def test_licence_training_and_scores(run, tmp_path):
    pytest.importorskip("transformers")
    figures = {"data": "data-bin/test", "loss": 3.25, "bleu": {"bleu": 12.5, "about": "13a"}}
    (tmp_path / "test.json").write_text(json.dumps(figures))
    more = ("--license", "mit", "--language", "en", "--dataset", "squad")
    text = give(run, tmp_path / "hf", *more, "--scores", tmp_path / "test.json")
    _, front, body = text.split("---\n", 2)
    read = yaml.safe_load(front)
    assert read == {
        **{"library_name": "transformers", "tags": ["unitk", "lm"], "license": "mit"},
        **{"pipeline_tag": "text-generation", "language": ["en"], "datasets": ["squad"]},
    }
    assert "Licence: mit." in body and "2 updates" in body
    assert ".2 M parameters" in body and "objective `lm`" in body
    assert body.endswith("|\n\n</details>\n") and "\n\n\n" not in body
    assert "architecture `gpt2_tiny`" in body and "| `arch.dropout` | 0.1 |" in body
    # what it is, how it is used, and its options last
    order = ["# run", "AutoModelForCausalLM", "unitk generate", "Languages: en", "| `arch."]
    assert [body.index(one) for one in order] == sorted(body.index(one) for one in order)
    assert str(run.parent) not in body  # no folder of this machine
    rows = [line for line in body.splitlines() if line.startswith("| data-bin/test |")]
    assert rows == ["| data-bin/test | loss | 3.25 |", "| data-bin/test | bleu/bleu | 12.5 |"]


@pytest.mark.parametrize(
    "of", ["--task glm_infill --arch qwen3_tiny", "--task unilm --task.nsp off --arch unilm_tiny"]
)
def test_a_model_that_sees_both_sides_is_not_called_one_that_continues(of, train, tmp_path):
    pytest.importorskip("transformers")
    train(f"--max-steps 1 {of}", run="both")
    text = give(tmp_path / "both", tmp_path / "hf")
    assert 'pipeline_tag: "feature-extraction"' in text and "unitk, and" in text
    assert "AutoModel.from" in text and "unitk generate" in text and text.count("\n## How") == 1


def test_a_decoder_that_learned_pairs_writes_from_a_source(run, train, tmp_path):
    pytest.importorskip("transformers")
    assert "continues" in give(run, tmp_path / "texts")
    train("--max-steps 1 --task lm --arch gpt2_tiny", run="pairs", data="pairs")
    assert "continues" not in give(tmp_path / "pairs", tmp_path / "hf")


@pytest.mark.parametrize("suffix", [TEXTS, WORDS, PLACES, CHOICES])
def test_a_model_of_labels_is_opened_with_the_class_that_it_leaves_as(suffix):
    for kind in families.CLASSES[suffix]:
        task = SimpleNamespace(head=f"{kind}:label")
        assert CLASSES[pipeline_tag(SimpleNamespace(task=task))] == f"AutoModel{suffix}"


def test_without_a_licence_it_says_so(run, tmp_path):
    pytest.importorskip("transformers")
    text = give(run, tmp_path / "hf")
    assert "Licence: not stated" in text and "license:" not in text and "## Scores" not in text


def test_what_has_no_card(run, tmp_path):
    with pytest.raises(UsageError, match="--license .*--to"):
        give(run, tmp_path / "there", "--license", "mit", to="onnx")
    with pytest.raises(UsageError, match="--dtype .*--to hf"):  # also with the value it has anyway
        give(run, tmp_path / "there", "--dtype", "f16")
    assert not (tmp_path / "there").exists()
