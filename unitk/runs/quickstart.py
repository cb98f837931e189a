"""`unitk quickstart`: fine-tune, generate and score with what comes with unitk."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unitk.api.verb import find_verb, verb
from unitk.data.files.pairs import PairText
from unitk.data.files.squad import read_squad
from unitk.data.files.window import sentences_of
from unitk.errors import DataError, UnitkError, require
from unitk.files import create, is_vacant, write
from unitk.foreign import parse_json
from unitk.options.config import Parsed
from unitk.options.fields import Checked, Positive
from unitk.registry import register

MARK = ".recipe"  # in folders that may be replaced
STAGES = {
    "1/4 preprocess": (
        "preprocess --input {data}/train.json.gz --valid {data}/dev.json.gz"
        " --test {data}/test.json.gz --window 80 --vocab {init} --dest {run}/data",
    ),
    "2/4 fine-tune on question generation": (
        "train --config {here}/finetune.yaml --data {run}/data --init-from {init}"
        " --save-dir {run}/finetune --max-steps {steps}{taught}",
    ),
    "3/4 generate and score": (
        "generate --checkpoint {run}/finetune --input {run}/data/test --beam 8 --max-len 32"
        " --lenpen 0.9 --contrast 0.1 --no-repeat-ngram-size 3 --avoid-part 1"
        " --output-format jsonl --output {run}/written.jsonl",
        "plot {run}/finetune --output {run}/loss.png",
    ),
    "4/4 without fine-tuning": (
        "generate --checkpoint unitk-base-en --beam 5"
        " --infill 'She opened the [MASK] and put her [MASK] on the table.'",
        "generate --checkpoint unitk-base-en 'The old man opened the door' 'It was a cold night'",
        "generate --checkpoint unitk-base-en-questions --input {run}/passages.txt",
        "latent analogy 'he plays tennis .' 'he played tennis .' 'she plays the piano .'"
        " --checkpoint unitk-vae-en",
    ),
}
"""Heading -> commands, which are shown and run."""
TAUGHT = (
    " --criterion distill --criterion.states-weight 200 --criterion.states-loss cosine"
    " --criterion.teacher "
)
"""What a teacher adds to the command of the fine-tuning."""
OSLO = "Oslo is the capital of Norway. It was founded in 1040."
SHOWN = (
    "Ten questions of the tenth that the model is surest of, below the sentence with the [answer]."
    " A model of 15 million parameters learnt to ask in minutes: about half of these are good, and"
    " about a quarter of all."
)
PASSAGES = [f"1040\t{OSLO}", f"Oslo\t{OSLO}"]


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Fine-tune a bundled model on bundled questions, generate and score questions, and show what
    bundled models do without fine-tuning. Each command is printed before it runs.

    unitk quickstart
    unitk quickstart --data squad --save-dir runs/full --max-steps 10000
    """

    data: Path | None = None
    """Folder with train.json.gz, dev.json.gz and test.json.gz in SQuAD's format. Default: 13,000
    bundled questions."""
    save_dir: Path = Path("runs/quickstart")
    """Folder to write. An earlier quickstart in it is replaced."""
    init_from: Path = Path("unitk-base-en")
    """Run, checkpoint or bundled model to start from."""
    teacher: Path | None = Path("unitk-base-en-questions")
    """Run, checkpoint or bundled model with the same vocabulary and width to learn from, too.
    `none`: the questions alone teach."""
    max_steps: Positive = 450
    """Maximum updates of the fine-tuning."""


