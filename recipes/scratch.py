"""What a model from scratch has in common with a checkpoint.

Prints options of `unitk train`, one a line: the architecture, and how texts are read.
"""

from shared import parse_arguments

from unitk.options.config import flag
from unitk.training.start import parse_train


def main(checkpoint: str) -> None:
    """Print what fine-tuning would take from the checkpoint beside its weights."""
    words = "--task classify --data none --save-dir none --lr 1 --max-steps 1".split()
    values = parse_train([*words, f"--init-from={checkpoint}"]).settings.texts
    for key, text in values.items():
        # heads are those of the task
        if key == "task.layout" or key.partition(".")[0] == "arch" and key != "arch.heads":
            print(f"{flag(key)}={text}")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, checkpoint=str))
