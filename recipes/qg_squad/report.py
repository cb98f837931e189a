"""The scores of generated questions, and ten of them in Markdown.

QUESTIONS has test.json.gz and, if they are there, nqg-src-test.txt.gz and nqg-tgt-test.txt.gz, the
tokenised sentences and questions of Du et al. The answer's sentence and a question by rule
(../rules.py) are scored beside. Writes RUN/report.md, and the texts that were scored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rules import write_question
from shared import (
    describe_stages,
    find_answer_sentence,
    markdown_table,
    parse_arguments,
    read_outputs,
    save_texts,
    show_examples,
)

from unitk.data.files.lines import read_lines
from unitk.data.files.pairs import PairText
from unitk.data.files.squad import read_squad
from unitk.metrics.qg import qg, treebank
from unitk.metrics.stats import stats

FIGURES = ("bleu4", "rougeL", "bleu4_single")
SHOWN = 10
AROUND = 200
"""Characters of the passage shown on either side of an answer."""


def scores(written: list[str], pairs: list[PairText], questions: Path) -> dict[str, dict[str, Any]]:
    """The rows of the table: what lines are grouped by, and which references there are."""
    hypotheses = [treebank(text) for text in written]
    references = [treebank(pair.target) for pair in pairs]
    by_input = [" ".join(pair.source) for pair in pairs]
    rows = {
        "passage and answer": qg(hypotheses, references, by_input).figures,
        "sentence of the answer": qg(
            hypotheses, references, [*map(find_answer_sentence, pairs)]
        ).figures,
    }
    files = [questions / f"nqg-{side}-test.txt.gz" for side in ("tgt", "src")]
    if all(path.is_file() for path in files):
        published = [list(read_lines(path)) for path in files]
        rows["sentence, files of Du et al."] = qg(hypotheses, *published).figures
    return rows


def example(number: int, pair: PairText, written: str) -> str:
    """A question beside what it was made from; the answer is bold."""
    answer, passage = pair.source
    first, stop = pair.focus or (0, 0)
    before, after = passage[max(0, first - AROUND) : first], passage[stop : stop + AROUND]
    return (
        f"### {number}\n\n> ... {before}**{passage[first:stop]}**{after} ...\n\n"
        f"| | |\n| --- | --- |\n| answer | {answer} |\n"
        f"| **written** | **{written}** |\n| asked | {pair.target} |\n"
    )


def main(run: Path, questions: Path) -> None:
    """Print the table and write everything."""
    written = [text.lower() for text in read_outputs(run)]
    pairs = list(read_squad(questions / "test.json.gz"))
    assert len(pairs) == len(written), f"{len(written)} outputs for {len(pairs)} questions"
    wanted = [pair.target for pair in pairs]
    save_texts(run, written=written, wanted=wanted)
    about = stats(written, wanted, [pair.source[-1] for pair in pairs]).figures
    sentences = [find_answer_sentence(pair) for pair in pairs]
    by_rule = [
        write_question(pair.source[0], one) for pair, one in zip(pairs, sentences, strict=True)
    ]
    found = scores(written, pairs, questions)
    for how, texts in {
        "that sentence, copied": [one.lower() for one in sentences],
        "by rule": by_rule,
    }.items():
        scored = scores(texts, pairs, questions)
        found |= {f"{name}: {how}": row for name, row in scored.items()}
    rows = markdown_table(
        ("grouped by", "keys", "BLEU-4", "ROUGE-L", "BLEU-4, single reference"),
        [
            (name, f"{row['sources']:,}", *(f"{row[key]:.2f}" for key in FIGURES))
            for name, row in found.items()
        ],
    )
    parts = [
        f"# {len(written):,} questions\n",
        rows,
        describe_stages(run),
        f"- {len(set(written)):,} different questions;"
        f" {about['words']:.1f} words a question (asked: {about['reference_words']:.1f}),"
        f" {about['new2']:.0f} % of the bigrams not in the passage"
        f" (asked: {about['reference_new2']:.0f} %)\n",
        f"## {SHOWN} of them\n",
    ]
    parts += show_examples(SHOWN, example, pairs, written)
    (run / "report.md").write_text("\n".join(parts))
    print(f"{rows}\nten questions: {run / 'report.md'}    texts: {run}/written.txt, wanted.txt")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, questions=Path))
