"""A model whose activations overflow gives no answer: every verb ends with exit code 5."""

import json
import shlex
import shutil

import pytest
from safetensors.torch import load_file, save_file

from unitk.api.verb import find_verb
from unitk.errors import NonFiniteError
from unitk.files import MANIFEST, seal

ARCHS = {
    "lm": "gpt2_tiny",
    "glm_infill": "glm_tiny",
    "mlm": "bert_tiny",
    "mdlm": "mdlm_tiny",
    "bart": "bart_tiny",
    "pmlm": "unilm2_tiny",
    "unilm": "unilm_tiny",
    "optimus": "optimus_tiny",
}


@pytest.fixture(scope="module")
def overflowing(make_checkpoint, tmp_path_factory):
    """A function: the checkpoint of a task whose weights are finite, but not what comes of them."""

    def make(task, value=1e38):
        path = tmp_path_factory.mktemp("overflow") / "step-1"
        shutil.copytree(make_checkpoint(task, ARCHS[task], "--blocks line --block-size 32"), path)
        weights = load_file(path / "model.safetensors")
        names = [name for name in weights if name.endswith("positions.weight")]
        for name in names or [name for name in weights if name.endswith("tokens.weight")]:
            weights[name].fill_(value)
        save_file(weights, path / "model.safetensors")
        (path / MANIFEST).unlink()
        seal(path)
        return path

    return make


GENERATE = "generate --checkpoint {} --input in.txt --output out --max-len 5 --device cpu"
CASES = [
    ("lm", GENERATE),
    ("lm", f"{GENERATE} --beam 1"),
    ("lm", f"{GENERATE} --search fairseq --beam 2"),
    ("lm", f"{GENERATE} --sampling"),
    ("lm", f"{GENERATE} --sampling --sampling-topk 5 --nbest 2"),
    ("lm", f"{GENERATE} --sampling --sampling-topp 0.5 --sampling-minp 0.1 --min-len 2"),
    ("lm", f"{GENERATE} --diverse-beam-groups 2 --beam 4"),
    ("lm", f"{GENERATE} --no-repeat-ngram-size 2 --sampling"),
    ("lm", "evaluate --checkpoint {} --data data --device cpu"),
    ("lm", "evaluate --checkpoint {} --pairs pairs.jsonl --device cpu"),
    ("lm", "embed --checkpoint {} --input in.txt --output out.npy --device cpu"),
    ("lm", "embed --checkpoint {} --input in.txt --output out.jsonl --pool none --device cpu"),
    (
        "glm_infill",
        "generate --checkpoint {} --infill 'bada [MASK] gebu' --output out --device cpu",
    ),
    ("glm_infill", f"{GENERATE} --sampling"),
    ("mlm", "generate --checkpoint {} --infill 'bada [MASK] gebu' --output out --device cpu"),
    ("mlm", "evaluate --checkpoint {} --data data --device cpu"),
    ("mlm", "evaluate --checkpoint {} --pairs pairs.jsonl --device cpu"),
    ("mlm", "embed --checkpoint {} --input in.txt --output out.npy --pool first --device cpu"),
    ("mdlm", GENERATE),
    ("mdlm", f"{GENERATE} --sampling"),
    ("pmlm", "evaluate --checkpoint {} --data data --device cpu"),
    ("unilm", f"{GENERATE} --sampling"),
    ("bart", GENERATE),
    ("bart", f"{GENERATE} --sampling"),
    ("optimus", "evaluate --checkpoint {} --data data --device cpu"),
    ("optimus", f"{GENERATE} --sampling"),
    ("optimus", "latent sample --checkpoint {} --count 2 --max-len 5 --sampling --device cpu"),
    ("optimus", "latent encode a b --checkpoint {} --device cpu"),
    ("optimus", "embed --checkpoint {} --input in.txt --output out.npy --pool latent --device cpu"),
]


@pytest.mark.parametrize(("task", "line"), CASES)
def test_no_answer_is_written(task, line, overflowing, toy_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("bada gebu\nbada\n")
    (tmp_path / "pairs.jsonl").write_text(
        json.dumps({"sentence_good": "bada gebu", "sentence_bad": "gebu bada"}) + "\n"
    )
    (tmp_path / "data").symlink_to(toy_data / "text")
    before = sorted(path.name for path in tmp_path.iterdir())
    verb, *words = shlex.split(line.format(overflowing(task)))
    with pytest.raises(NonFiniteError, match="not finite|NaN or infinity"):
        find_verb(verb)(words)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
