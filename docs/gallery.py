"""Makes docs/masks.md and docs/pictures/ from the code: every objective's slots and mask, as
`unitk show` draws them. A test compares the page and the pictures with the code.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import tempfile
from pathlib import Path
from typing import NamedTuple

from unitk.verbs import show

PAGE = Path(__file__).with_name("masks.md")
FOLDER = Path(__file__).with_name("pictures")
FOX = "the quick brown fox jumps over the lazy dog"
PLAIN = "--task.mask-keep-random 1,0,0"


class Picture(NamedTuple):
    """One drawing: what `unitk show` is told, and what is said about it."""

    name: str
    title: str
    words: str
    text: str
    about: str

    @property
    def command(self) -> str:
        return f'unitk show {self.words} "{self.text}"'


PICTURES = [
    Picture(
        "mlm",
        "BERT: masked language model",
        "--task mlm --seed 2 --task.mask-ratio 0.2",
        FOX,
        "Everything is at time 0 and sees everything. Of the hidden words 80 % read `[MASK]`,"
        " 10 % are kept and 10 % read another word.",
    ),
    Picture(
        "mlm_shifted",
        "GPT-BERT: masked next-token prediction",
        f"--task mlm --task.shift on --seed 2 --task.mask-ratio 0.2 {PLAIN}",
        FOX,
        "The slots of BERT, but each hidden word is predicted at the slot before it, as by a causal"
        " model. In a mixture with `--task lm` both share one output layer.",
    ),
    Picture(
        "adaptive_mlm",
        "Adaptive masking",
        f"--task adaptive_mlm --seed 2 {PLAIN}",
        FOX,
        "A text comes with all of its tokens hidden. A training step lets the model read those that"
        " are not drawn, and asks for the others; hard tokens are drawn more often.",
    ),
    Picture(
        "spanbert",
        "SpanBERT: spans and their borders",
        f"--task spanbert --seed 2 --task.mask-ratio 0.4 {PLAIN}",
        FOX,
        "Spans of whole words are hidden. Each hidden word is predicted at its own slot, and also"
        " from the two slots around its span. The picture shows that at the first of the two.",
    ),
    Picture(
        "electra",
        "ELECTRA: replaced tokens",
        f"--task electra --seed 2 --task.mask-ratio 0.2 {PLAIN}",
        FOX,
        "The slots of BERT, which a small generator reads. It is asked for the hidden words, and"
        " `draw` decides which of its words is drawn for each. The drawn words replace the hidden"
        " ones; the discriminator reads the same slots then and tells which words are not those of"
        " the text.",
    ),
    Picture(
        "albert",
        "ALBERT: n-grams and the order of sentences",
        f"--task albert --seed 3 --task.mask-ratio 0.4 {PLAIN}",
        FOX,
        "N-grams of whole words are hidden. C is asked whether two parts are swapped; a text of one"
        " sentence, as this one, has one part and is not asked about.",
    ),
    Picture(
        "ernie",
        "ERNIE 1.0: words, phrases and entities",
        f"--task ernie --seed 3 --task.mask-ratio 0.3 {PLAIN}",
        FOX,
        "Whole units are hidden, each by a chance of its own: here words, in an annotated corpus"
        " also phrases and entities. C is asked whether two parts follow each other.",
    ),
    Picture(
        "ernie2",
        "ERNIE 2.0: capitals",
        "--task ernie2 --task.objectives capital --seed 3",
        "The sun and the Sun",
        "One of the objectives: words are shown in lower case, and those that occur with a capital"
        " and without are asked for it (1: with). The others ask C for a class of the text.",
    ),
    Picture(
        "thu_ernie",
        "THU-ERNIE: entities beside tokens",
        f"--task thu_ernie --seed 3 --task.mask-ratio 0.3 {PLAIN}"
        " --task.entities recipes/thu_ernie/example/vectors.txt"
        " --task.forms recipes/thu_ernie/example/names.tsv",
        FOX,
        "Words are hidden as in BERT. Beside the first token of a name is the number of its"
        " entity (`entity`), or of another one, or none. That token is asked for the right one"
        " (`dea`).",
    ),
    Picture(
        "lm",
        "GPT: causal language model",
        "--task lm",
        FOX,
        "Word i comes at time i and sees what came before. Each slot is asked for the next word.",
    ),
    Picture(
        "bilm",
        "ELMo: language models of both directions",
        "--task bilm",
        "the quick brown fox",
        "One tower reads from left to right and is asked for the next word. The other reads from"
        " right to left, its times falling, and is asked for the word before.",
    ),
    *(
        Picture(f"gpt_{name}", f"GPT: {title}", f"--task {words}", text, about)
        for name, title, words, text, about in (
            (
                "classification",
                "classification",
                "classify --task.layout lm",
                "a b",
                "The class is read at the last S. All words are predicted beside, with half of the"
                " weight.",
            ),
            (
                "entailment",
                "entailment",
                "classify --task.layout lm 'a b'",
                "c d",
                "Premise and hypothesis, with an S between them.",
            ),
            (
                "similarity",
                "similarity",
                "regress --task.layout lm --task.both-orders on 'a b'",
                "c d",
                "Both orders of two texts are two docs, which do not see each other. The states"
                " of their last S are added.",
            ),
            (
                "choice",
                "multiple choice",
                "choice --task.layout lm 'a b' 'c d'",
                "e f",
                "Each answer is a doc of its own after the same text. The scores at the last S go"
                " through one softmax.",
            ),
        )
    ),
    *(
        Picture(
            f"unilm_{name}",
            f"UniLM: {title}",
            f"--task unilm --seed 11 --task.mask-ratio 0.25 --task.shares {shares} {PLAIN}",
            FOX,
            about,
        )
        for name, title, shares, about in (
            (
                "both",
                "both directions",
                "1,0,0,0",
                "The first of UniLM's four masks is BERT's. Segments tell the model which mask it"
                " is: 0 for this one, and 1 for a second part.",
            ),
            (
                "seq2seq",
                "sequence to sequence",
                "0,1,0,0",
                "The first part sees itself, the second sees the first and its own left. Words of"
                " both are hidden. Segments 4 and 5.",
            ),
            ("left", "left to right", "0,0,1,0", "Times rise. Segment 2."),
            ("right", "right to left", "0,0,0,1", "Times fall. Segment 3."),
        )
    ),
    Picture(
        "unilm_finetune",
        "UniLM: fine-tuning",
        f"--task unilm --seed 1 {PLAIN} --target 'a fast fox'",
        "the quick brown fox jumps",
        "Words of the target are hidden, its end among them; the source is never.",
    ),
    Picture(
        "pmlm",
        "UniLMv2: pseudo-masked language model",
        f"--task pmlm --seed 133 --task.mask-ratio 0.375 {PLAIN} --order pos",
        "x1 x2 x3 x4 x5 x6",
        "The paper's example: x4 and x5 are predicted first, then x2. A hidden word"
        " has three slots at one position: as itself, as `[MASK]` and as pseudo token `[P]`."
        ' Everything sees `[MASK]` (the loss "ae"). `[P]` sees the words of earlier steps and the'
        ' pseudo tokens of its own step (the loss "par").',
    ),
    Picture(
        "pmlm_finetune",
        "UniLMv2: fine-tuning",
        f"--task pmlm --task.word-drop 0 {PLAIN} --target 'c d e'",
        "a b",
        "Every word of the target is predicted at a pseudo token, in one pass, as in decoding.",
    ),
    Picture(
        "glm_infill",
        "GLM: blank infilling",
        "--task glm_infill --seed 4 --task.mask-ratio 0.3",
        FOX,
        "Part A has the blanks, part B spells them out in shuffled order.",
    ),
    Picture(
        "mass",
        "MASS: masked sequence to sequence",
        f"--task mass --seed 3 {PLAIN}",
        FOX,
        "The decoder writes what the encoder does not see, at its original positions, and may not"
        " look at `[MASK]`s (`cross` 0).",
    ),
    Picture(
        "bart",
        "BART: denoising",
        "--task bart --seed 5",
        FOX,
        "The encoder reads a text of which each hidden span is one `[MASK]`; a span may be of no"
        " word. Its sentences are permuted, where there are several. The decoder writes the text.",
    ),
    Picture(
        "t5",
        "T5: span corruption",
        "--task t5 --seed 2 --task.mask-ratio 0.4 --task.mean-span 2",
        FOX,
        "Each hidden span is one sentinel of the encoder's, and comes after it in the decoder.",
    ),
    Picture(
        "ul2",
        "UL2: a mixture of denoisers, in one tower",
        "--task ul2 --task.towers one --task.mixture 0,1,0",
        FOX,
        "Mode S, a prefix language model: what is read sees itself, and the rest is written from"
        " left to right. The first symbol tells the mode. In two towers the slots are T5's.",
    ),
    Picture(
        "mdlm",
        "MDLM: masked diffusion",
        "--task mdlm --seed 2",
        FOX,
        "Any share of the words and of the end is hidden. Everything is at time 0, as in BERT.",
    ),
    Picture(
        "bd3lm",
        "BD3-LM: block diffusion",
        "--task bd3lm --task.block-length 3 --seed 1",
        "the quick brown fox jumps over the",
        "Blocks of three. The noised copy of a block sees itself and the clean blocks before it. A"
        " clean block sees the clean text up to its own end; the last one is left out.",
    ),
    Picture(
        "seq2seq",
        "Encoder-decoder",
        "--task seq2seq --target 'c d'",
        "a b",
        "Without pre-training: the decoder looks at the whole source.",
    ),
    Picture(
        "contrastive",
        "Contrastive learning: a pair of texts",
        "--task contrastive --target 'c d e'",
        "a b",
        "Source and target are docs of their own, which do not see each other. Nothing is asked:"
        " the loss compares the vectors that are made of their states.",
    ),
    Picture(
        "optimus",
        "Optimus: variational autoencoder",
        "--task optimus",
        "a b c d",
        "The decoder writes the text anew and sees no slot of the encoder (`cross` 0). It sees only"
        " the latent, which is made of the state of the first slot.",
    ),
    Picture(
        "xlnet",
        "XLNet: spans in a random order",
        "--task xlnet --task.one-in 3 --seed 5",
        FOX,
        "Every third word is predicted, in spans and in a random order. The content of such a word,"
        " of [SEP] or of [CLS] sees itself, what is before it in the order, and all other words."
        " The query of the word does not see itself. Segments: 0 and 1 for two parts, 2 for [CLS].",
    ),
    Picture(
        "permutation_lm",
        "XLNet: the example of the paper",
        "--user-dir recipes/plugin --task permutation_lm --task.order 3,2,4,1",
        "x1 x2 x3 x4",
        "The paper's example, the order 3, 2, 4, 1, laid out by a"
        " [plug-in](adding-an-objective.md). The content of a word sees itself and the words"
        " before it in the order. Its query sees only the words before it. No slot sees a query.",
    ),
]
TWO_TOWERS = ("bilm", "mass", "bart", "t5", "seq2seq", "optimus")
"""Two pictures each, which are in the text only."""
CONCEPTS = Picture(
    "prefix_lm",
    "A prefix language model",
    "--user-dir recipes/plugin --task prefix_lm --seed 2",
    FOX,
    "A picture of concepts.md.",
)
SHOWN = [CONCEPTS, *(one for one in PICTURES if one.name not in TWO_TOWERS)]
"""What docs/pictures/ has a file of."""


def page() -> str:
    """The page, drawn anew."""
    lines = [
        "# Gallery of masks",
        "",
        "<!-- made by docs/gallery.py: change that, not this -->",
        "",
        "This page shows how every objective lays out a text: the slots with their times (`at`)",
        "and the labels (`label`). In the mask, a row sees the columns with a block. All masks",
        "follow from the times by [one rule](concepts.md#one-visibility-rule). The colour of a",
        "column in a picture shows its kind: context, target, mask, probe (pseudo token) or query.",
        "",
    ]
    for one in PICTURES:
        lines += [f"## {one.title}", "", one.about, "", "```bash", one.command, "```", ""]
        lines += ["```text", drawn(one).rstrip(), "```", ""]
        if one in SHOWN:
            lines += [f"![The mask of {one.title}](pictures/{one.name}.svg)", ""]
    return "\n".join(lines).rstrip() + "\n"


def drawn(one: Picture, output: Path | None = None) -> str:
    """What the command prints; with an output it also writes the picture of the mask."""
    words = [*shlex.split(one.words), *(["--output", str(output)] if output else []), one.text]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.chdir(PAGE.parents[1]):
        show.run(words)
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def svg(one: Picture) -> str:
    """The picture of a mask; the same bytes at any time, with its texts as texts."""
    import matplotlib

    same = {"svg.hashsalt": one.name, "svg.fonttype": "none"}
    with tempfile.TemporaryDirectory() as folder, matplotlib.rc_context(same):
        output = Path(folder, "mask.svg")
        drawn(one, output)
        text = output.read_text(encoding="utf-8")
    return re.sub(r"\s*<dc:date>.*</dc:date>", "", text)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8")
    for one in SHOWN:
        (FOLDER / f"{one.name}.svg").write_text(svg(one), encoding="utf-8")
