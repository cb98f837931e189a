"""The table and the picture of a comparison, of what is finished.

SUMMARIES is SciTLDR's test file, BLIMP the minimal pairs, and ROWS are all rows that the comparison
is to have (OBJECTIVE-SEED, OBJECTIVE@labels-SEED, scratch.TASK-SEED). Writes RUN/table.md,
RUN/table.json and RUN/compare.png.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean, variance

import numpy as np
from shared import (
    GLUE,
    find_answer_sentence,
    markdown_table,
    parse_arguments,
    read_jsonl,
    read_outputs,
    read_record_pairs,
    read_stage_events,
    score_trivial,
    scores_in,
)

from unitk.comparison.bootstrap import difference, interval
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.data.files.documents import split_sentences
from unitk.data.files.pairs import Fields
from unitk.data.files.squad import read_squad
from unitk.evaluation.pairs import read_pairs, score_pairs
from unitk.metrics.qg import qg, treebank
from unitk.metrics.rouge import rouge

Figures = dict[str, float]
WRITES = {"mlm": "unilm", "hybrid": "lm"}
"""Objective -> the task that its models are fine-tuned as, where that is another one."""
EQUAL = "tokens", "slots", "labels", "computing"
"""What counts.py counts of an update, and the rows of OBJECTIVE@WHAT have as much of as `lm`."""
LOSSES = ("QG loss", "TLDR loss")
DRAWN = ("BLiMP", "LAMBADA", *GLUE, "BLEU-4", "ROUGE-L", "R-Lsum")
TITLES = ["loss", "BLiMP", "LAMBADA", *GLUE, "QG loss", "BLEU-4", "ROUGE-L"]
TITLES += ["TLDR loss", "R-1", "R-2", "R-Lsum", "minutes"]


def task_of(name: str) -> str:
    """What a row or an objective is fine-tuned as, whatever number of updates it had."""
    objective = name.partition("@")[0]
    return WRITES.get(objective, objective)


def asked(written: Sequence[str], run: Path) -> Figures:
    """Scores of questions, grouped by passage and answer."""
    pairs = list(read_squad(run / "test.json"))
    references = [treebank(pair.target) for pair in pairs]
    sources = [" ".join(pair.source) for pair in pairs]
    figures = qg([treebank(text) for text in written], references, sources).figures
    return {"BLEU-4": figures["bleu4"], "ROUGE-L": figures["rougeL"]}


def summed(written: Sequence[str], references: list[list[str]]) -> Figures:
    """Scores of summaries; of several references the best one counts."""
    figures = rouge(written, references).figures
    names = {"R-1": "rouge1", "R-2": "rouge2", "R-Lsum": "rougeLsum"}
    return {title: figures[name] for title, name in names.items()}


def figures(run: Path, name: str, references: list[list[str]]) -> Figures:
    """What is known of a row."""
    row, figures = run / "rows" / name, Figures()
    seconds = []
    if (row / ".pretrain").exists():
        figures["loss"] = read_stage_events(row / "pretrain", "valid")[-1]["valid/loss"]
        seconds.append(read_stage_events(row / "pretrain", "train")[-1]["seconds"])
    if (row / "blimp.json").exists():
        figures["BLiMP"] = json.loads((row / "blimp.json").read_text())["mean_of_sets"]
    if (row / "lambada.json").exists():
        figures["LAMBADA"] = json.loads((row / "lambada.json").read_text())["accuracy"]
    for stage, title in (("questions", "QG loss"), ("summaries", "TLDR loss")):
        if (row / stage / ".finetune").exists():
            valid = read_stage_events(row / stage / "finetune", "valid")
            figures[title] = min(event["valid/loss"] for event in valid)
            seconds.append(read_stage_events(row / stage / "finetune", "train")[-1]["seconds"])
    if (row / "questions" / ".generate").exists():
        figures |= asked(read_outputs(row / "questions"), run)
    if (row / "summaries" / ".generate").exists():
        figures |= summed(read_outputs(row / "summaries"), references)
    for name, (figure, *_) in GLUE.items():
        if (row / f"{name}.json").exists():
            scores = scores_in(row / f"{name}.json")
            figures[name] = scores[figure]
            seconds.append(read_stage_events(row / name, "train")[-1]["seconds"])
    return figures | ({"minutes": sum(seconds) / 60} if seconds else {})


def tokens(folder: Path) -> np.ndarray:
    """The ids of a corpus."""
    corpus = open_corpus(folder)
    return corpus.tokens(0, corpus.counts.tokens)


def unigram(run: Path, blimp: Path) -> Figures:
    """Token counts of the training text, each plus one, as a model."""
    folder = run / "data" / "text" / "train"
    vocab = corpus_vocab(folder)
    count = np.bincount(tokens(folder), minlength=len(vocab)) + 1.0
    log = np.log(count / count.sum())
    right = defaultdict(list)
    for pair in read_pairs([blimp]):
        good, bad = (log[vocab.encode(text)].sum() for text in pair.sentences)
        right[pair.name].append(50.0 * (1 + np.sign(round(good - bad, 9))))
    held_out = tokens(run / "data" / "held-out" / "valid")
    accuracy = float(np.mean([mean(values) for values in right.values()]))
    return {"loss": float(-log[held_out].mean()), "BLiMP": accuracy, "LAMBADA": 0.0}


def baselines(
    run: Path, blimp: Path, test: Path, references: list[list[str]]
) -> dict[str, Figures]:
    """Rows of what needs no training."""
    leads = [
        split_sentences(pair.source[-1], "punct")[0]
        for pair in read_record_pairs(test, Fields(("source",), ("target",)))
    ]
    copied = [find_answer_sentence(pair) for pair in read_squad(run / "test.json")]
    sets = [name for name in GLUE if (run / "text" / f"{name}.dev.jsonl").exists()]
    return {
        "unigram": unigram(run, blimp),
        "chance; commonest label": {"BLiMP": 50.0, "LAMBADA": 0.0}
        | {name: score_trivial(run, name)[GLUE[name][0]] for name in sets},
        "the answer's sentence": asked(copied, run),
        "first sentence": summed(leads, references),
    }


Runs = dict[str, dict[str, list[float]]]
"""Objective -> figure -> its value in each run that has it."""


def by_objective(rows: dict[str, Figures]) -> Runs:
    """The runs of each objective together."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for name, figures in rows.items():
        for title, value in figures.items():
            runs[name.rpartition("-")[0]][title].append(value)
    return runs


