"""How often entities are predicted right.

WEIGHTS are RANDOM,NONE,KEEP: how often entities are replaced, left out and kept. No word is hidden.
Candidates are all entities of the corpus that have a vector. Prints json: the accuracy, and that of
a guess and of the candidate that the corpus has most often.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from shared import parse_arguments

from unitk.data.corpus.folders import open_corpus
from unitk.families.thu_ernie.task import layout
from unitk.options.settings import Origin, Settings
from unitk.slots import collate
from unitk.tasks.mlm import MLM
from unitk.training.saving.checkpoint import load

LONGEST, TEXTS = 200, 32


@torch.inference_mode()
def main(checkpoint: str, corpus: str, weights: str) -> None:
    """Predict the entities of a linked corpus."""
    settings = Settings.of_texts({"task.random_none_keep": weights}, Origin.FLAG)
    model, held = load(Path(checkpoint), given=settings), open_corpus(Path(corpus))
    task, rng, examples = model.task, np.random.default_rng(0), []
    task = task.with_trained(labels=tuple(held.labels))
    for number in range(len(held)):
        (text,), links = held.record(number)
        parts, own = [text[:LONGEST]], links[links[:, 1] <= LONGEST].tolist()
        entity = task.entity(parts, [[(a, b, task.trained.labels[n]) for a, b, n in own]])
        example = layout(
            MLM.lay_out_parts(task, parts).example, entity, task.add_noise(entity, rng)
        )
        examples += [example] if example.asks else []
    named = np.concatenate([example.asks[0].among[example.asks[0].label] for example in examples])
    every, counts = np.unique(named, return_counts=True)
    right = 0.0
    for first in range(0, len(examples), TEXTS):
        batch = collate([[example] for example in examples[first : first + TEXTS]]).to("cpu")
        ask = batch.asks["dea"]
        label = torch.searchsorted(torch.from_numpy(every), ask.among[ask.label])
        ask = replace(ask, among=torch.from_numpy(every), label=label)
        right += float(model.model.score_labels(replace(batch, asks={"dea": ask}), ask)[1].sum())
    figures = {"asked": len(named), "candidates": len(every), "guess": 1 / len(every)}
    figures |= {"most frequent": counts.max() / len(named), "accuracy": right / len(named)}
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, checkpoint=str, corpus=str, weights=str))
