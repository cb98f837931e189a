"""What the quickstart prints at its end: scores, token counts, times, and five questions.

python3 report.py RUN SECONDS
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from stages import events, records, save

from unitk.score.bleu import bleu
from unitk.score.rouge import rouge


def main(run: Path, seconds: float) -> None:
    """Print the table and the examples; write the texts that were scored."""
    found = records(run / "questions.jsonl")
    written = [record["outputs"][0]["text"] for record in found]
    wanted = [record["target"] for record in found]
    save(run, written=written, wanted=wanted)
    references = [[text] for text in wanted]
    scores = bleu(written, references, lowercase=True).figures | rouge(written, references).figures

    table = Table("", "", title=f"{len(found)} questions about unseen articles")
    table.add_row("BLEU-4 (sacrebleu, lower-cased)", f"{scores['bleu']:.2f}")
    table.add_row("ROUGE-L", f"{scores['rougeL']:.2f}")
    for stage in ("pretrain", "finetune"):
        trained, valid = (events(run / stage, kind)[-1] for kind in ("train", "valid"))
        table.add_row(f"{stage}: tokens read", f"{trained['tokens']:,}")
        table.add_row(f"{stage}: validation loss", f"{valid['valid/loss']:.3f}")
        table.add_row(f"{stage}: seconds", f"{trained['seconds']:.0f}")
    table.add_row("words written", f"{sum(len(r['outputs'][0]['tokens']) for r in found):,}")
    table.add_row("seconds in all", f"{seconds:.0f}")
    console = Console(width=100)
    console.print(table)
    for record in found[:: max(1, len(found) // 5)][:5]:
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
