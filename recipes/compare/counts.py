"""What an update of an objective reads, is asked for and computes, counted on some of its updates.

    python3 counts.py --dest lm.json -- OPTIONS of unitk train
    python3 counts.py --updates 2000 labels lm.json mlm.json     how many of mlm have as many
                                                                 labels as 2,000 of lm
The updates are spread over the run, whose schedules they follow. Each goes forward and backward,
and PyTorch's flop counter sees every product. Nothing is trained. The means of an update:

    texts      texts
    tokens     tokens of the corpus
    slots      slots of the layouts, without padding
    labels     words that losses are of: one that two losses are of counts twice
    computing  floating-point operations of the matrix products, with padding, as a CPU needs them
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from unitk.training.loop import Trainer
from unitk.training.measures import count_asks
from unitk.training.start import parse_train, prepare

UPDATES = 12


def counted(words, folder):
    """The means of an update of `unitk train WORDS`."""
    argv = [*words, "--device=cpu", "--precision=fp32", "--products=torch", f"--save-dir={folder}"]
    trainer = Trainer(prepare(parse_train(argv)))
    trainer.model.train()
    epoch, total = len(trainer.feed.plan(0)), trainer.total
    sums = dict.fromkeys(("texts", "tokens", "slots", "labels", "computing"), 0.0)
    for number in range(UPDATES):
        position = 0, number * epoch // UPDATES, number * total // UPDATES, total
        update, tokens, _ = next(trainer.data.updates(trainer.feed, *position))
        update = replace(update, batches=[part.to(trainer.device) for part in update.batches])
        counts = count_asks(trainer.criterion, update.batches)
        asks = {name: ask.head for batch in update.batches for name, ask in batch.asks.items()}
        num_words = (counts[name] for name, head in asks.items() if is_words(trainer, head))
        # attention as plain products, as the counter knows none of its kernels for CPUs
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            trainer.passes(update, counts)
        slots = sum(batch.num_real for batch in update.batches)
        own = len(update.ids), tokens, slots, sum(num_words), counter.get_total_flops()
        sums = {key: sums[key] + total_of for key, total_of in zip(sums, own, strict=True)}
    return {key: total_of / UPDATES for key, total_of in sums.items()}


def is_words(trainer, head):
    """Whether an output layer predicts words."""
    return trainer.model.heads.get(head).words


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dest", type=Path)
    parser.add_argument("--updates", nargs=4, metavar=("STEPS", "WHAT", "THAT", "OWN"))
    parser.add_argument("words", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if args.updates:
        steps, what, *paths = args.updates
        that, own = (json.loads(Path(path).read_text())[what] for path in paths)
        print(round(int(steps) * that / own))
        return
    with TemporaryDirectory() as folder:
        counts = counted(args.words[1:], Path(folder) / "run")
    args.dest.write_text(json.dumps(counts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
