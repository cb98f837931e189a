"""BLEU of each checkpoint of a run, greedy.

Prints a JSON object: the update of each checkpoint -> BLEU (sacrebleu, 13a) from language 0 into 1.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from shared import parse_arguments

import unitk
from unitk.metrics.bleu import bleu


def main(run: Path, sources: Path, references: Path) -> None:
    """Translate with every checkpoint, and print the scores."""
    texts, right = (path.read_text(encoding="utf-8").splitlines() for path in (sources, references))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores = {}
    for folder in sorted(run.glob("checkpoints/step-*"), key=lambda folder: int(folder.name[5:])):
        model = unitk.load(folder, device, options={"task.languages": "0,1"})
        written = [best.text for best, *_ in model.generate(texts, beam=1, max_len="1.3x+5")]
        score = bleu(written, [[reference] for reference in right])
        scores[folder.name[5:]] = score.figures["bleu"]
    print(json.dumps(scores))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, sources=Path, references=Path))