def noise(runs: Runs) -> Figures:
    """The standard deviation over seeds, pooled over the objectives that have several."""
    pooled = defaultdict(list)
    for figures in runs.values():
        for title, values in figures.items():
            if len(values) > 1:
                pooled[title] += [variance(values)] * (len(values) - 1)
    return {title: mean(values) ** 0.5 for title, values in pooled.items()}


def means(figures: dict[str, list[float]]) -> Figures:
    """The mean of each figure."""
    return {title: mean(values) for title, values in figures.items()}


def figure_table(named: dict[str, Figures], first: str = "") -> str:
    """A line for each name, of what more than the baselines have."""
    trained = [figures for name, figures in named.items() if name.startswith("`")]
    titles = [title for title in TITLES if any(title in figures for figures in trained)]
    lines = [
        [
            name,
            *(f"{figures[t]:.{3 if 'loss' in t else 1}f}" if t in figures else "" for t in titles),
        ]
        for name, figures in named.items()
    ]
    return markdown_table([first, *titles], lines)


def seeds_of(runs: dict[str, list[float]]) -> str:
    """How many runs its figures are means of: 3, or 2-3."""
    counts = {len(values) for values in runs.values()}
    return "-".join(str(count) for count in sorted({min(counts), max(counts)}))


Items = tuple[np.ndarray, np.ndarray]
"""What a figure is a mean of, [N], and the weight of each item."""


