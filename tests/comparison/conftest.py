"""Runs that are compared."""

import pytest

from unitk.verbs.train import run as train

RUN = (
    "--task lm --arch gpt2_tiny --blocks line --block-size 64 --max-tokens 400 --precision fp32"
    " --lr 3e-3 --lr-schedule constant --threads 1 --device cpu --batch-texts 100"
)


@pytest.fixture(scope="session")
def runs(toy_data, tmp_path_factory):
    """Three runs: two that may be compared, and one that is shorter."""
    folder = tmp_path_factory.mktemp("runs")
    for name, words in {
        "one": "--max-steps 2",
        "two": "--max-steps 2 --seed 2",
        "short": "--max-steps 1",
    }.items():
        words += f" --data {toy_data / 'text'} --save-dir {folder / name}"
        train(f"{RUN} {words}".split())
    return folder
