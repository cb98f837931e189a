"""Models that were trained for a moment, for the server and its page."""

import pytest
from labelled import FORMS, write

from unitk.training.loop import train
from unitk.training.start import parse_train, prepare


@pytest.fixture(scope="session")
def labelled(tmp_path_factory, toy_vocab):
    """The run of a task of understanding, by the task's name."""
    folder, made = tmp_path_factory.mktemp("labelled"), {}

    def run(task):
        if not made:
            write(folder, toy_vocab)
        if task not in made:
            made[task] = folder / f"run-{task}"
            words = (
                f"--task {task} --task.layout mlm --arch bert_tiny --data {folder / FORMS[task]}"
            )
            words += f" --save-dir {made[task]} --max-steps 1 --lr 2e-3 --batch-texts 16"
            train(prepare(parse_train(words.split())))
        return made[task]

    return run
