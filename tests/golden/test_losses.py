"""The losses of a few updates of each task are those of `losses.json`.

They change only together with a line of CHANGELOG.md that begins with "changes results:".
`UNITK_GOLDEN=write pytest tests/golden` writes them anew. Nothing in them depends on the processor
but rounding: the vocabulary is a list of words, and there is no dropout.
"""

import json
import os
from pathlib import Path

import entity_files
import paper_archs
import pytest
import torch

from unitk import registry
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.tasks.base import Task
from unitk.training.loop import train
from unitk.training.start import parse_train, prepare
from unitk.vocab.open import open_vocab

GOLDEN = Path(__file__).with_name("losses.json")
WEIGHTS = (
    "--arch.init-std 0.1 --arch.dropout 0 --arch.attention-dropout 0 --arch.activation-dropout 0"
)
RUN = (
    "--precision fp32 --threads 1 --valid none --writers none --log-every 1"
    " --seed 3 --max-steps 4 --lr 1e-3 --batch-texts 8 --max-tokens 600"
)
LENGTHS = {"text": "--block-size 48", "pairs": "--max-source-len 30 --max-target-len 12"}
RELATIVE = 1e-5
"""Other kernels change less than a tenth of it."""
ON_GPU = 1e-3
"""A GPU sums in another order, and LSTMs multiply numbers of 10 bits (TF32)."""


def kinds(name):
    """What a task learns from: text, pairs or both."""
    cls = registry.get("task", name)
    can = {"text": cls.pretrain is not Task.pretrain, "pairs": cls.finetune is not Task.finetune}
    return [kind for kind in can if can[kind]]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Corpora text and pairs of sentences that are functions of their numbers."""
    folder = tmp_path_factory.mktemp("golden")
    words = [f"w{i}" for i in range(40)]
    lines = [[words[(i * i + 7 * j * j) % 40] for j in range(3 + i % 6)] for i in range(120)]
    files = {
        "vocab": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "."],
        "text": [" ".join([*line, ".", "\n" * (i % 4 == 3)]) for i, line in enumerate(lines)],
        "source": [" ".join(line) for line in lines],
        "target": [" ".join(line[::-2]) for line in lines],
    }
    paths = {name: folder / f"{name}.txt" for name in files}
    for name, some in files.items():
        paths[name].write_text("".join(f"{line}\n" for line in some))
    vocab, text, source, target = map(str, paths.values())
    preprocess(Options(dest=folder / "text", vocab=Path(vocab), input=(text,)))
    pairs = {"source_file": (source,), "target_file": (target,)}
    preprocess(Options(dest=folder / "pairs", vocab=Path(vocab), **pairs))
    return folder


@pytest.fixture
def losses(data, tmp_path):
    """`losses(task, kind, options)`: those of a few updates."""

    def call(name, kind, how):
        arch = paper_archs.arch_of(name).rpartition("_")[0] + "_tiny"
        words = f"--task {name} --arch {arch} --data {data / kind / 'train'} {how}"
        if name == "thu_ernie":
            linked = entity_files.write_entities(tmp_path, open_vocab(data / kind / "train"))
            words += "".join(f" --task.{key} {path}" for key, path in linked.items())
        weights = "--arch.init-range 0.3" if registry.get("arch", arch)().sequential else WEIGHTS
        words += f" --save-dir {tmp_path / 'a'} {weights} {RUN} {LENGTHS[kind]}"
        train(prepare(parse_train(words.split())))
        events = map(json.loads, (tmp_path / "a" / "log.jsonl").read_text().splitlines())
        return [event["train/loss"] for event in events if "train/loss" in event]

    return call


EVERY = [(name, kind) for name in registry.names("task") for kind in kinds(name)]


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_losses_are_the_recorded_ones(name, kind, losses):
    found = losses(name, kind, "--device cpu --products torch")
    recorded = json.loads(GOLDEN.read_text())
    if os.environ.get("UNITK_GOLDEN") == "write":
        recorded[f"{name} {kind}"] = [float(f"{loss:.7g}") for loss in found]
        rows = [f"{json.dumps(key)}: {recorded[key]}" for key in sorted(recorded)]
        GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert found == pytest.approx(recorded[f"{name} {kind}"], rel=RELATIVE)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("name", "kind"), [one for one in EVERY if one[0] != "optimus"])
def test_a_gpu_has_the_recorded_losses(name, kind, losses):
    """But for those of a latent, whose noise is the GPU's."""
    recorded = json.loads(GOLDEN.read_text())[f"{name} {kind}"]
    assert losses(name, kind, "--device cuda") == pytest.approx(recorded, rel=ON_GPU)