def items(run: Path, name: str, references: list[list[str]]) -> dict[str, Items]:
    """The items of those figures of a row that are means: pairs of BLiMP, summaries."""
    row, items = run / "rows" / name, dict[str, Items]()
    if (row / "pairs.jsonl").exists():
        pairs = [*read_jsonl(row / "pairs.jsonl")]
        better, _ = score_pairs(
            np.array([(pair["score_good"], pair["score_bad"]) for pair in pairs])
        )
        sets = [pair["set"] for pair in pairs]
        _, of, sizes = np.unique(sets, return_inverse=True, return_counts=True)
        items["BLiMP"] = 100 * better, 1 / sizes[of]  # each set counts once
    if (row / "summaries" / ".generate").exists():
        written = zip(read_outputs(row / "summaries"), references, strict=True)
        scores = [summed([text], [several])["R-1"] for text, several in written]
        items["R-1"] = np.array(scores), np.ones(len(scores))
    return items


def intervals(items: dict[str, dict[str, Items]]) -> dict[str, dict[str, dict[str, object]]]:
    """Means of each objective over its seeds, with what is within the draws of seeds and items.

    Beside them are the differences to the best objective, to the same objective with fewer
    updates, and to the same model from scratch.
    """
    intervals: dict[str, dict[str, dict[str, object]]] = defaultdict(dict)
    for title in dict.fromkeys(title for of_run in items.values() for title in of_run):
        runs, weights = defaultdict(list), np.ones(0)
        for name, own in items.items():
            if title in own:
                scores, weights = own[title]
                runs[name.rpartition("-")[0]].append(scores * weights)
        trained = {name: own for name, own in runs.items() if not name.startswith("scratch.")}
        # the best one of those that read equal texts
        equal = [name for name in trained if "@" not in name] or [*trained]
        best = max(equal, key=lambda name: float(np.mean(trained[name])), default="")
        for name, own in trained.items():
            entry: dict[str, object] = {"mean": interval(own, weights).figures()}
            for other in dict.fromkeys([best, name.partition("@")[0]]):
                if other != name and other in trained:
                    entry[f"minus {other}"] = difference(own, trained[other], weights).figures()
            if scratch := runs.get(f"scratch.{task_of(name)}"):
                entry["minus scratch"] = difference(own, scratch, weights).figures()
            intervals[name][title] = entry
    return dict(intervals)


def interval_table(intervals: dict[str, dict[str, dict[str, object]]]) -> str:
    """A line for each objective and figure."""
    lines = []
    for name, titles in intervals.items():
        for title, entry in titles.items():
            cells = [
                f"{what}: {interval['value']:.1f} [{interval['low']:.1f}, {interval['high']:.1f}]"
                for what, interval in entry.items()
            ]
            seeds = entry["mean"]["seeds"]
            lines.append([f"`{name}`", title, str(seeds), cells[0].removeprefix("mean: ")])
            lines[-1].append("; ".join(cells[1:]))
    head = ["objective", "", "seeds", "mean [95 % of draws]", "differences"]
    return markdown_table(head, lines) if lines else ""


def verdicts(runs: Runs, copied: Figures, spread: Figures) -> list[str]:
    """Each objective against the same models from scratch, and against copying, in the mean.

    Losses are within noise where they differ by less than two standard deviations of a
    difference of such means.
    """
    lines = []
    for name, figures in runs.items():
        scratch = runs.get(f"scratch.{task_of(name)}")
        if scratch is None or name.startswith("scratch.") or not figures.keys() & scratch.keys():
            continue
        claims, own, other = [], means(figures), means(scratch)
        for title in {*LOSSES} & own.keys() & other.keys():
            deviation = (1 / len(figures[title]) + 1 / len(scratch[title])) ** 0.5
            gain, floor = other[title] - own[title], 2 * deviation * spread.get(title, 0)
            word = "within noise of" if abs(gain) < floor else "below" if gain > 0 else "ABOVE"
            claims.append(f"{title} {word} scratch by {gain:.3f}")
        if "BLEU-4" in own and "BLEU-4" in other:
            for base, what in ((other, "scratch"), (copied, "copying")):
                gain = own["BLEU-4"] - base["BLEU-4"]
                word = "above" if gain > 0 else "NOT above"
                claims.append(f"BLEU-4 {word} {what} ({gain:+.2f})")
        if claims:
            lines.append(f"- `{name}`: {', '.join(sorted(claims))}.\n")
    return lines


