"""Corpora of two languages, and runs of a small model on them."""

from types import SimpleNamespace

import pytest

from tests.conftest import toy_lines
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.training.start import parse_train, prepare

SMALL = (
    "--arch mass_translation --arch.num-layers 2 --arch.width 32 --arch.num-heads 2"
    " --arch.ffn-width 48 --arch.max-positions 80 --arch.shared-embeddings on --arch.dropout 0.1"
    " --arch.init-std 0.1 --blocks line --block-size 60 --max-tokens 300 --batch-texts 8"
    " --precision fp32 --log-every 1 --valid none --lr 1e-2 --max-steps 4 --lr-schedule constant"
)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory, toy_vocab):
    """Texts of languages 0 and 1, the second one in reverse, and pairs of both directions."""
    folder = tmp_path_factory.mktemp("languages")
    toy_vocab.save(folder / "vocab")
    lines = toy_lines(60)
    sides = lines, [" ".join(reversed(line.split())) for line in lines]
    for number, side in enumerate(sides):
        (folder / f"{number}.txt").write_text("\n".join(side))
    given = {"vocab": folder / "vocab", "workers": 1, "documents": "line"}
    found = {"text2": folder / "text2"}
    text = {"input": (f"{folder}/0.txt",), "dest": folder / "text2"}
    preprocess(Options(**text, **given, languages=(2,)))
    for own, other in ((0, 1), (1, 0)):
        found[f"text{own}"] = folder / f"text{own}"
        text = {"input": (f"{folder}/{own}.txt",), "dest": folder / f"text{own}"}
        preprocess(Options(**text, **given, languages=(own,)))
        found[f"pairs{own}"] = folder / f"pairs{own}"
        files = {"source_file": (f"{folder}/{own}.txt",), "target_file": (f"{folder}/{other}.txt",)}
        dest = {"dest": folder / f"pairs{own}", "languages": (own, other)}
        preprocess(Options(**files, **dest, vocab=folder / "vocab", workers=1))
    return SimpleNamespace(**found, folder=folder)


@pytest.fixture
def start(tmp_path, corpora):
    """`start("--task back_translation", "text0", "text1", run="a")`: a checked start."""

    def make(words, *data, run="run"):
        given = dict.fromkeys(word for word in words.split() if word.startswith("--"))
        kept, flags = SMALL.split(), []
        for name, value in zip(kept[::2], kept[1::2], strict=True):
            flags += [] if name in given else [name, value]
        folders = [f"--data={getattr(corpora, name)}" for name in data]
        return prepare(
            parse_train([*flags, *words.split(), *folders, f"--save-dir={tmp_path / run}"])
        )

    return make
