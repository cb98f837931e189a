"""Small helpers to run a model on plain rows of ids, and to run the verb."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from unitk.slots import Example, collate, lm, stay
from unitk.verbs import convert

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(55))]


@pytest.fixture
def vocab_txt(tmp_path):
    """A WordPiece vocabulary of 60 ids, in a folder of its own."""
    path = tmp_path / "words" / "vocab.txt"
    path.parent.mkdir()
    path.write_text("".join(f"{word}\n" for word in WORDS))
    return path


def ids(rng, n, size=60):
    return rng.integers(5, size, n)


def single(tokens, *, at=None, **columns):
    """An example of one tower that asks every slot; `at`: its times."""
    places = np.arange(len(tokens))
    columns = {"pos": places, "at": 0 if at is None else at, **columns}
    return Example({"x": stay(tokens, **columns)}, [lm(places, tokens)])


def pair(source, fed):
    """An example of two towers that asks every slot of the decoder."""
    places = np.arange(len(fed))
    towers = {
        "enc": stay(source, np.arange(len(source))),
        "dec": stay(fed, places, at=places),
    }
    return Example(towers, [lm(places, fed, tower="dec")])


@torch.no_grad()
def logits(model, example, rows=None):
    """What a model says at every asked slot of an example, of so many rows: no others count."""
    batch = collate([[example]]).to("cpu")
    tower = example.asks[0].tower
    states = model.eval()(batch)[0][tower]
    found = model.head(states.flatten(0, 1)[batch.asks["lm"].rows[:, 0]])
    assert torch.allclose(found.logsumexp(1), found[:, :rows].logsumexp(1), rtol=1e-6)
    return found[:, :rows]


def to_unitk(source, path, dest, *more):
    convert.run(["--from", source, str(path), "--to", "unitk", str(dest), *map(str, more)])
    return dest


def from_unitk(path, target, dest):
    convert.run(["--from", "unitk", str(path), "--to", target, str(dest)])
    return dest


def goes_back(path, target, dest, file, tensors):
    """Writes a model of ours in another format, where `file` holds these tensors bit for bit."""
    back = from_unitk(path, target, dest)
    if file.endswith(".safetensors"):
        found = load_file(back / file)
    else:  # fairseq has a namespace of options beside the tensors
        found = torch.load(back / file, weights_only=target != "fairseq")
    written = found.get("module", found.get("model", found))
    assert written.keys() == tensors.keys()
    assert not [name for name in tensors if not torch.equal(written[name], tensors[name])]
    return back


def perturbed(model, std=0.1):
    """The model with weights far from those at the start."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(std * torch.randn_like(parameter))
    return model.eval()


@pytest.fixture(scope="session")
def kit():
    """The functions above."""
    return SimpleNamespace(
        ids=ids,
        single=single,
        pair=pair,
        logits=logits,
        to_unitk=to_unitk,
        from_unitk=from_unitk,
        goes_back=goes_back,
        perturbed=perturbed,
    )


@pytest.fixture(scope="session")
def hf():
    """transformers, quiet."""
    found = pytest.importorskip("transformers")
    found.logging.set_verbosity_error()
    found.logging.disable_progress_bar()
    return found
