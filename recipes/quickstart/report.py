"""What the quickstart prints at its end: scores, token counts, times, and ten questions.

python3 report.py RUN SECONDS
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from stages import events, records, save

from unitk.data.reading.sources import split_sentences
from unitk.score.bleu import bleu
from unitk.score.rouge import rouge


def around(answer: str, passage: str) -> str:
    """The first sentence of a passage with the answer in it."""
    found = (one for one in split_sentences(passage, "punct") if answer in one)
    return next(found, passage)


def main(run: Path, seconds: float) -> None:
    """Print the table and the examples; write the texts that were scored."""
    found = records(run / "written.jsonl")
    wanted = [record["target"] for record in found]
    texts = {
        "written": [record["outputs"][0]["text"] for record in found],
        "the answer's sentence": [around(*record["source"]) for record in found],
    }
    save(run, written=texts["written"], wanted=wanted)
    references = [[text] for text in wanted]
    scores = [
        bleu(some, references, lowercase=True).figures | rouge(some, references).figures
        for some in texts.values()
    ]
    title = f"{len(found)} questions about unseen articles"
    table = Table("", *texts, title=title)
    table.add_row("BLEU-4 (sacrebleu, lower-cased)", *(f"{one['bleu']:.2f}" for one in scores))
    table.add_row("ROUGE-L", *(f"{one['rougeL']:.2f}" for one in scores))
    table.add_row("different ones", *(f"{len(set(some)):,}" for some in texts.values()))
    trained, valid = (events(run / "finetune", kind)[-1] for kind in ("train", "valid"))
    table.add_row("fine-tuning: tokens read", f"{trained['tokens']:,}")
    table.add_row("fine-tuning: validation loss", f"{valid['valid/loss']:.3f}")
    table.add_row("fine-tuning: seconds", f"{trained['seconds']:.0f}")
    table.add_row("seconds in all", f"{seconds:.0f}")
    console = Console(width=100)
    console.print(table)
    for record in found[:: max(1, len(found) // 10)][:10]:
        answer, passage = record["source"]
        at = max(0, passage.find(answer) - 60)
        console.print(f"\n... {passage[at : at + 160]} ...", style="dim", markup=False)
        console.print(f"answer     {answer}", markup=False)
        console.print(f"written    {record['outputs'][0]['text']}", style="bold", markup=False)
        console.print(f"reference  {record['target']}", markup=False)
    console.print(
        f"\nloss curves: {run / 'loss.png'}    scored texts: {run}/written.txt, wanted.txt"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