def phenomena(run: Path, names: Sequence[str]) -> str:
    """BLiMP by phenomenon, an objective a column: means of its runs."""
    accuracies = {
        name: {term.replace("_", " "): terms_of["accuracy"] for term, terms_of in terms.items()}
        for name in names
        if (path := run / "rows" / name / "blimp.json").exists()
        for terms in [json.loads(path.read_text())["phenomena"]]
    }
    runs = {name: means(terms) for name, terms in by_objective(accuracies).items()}
    lines = [
        [term, *(f"{means_of[term]:.1f}" for means_of in runs.values())]
        for term in dict.fromkeys(term for means_of in runs.values() for term in means_of)
    ]
    return markdown_table(["BLiMP", *(f"`{name}`" for name in runs)], lines)


def tried_rates(run: Path) -> dict[str, dict[str, float | None]]:
    """The loss that each rate led an objective to at an eighth of the updates; the least won."""
    return {
        path.parent.name: {
            row["lr"]: row.get("valid/loss") for row in json.loads(path.read_text())["trials"]
        }
        for path in sorted((run / "rates").glob("*/sweep.json"))
    }


def rate_table(losses_of: dict[str, dict[str, float | None]]) -> str:
    """A line for each objective; its best rate is bold."""
    rates = sorted({rate for losses in losses_of.values() for rate in losses}, key=float)
    lines, edges = [], list[str]()
    for name, losses in losses_of.items():
        best = min((loss for loss in losses.values() if loss is not None), default=None)
        if best is not None and best in (losses.get(rates[0]), losses.get(rates[-1])):
            edges.append(f"`{name}`")
        cells = [f"{loss:.3f}" if (loss := losses.get(r)) is not None else "" for r in rates]
        marks = ["**" * (losses.get(r) is not None and losses[r] == best) for r in rates]
        lines.append([f"`{name}`", *(f"{m}{c}{m}" for m, c in zip(marks, cells, strict=True))])
    note = f"\nNo rate beyond the best one was tried: {', '.join(edges)}.\n" * bool(edges)
    return markdown_table(["rates tried", *rates], lines) + note if lines else ""


def held_equal(run: Path, names: Sequence[str]) -> dict[str, Figures]:
    """What the pre-training of each objective read, was asked for and computed, of its first row.

    counts.py has counted it on some updates, and the row says how many there were.
    """
    equal = dict[str, Figures]()
    for name in names:
        objective, folder = name.rpartition("-")[0], run / "rows" / name
        counts = run / "counts" / f"{objective.partition('@')[0]}.json"
        if objective not in equal and (folder / ".pretrain").exists() and counts.exists():
            updates = read_stage_events(folder / "pretrain", "train")[-1]["step"]
            per_update = json.loads(counts.read_text())
            equal[objective] = {
                "updates": updates,
                **{figure_name: updates * per_update[figure_name] for figure_name in EQUAL},
            }
    return equal


def equal_table(figures: dict[str, Figures]) -> str:
    """A line for each objective: millions, 10^12 operations, and how many times what `lm` has."""
    reference = figures.get("lm", {})
    lines = []
    for objective, own in figures.items():
        cells = [f"{own['updates']:,.0f}"]
        for title in EQUAL:
            text = f"{own[title] / (1e12 if title == 'computing' else 1e6):.4g}"
            if reference:
                text += f" ({own[title] / reference[title]:.2f})"
            cells.append(f"**{text}**" if objective.endswith(f"@{title}") else text)
        cells.insert(3, f"{own['slots'] / own['tokens']:.2f}")
        cells.insert(5, f"{own['labels'] / own['tokens']:.2f}")
        lines.append([f"`{objective}`", *cells])
    head = ["pre-training (times `lm`)", "updates", "tokens, M", "slots, M", "slots a token"]
    head += ["labels, M", "labels a token", "computing, Tflop"]
    return markdown_table(head, lines) if lines else ""