@register("verb", "quickstart")
@verb(Options, example='(save_dir="runs/quickstart")')
def run(parsed: Parsed) -> None:
    """Run the commands, and report between them."""
    options: Options = parsed.main
    folder = options.save_dir
    began = time.perf_counter()
    free = not folder.is_symlink() and (is_vacant(folder) or (folder / MARK).exists())
    require(free, f"--save-dir {folder} holds files that no quickstart made; name another folder")
    data = options.data or home() / "data/squad-v1.1-nqg-split"
    for name in ("train", "dev", "test"):
        if not (data / f"{name}.json.gz").is_file():
            raise DataError(f"--data {data}: there is no {name}.json.gz in it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    create(folder / MARK)
    save_lines(folder / "passages.txt", PASSAGES)
    places = {"data": data, "init": options.init_from, "run": folder, "here": home()}
    quoted = {name: shlex.quote(str(path)) for name, path in places.items()}
    taught = TAUGHT + shlex.quote(str(options.teacher)) if options.teacher else ""
    for heading, commands in STAGES.items():
        print(f"\n== {heading}")
        for command in commands:
            line = command.format(**quoted, taught=taught, steps=options.max_steps)
            print(f"$ unitk {line}", flush=True)
            name, *words = shlex.split(line)
            try:
                find_verb(name)(words)
            except UnitkError as error:  # whose options are those of the command
                error.args = tuple(f"unitk {name} {text}" for text in error.args)
                raise
        if heading.startswith("3"):
            report_questions(folder, data / "test.json.gz", time.perf_counter() - began)


def home() -> Path:
    """The folder of the recipe: in the package if unitk is installed, else in the clone."""
    package = Path(__file__).parents[1]
    folder = package / "quickstart"
    folder = folder if folder.is_dir() else package.parent / "recipes" / "quickstart"
    require(
        folder.is_dir(),
        f"the quickstart needs its data, which {package} lacks: install unitk again",
    )
    return folder


def save_lines(path: Path, lines: Sequence[str]) -> None:
    """Write texts, one a line."""
    write(path, "".join(line.replace("\n", " ") + "\n" for line in lines))


def report_questions(folder: Path, questions: Path, seconds: float) -> None:
    """Print scores, times and ten questions about the file `questions`; write the texts scored."""
    from rich.console import Console
    from rich.table import Table

    from unitk.metrics.bleu import bleu
    from unitk.metrics.rouge import rouge

    sentences = [sentences_of(pair, "{{sentence}}") for pair in read_squad(questions)]
    lines = (folder / "written.jsonl").read_text(encoding="utf-8").splitlines()
    records: list[dict[str, Any]] = [parse_json(line, "written.jsonl") for line in lines]
    targets = [record["target"] for record in records]
    texts = {
        "written": [record["outputs"][0]["text"] for record in records],
        "the answer's sentence": [sentence.source[1] for sentence in sentences],
    }
    save_lines(folder / "written.txt", texts["written"])
    save_lines(folder / "wanted.txt", targets)
    references = [[text] for text in targets]
    scores = [
        bleu(hypotheses, references, lowercase=True).figures | rouge(hypotheses, references).figures
        for hypotheses in texts.values()
    ]
    table = Table("", *texts, title=f"{len(records)} questions about unseen articles")
    for row, figure in ("BLEU-4 (sacrebleu, lower-cased)", "bleu"), ("ROUGE-L", "rougeL"):
        table.add_row(row, *(f"{score[figure]:.2f}" for score in scores))
    table.add_row("different ones", *(f"{len(set(hypotheses)):,}" for hypotheses in texts.values()))
    table.add_row("seconds in all", f"{seconds:.0f}")
    console = Console(width=100)
    console.print(table)
    console.print(f"\n{SHOWN}", markup=False)
    for record, sentence in pick_spread(records, sentences):
        console.print(f"\n{mark_answer(sentence)}", style="dim", markup=False)
        console.print(f"written    {record['outputs'][0]['text']}", style="bold", markup=False)
        console.print(f"reference  {record['target']}", markup=False)
    files = f"{folder / 'loss.png'}    scored texts: {folder}/written.txt, wanted.txt"
    console.print(f"\nloss curves: {files}")


def mark_answer(sentence: PairText) -> str:
    """The sentence with its answer in brackets."""
    text = sentence.source[1]
    first, stop = sentence.focus or (0, 0)
    return f"{text[:first]}[{text[first:stop]}]{text[stop:]}"


def pick_spread(
    records: Sequence[dict[str, Any]], sentences: Sequence[PairText]
) -> list[tuple[dict[str, Any], PairText]]:
    """Ten records with their sentences, spread over the tenth with the highest scores; a sentence
    counts once."""
    pairs = zip(records, sentences, strict=True)
    distinct: dict[str, tuple[dict[str, Any], PairText]] = {}
    for pair in sorted(pairs, key=lambda pair: -pair[0]["outputs"][0]["score"]):
        distinct.setdefault(pair[1].source[1], pair)
    tenth = list(distinct.values())[: max(10, len(distinct) // 10)]
    return tenth[:: max(1, len(tenth) // 10)][:10]