def fertility(run: Path) -> str:
    """What the vocabulary, which all rows share, makes of the held-out text."""
    folder = run / "data" / "held-out" / "valid"
    corpus, vocab = open_corpus(folder), corpus_vocab(folder)
    count = corpus.counts
    edges = corpus.sentences.tolist()
    sentences = [vocab.decode(corpus.tokens(*edge)) for edge in pairwise(edges)]
    written = len(" ".join(sentences).encode())
    return (
        f"All rows share one vocabulary of {len(vocab):,} pieces. The held-out text has"
        f" {written / count.tokens:.2f} bytes a token and {count.tokens / count.words:.2f} tokens"
        " a word.\n"
    )


def draw(runs: Runs, bases: dict[str, Figures], spread: Figures, path: Path) -> None:
    """A panel a figure: means with what seeds differ by, runs as bars, baselines as lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = [title for title in DRAWN if any(title in figures for figures in runs.values())]
    names = list(runs)[::-1]
    figure, panels = pyplot.subplots(
        2,
        -(-len(titles) // 2),
        figsize=(12, 0.4 * len(names) + 3),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axis in panels.flat[len(titles) :]:
        axis.axis("off")
    for axis, title in zip(panels.flat, titles, strict=False):
        for at, name in enumerate(names):
            if values := runs[name].get(title):
                colour = "#9d9da1" if name.startswith("scratch.") else "#4c78a8"
                error = spread.get(title)
                axis.plot(values, [at] * len(values), "|", color=colour, markersize=12)
                axis.errorbar(mean(values), at, xerr=error, fmt="o", color=colour, capsize=2)
        for number, (base, figures) in enumerate(bases.items()):
            if title in figures:
                axis.axvline(figures[title], color=f"C{number + 1}", linewidth=1, label=base)
        axis.set_title(title)
        axis.locator_params(axis="x", nbins=4)
        axis.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_yticks(range(len(names)), names)
    lines = {line.get_label(): line for axis in panels.flat for line in axis.lines}
    known = [line for name, line in lines.items() if name in bases]
    figure.legend(handles=known, loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=120)


def main(run: Path, test: Path, blimp: Path, names: Sequence[str]) -> None:
    """Print and write everything."""
    summaries = read_record_pairs(test, Fields(("source",), ("target",)))
    references = [[pair.target, *pair.others] for pair in summaries]
    known = {name: figures(run, name, references) for name in names}
    rows = {name: figures for name, figures in known.items() if figures}
    runs, bases = by_objective(rows), baselines(run, blimp, test, references)
    spread = noise(runs)
    shown = {f"`{name}` | {seeds_of(figures)}": means(figures) for name, figures in runs.items()}
    shown |= {f"{name} |": figures for name, figures in bases.items()}
    if spread:
        shown["standard deviation over seeds |"] = spread
    text = figure_table(shown, "mean of seeds | seeds")
    unfinished = [name for name in names if not (run / "rows" / name / "finished").exists()]
    missing = f"Not finished: {', '.join(unfinished)}.\n" * bool(unfinished)
    claims = verdicts(runs, bases["the answer's sentence"], spread)
    within = intervals({name: items(run, name, references) for name in rows})
    equal, rates = held_equal(run, names), tried_rates(run)
    parts = [text, missing, "".join(claims), interval_table(within), equal_table(equal)]
    every_run = figure_table({f"`{name}`": figures for name, figures in rows.items()}, "run")
    parts += [fertility(run), rate_table(rates), every_run, phenomena(run, names)]
    (run / "table.md").write_text("\n".join(part for part in parts if part))
    everything = {"rows": rows, "baselines": bases, "noise": spread, "not finished": unfinished}
    everything |= {"intervals": within, "pre-training": equal, "rates tried": rates}
    (run / "table.json").write_text(json.dumps(everything, indent=1) + "\n")
    draw(runs, bases, spread, run / "compare.png")
    print(f"\n{text}\n{missing}{''.join(claims)}{run / 'table.md'}, {run / 'compare.png'}")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, summaries=Path, blimp=Path, rows=[str]))
