"""`unitk evaluate`: objectives, likelihoods and draws as validation and references have them."""

import csv
import json
import math
import re

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import unitk
from unitk.data.batching import FixedBatches
from unitk.data.corpus.folders import open_corpus
from unitk.decoding.likelihood import likelihoods
from unitk.errors import CheckpointError, DataError, NonFiniteError, UsageError
from unitk.evaluation import objective as evaluate
from unitk.families.latent.measures import corpus as measured
from unitk.families.latent.space.points import LatentSpace
from unitk.verbs.evaluate import run
from unitk.verbs.preprocess import run as preprocess
from unitk.verbs.train import run as train
from unitk.vocab.open import open_vocab

COMMON = (
    "--arch.dropout 0.1 --max-tokens 400 --precision fp32 --lr 3e-3 --lr-schedule constant"
    " --max-steps 4 --threads 1"
)

UNITS = ("tokens", "words", "bytes")


@pytest.fixture(scope="module")
def runs(toy_data, tmp_path_factory):
    """Run folders: an autoencoder, one with beta 0 and words left out, and a language model."""
    folder = tmp_path_factory.mktemp("runs")
    vae = "--task optimus --arch optimus_tiny --arch.latent 4 --panel-every 0"
    for name, words in {
        "vae": f"{vae} --criterion.beta 1 --arch.init-std 0.2",
        "ae": f"{vae} --criterion.beta 0 --task.encoder-drop 0.5 --task.decoder-drop 0.5",
        "lm": "--task lm --arch gpt2_tiny",
        "mdlm": "--task mdlm --arch mdlm_tiny",
        "bd3lm": "--task bd3lm --task.clip 0.9,1 --arch mdlm_tiny",
        "both": "--task mdlm=1 --task lm=1 --arch mdlm_tiny",
        "qa": "--task seq2seq --arch bart_tiny",
    }.items():
        data = toy_data / ("pairs" if name == "qa" else "text")
        words = words if name == "qa" else f"{words} --blocks line --block-size 64"
        train(f"{words} {COMMON} --data {data} --save-dir {folder / name}".split())
    return folder


@pytest.fixture
def judge(runs, toy_data, capsys):
    """`judge("vae", "--draws 3")`: what is printed as JSON."""

    def call(name, words="", data=toy_data / "text", form="json", device="cpu"):
        flags = f"--checkpoint {runs / name} --data {data} --output-format {form}"
        flags += f" --device {device}"
        capsys.readouterr()
        run([*flags.split(), *words.split()])
        text = capsys.readouterr().out
        return json.loads(text) if form == "json" else text

    return call


@pytest.mark.every(2)
@pytest.mark.parametrize(
    "words",
    [
        "--task unilm --arch unilm_tiny",
        "--task lm --arch gpt2_tiny --blocks stream",
    ],
)
def test_texts_are_cut_as_in_validation(judge, runs, toy_data, request, words):
    """Sentence pairs are drawn, and windows begin anywhere: the draws are those of validation."""
    name = f"cut-{request.node.callspec.indices['words']}"
    words += f" --block-size 64 --data {toy_data / 'text'} --save-dir {runs / name}"
    train(f"{words} {COMMON} --seed 5".split())
    events = map(json.loads, (runs / name / "log.jsonl").read_text().splitlines())
    (valid,) = [event for event in events if event["kind"] == "valid"]
    found = judge(name, "--max-tokens 400")
    there = {key.removeprefix("valid/"): value for key, value in valid.items() if "/" in key}
    assert {key: found[key] for key in there} == pytest.approx(there, rel=1e-6)


def test_shares_are_those_of_the_update_in_a_run_of_epochs(judge, runs, toy_data):
    words = "--task mdlm=linear:value=0.9,floor=0.1 --task lm=0.1 --arch mdlm_tiny --blocks line"
    words += f" --block-size 64 --data {toy_data / 'text'} --save-dir {runs / 'epochs'}"
    common = COMMON.replace("--max-steps 4", "--max-epochs 1 --valid-every 2 --save-every 2")
    train(f"{words} {common} --keep-last 99".split())
    events = map(json.loads, (runs / "epochs" / "log.jsonl").read_text().splitlines())
    first, *_, last = [event for event in events if event["kind"] == "valid"]
    assert first["step"] == 2 < last["step"]
    for event in (first, last):
        found = judge(f"epochs/checkpoints/step-{event['step']}", "--max-tokens 400 --draws 1")
        assert found["loss"] == pytest.approx(event["valid/loss"], rel=1e-6)


def test_tasks_that_cut_texts_differently_have_counts_of_their_own(judge, runs, toy_data):
    words = f"--arch bert_tiny --block-size 64 --data {toy_data / 'text'} {COMMON}"
    for name, tasks in {
        "cut-pairs": "--task mlm --task.nsp on",
        "cut-alone": "--task lm --blocks line",
        "cut-both": "--task mlm=0.5 --task.mlm.nsp on --task lm=0.5 --blocks line",
    }.items():
        train(f"{tasks} {words} --save-dir {runs / name}".split())
    found = judge("cut-both")
    counts = [judge(f"cut-{name}")["texts"] for name in ("pairs", "alone")]
    assert [found["mlm/texts"], found["lm/texts"]] == counts and counts[0] != counts[1]
    assert "texts" not in found


def test_an_objective_is_what_validation_found(judge, runs):
    events = map(json.loads, (runs / "lm" / "log.jsonl").read_text().splitlines())
    (valid,) = [event for event in events if event["kind"] == "valid"]
    found = judge("lm", "--max-tokens 400", device="auto")  # as the run
    for name, value in valid.items():
        if name.startswith("valid/"):
            assert found[name.removeprefix("valid/")] == value
    assert found["texts"] == 60 and found["lm/ppl"] == pytest.approx(math.exp(found["loss"]))


def test_a_language_model_has_all_perplexities(judge, runs, toy_data):
    found = judge("lm")
    nats = found["lm"] * found["tokens"]
    assert found["tokens"] == np.load(toy_data / "text" / "valid" / "sentences.npy")[-1] + 60
    assert found["ppl_token"] == pytest.approx(found["lm/ppl"])
    assert found["ppl_word"] == pytest.approx(math.exp(nats / found["words"]))
    vae = judge("vae", "--draws 1 --beam 0")
    assert [found[name] for name in UNITS] == [vae[name] for name in UNITS]


@pytest.mark.parametrize("blocks", ["doc", "full", "stream"])
@pytest.mark.parametrize("bytewise", [False, True])
def test_units_are_those_of_the_texts_wherever_these_are_cut(tmp_path, capsys, blocks, bytewise):
    """A block may end inside a word, and sentences of a byte-level vocabulary bring no blanks."""
    lines = [f"The {word} bade, {word} kiloto." for word in ("bade", "kilo", "sato")] * 3
    (tmp_path / "texts.txt").write_text("\n".join(lines) + "\n\n" + "\n".join(lines[:4]) + "\n")
    vocab = "--vocab-size 27"
    if bytewise:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator(lines, trainers.BpeTrainer(initial_alphabet=letters))
        (tmp_path / "bytes").mkdir()
        tokenizer.save(str(tmp_path / "bytes" / "tokenizer.json"))
        vocab = f"--vocab {tmp_path / 'bytes'}"
    preprocess(f"--input {tmp_path / 'texts.txt'} --dest {tmp_path / 'data'} {vocab}".split())
    data, saved = tmp_path / "data" / "train", tmp_path / "run"
    words = f"--task lm --arch gpt2_tiny {COMMON} --data {data} --save-dir {saved}"
    train(f"{words} --blocks {blocks} --block-size 30".split())
    texts = [" ".join(lines), " ".join(lines[:4])]
    for ends, option in ((2, ""), (0, "--stride 9 --context 9")):
        capsys.readouterr()
        run(f"--checkpoint {saved} --data {data} --output-format json {option}".split())
        found = json.loads(capsys.readouterr().out)
        assert found["words"] == sum(len(text.split()) for text in texts) + ends
        assert found["bytes"] == sum(len(text.encode()) for text in texts) + ends


@pytest.mark.parametrize("task", ["mlm --arch bert_tiny", "bart --arch bart_tiny"])
def test_words_that_are_not_all_predicted_or_partly_read_have_no_such_units(
    toy_data, tmp_path, capsys, task
):
    words = f"--task {task} {COMMON} --data {toy_data / 'text'}"
    train([*words.split(), "--save-dir", str(tmp_path / "run")])
    capsys.readouterr()
    line = f"--checkpoint {tmp_path / 'run'} --data {toy_data / 'text'} --output-format json"
    run(line.split())
    assert not {"ppl_word", *UNITS} & set(json.loads(capsys.readouterr().out))


def records(path, rows):
    """A table of pairs in the format of the file's ending."""
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("name", "ending"),
    [(name, ending) for name in ("lm", "vae") for ending in ("txt", "csv", "jsonl", "parquet")]
    + [("qa", ending) for ending in ("csv", "jsonl", "parquet", "json")],
)
def test_a_file_is_judged_as_its_corpus(judge, runs, toy_data, tmp_path, name, ending):
    lines = [f"The {word} ba, {word} {word}ti." for word in ("bade", "kilo", "sato")] * 2
    path, options = tmp_path / f"x.{ending}", "--field title"
    rows = [{"title": line, "target": line[4:8] * 9} for line in lines]
    if ending == "txt":
        path.write_text("\n".join(lines) + "\n")
        options = "--documents line"
    elif ending == "json":
        paragraphs = [
            {
                "context": line,
                "qas": [{"question": line[4:8], "answers": [{"text": line[4:8]}]}],
            }
            for line in lines
        ]
        path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        options = "--window 7"
    else:
        records(path, rows)
    if name == "qa" and ending != "json":
        options = "--source-field title --target-field target"
    vocab = toy_data / "text" / "train"
    words = f"--input {path} --dest {tmp_path / 'made'} --vocab {vocab} {options}"
    preprocess(words.split())
    few = "--draws 2" if name == "vae" else ""
    made = judge(name, few, data=tmp_path / "made" / "train")
    found = judge(name, f"{few} {options}", data=path)
    assert found == made | {"data": str(path)} and found["texts"] > 1


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_a_file_need_not_have_all_labels_of_the_model(toy_data, tmp_path, capsys, task):
    field = "--source-field title --label-field label"
    form = "--labels tags" if task == "tag" else "--labels class"
    for name, some in {"train": "abc", "few": "c", "other": "z"}.items():
        rows = [{"title": "ba kilo", "label": [one] * 2 if task == "tag" else one} for one in some]
        records(tmp_path / f"{name}.jsonl", rows)
    words = f"--input {tmp_path / 'train.jsonl'} --valid {tmp_path / 'few.jsonl'} {field} {form}"
    preprocess(f"{words} --dest {tmp_path / 'data'} --vocab {toy_data / 'text' / 'train'}".split())
    words = f"--task {task} --arch bert_tiny {COMMON} --save-dir {tmp_path / 'run'}"
    train(f"{words} --data {tmp_path / 'data'}".split())
    found = {}
    for data, options in {"data": "", "few.jsonl": f"{field} {form}"}.items():
        capsys.readouterr()
        words = f"--checkpoint {tmp_path / 'run'} --data {tmp_path / data} --output-format json"
        run(f"{words} {options}".split())
        found[data] = json.loads(capsys.readouterr().out)
    assert found["data"] | {"data": found["few.jsonl"]["data"]} == found["few.jsonl"]
    words = f"--checkpoint {tmp_path / 'run'} --data {tmp_path / 'other.jsonl'} {field} {form}"
    with pytest.raises(DataError, match="other.jsonl, line 1: 'z' .* --extra-labels"):
        run(words.split())


def test_targets_are_as_long_as_in_training(judge, runs, toy_data, tmp_path):
    state = json.loads((runs / "qa" / "best" / "state.json").read_text())
    longest = int(open_corpus(toy_data / "pairs" / "train").target_lengths.max())
    assert state["lengths"][1] == longest
    path = tmp_path / "x.jsonl"
    fields = "--source-field title --target-field target"
    records(path, [{"title": "The ba.", "target": "bade " * 3 * longest}])
    found = judge("qa", fields, data=path)
    vocab = open_vocab(runs / "qa")
    shown = vocab.decode(vocab.encode("bade " * 3 * longest)[:longest])
    records(path, [{"title": "The ba.", "target": shown}])
    assert judge("qa", fields, data=path) == found


def test_a_model_of_pairs_reads_texts_as_long_as_its_positions(toy_data, tmp_path):
    words = "--task lm --arch gpt2_tiny --arch.max-positions 100"
    train(f"{words} {COMMON} --data {toy_data / 'pairs'} --save-dir {tmp_path / 'run'}".split())
    setup = evaluate.open_setup(tmp_path / "run", toy_data / "text", torch.device("cpu"))
    assert setup.parsed.main.block_size == 100
    assert evaluate.objective(setup, 400, print)["lm/nll"] > 0


def test_figures_agree_with_each_other(judge, toy_data):
    found = judge("vae", "--draws 3")
    held = np.load(toy_data / "text" / "valid" / "sentences.npy")
    assert found["texts"] == 60 == len(held) - 1
    assert found["tokens"] == held[-1] + 60  # with the ends, without the begins
    nats = found["bound"] * 60
    assert found["ppl_token"] == pytest.approx(math.exp(nats / found["tokens"]))
    assert found["ppl_word"] == pytest.approx(math.exp(nats / found["words"]))
    assert found["bits_per_byte"] * found["bytes"] * math.log(2) == pytest.approx(nats)
    assert found["elbo"] == pytest.approx(found["reconstruction"] + found["kl"])
    assert found["bound"] < found["elbo"]
    assert sum(found["kl_each"]) == pytest.approx(found["kl"]) and len(found["kl_each"]) == 4
    assert found["mi"] <= found["mi_ceiling"] == pytest.approx(math.log(60))


def test_figures_do_not_depend_on_the_batches(judge):
    whole, one = (judge("vae", f"--draws 2 --max-tokens {n}") for n in (8192, 200))
    assert whole.keys() == one.keys()
    for name, value in whole.items():
        same = isinstance(value, str) or name == "notes"
        assert one[name] == (value if same else pytest.approx(value, rel=1e-4, abs=1e-4)), name


def test_more_draws_tighten_the_bound(judge):
    few, many = (judge("vae", f"--draws {n} --beam 0") for n in (1, 40))
    assert many["bound"] < few["bound"]
    assert many["kl"] == pytest.approx(few["kl"]) and many["mi"] == pytest.approx(few["mi"])
    assert "exact" not in few


@pytest.mark.parametrize("name", ["mdlm", "bd3lm"])
def test_a_bound_is_the_mean_over_draws(judge, runs, toy_data, name):
    """Each draw hides other tokens; the first one is validation's. A clip is of training alone."""
    found = [judge(name, f"--draws {n}") for n in (1, 2, 3)]
    judged = evaluate.open_setup(runs / name, toy_data / "text", torch.device("cpu"))
    one, two = (
        [float(batch.asks["bound"].weight.sum()) for _, batch in FixedBatches(*of, seed=seed)]
        for of in [(judged.data.train, 8192)]
        for seed in (0, 1)
    )
    assert one == two and sum(one) == int(judged.data.train.items.lengths.sum()) + 60
    first, second, third = (one["bound/nll"] for one in found)
    each = [first, 2 * second - first, 3 * third - 2 * second]
    assert len({*each}) == 3
    error = np.std(each, ddof=1) / math.sqrt(3)
    assert found[2]["bound/error"] == pytest.approx(error, rel=1e-3)
    assert found[2]["bound/bits"] == pytest.approx(third / math.log(2))
    assert found[2]["bound/ppl"] == pytest.approx(math.exp(third))
    assert found[2]["draws"] == 3 and "bound/error" not in found[0]
    events = map(json.loads, (runs / name / "log.jsonl").read_text().splitlines())
    (valid,) = [event for event in events if event["kind"] == "valid"]
    same = valid["valid/bound/nll"] == pytest.approx(first, rel=1e-6)
    assert same == (name == "mdlm")
    assert judge(name)["draws"] == 8


def test_of_a_mixture_the_bound_alone_varies_with_the_draws(judge):
    one, two = (judge("both", f"--draws {n}") for n in (1, 2))
    assert one["texts"] == two["texts"] == 60  # whatever reads them, and however often
    assert two["lm/lm/nll"] == pytest.approx(one["lm/lm/nll"], rel=1e-6)
    second = 2 * two["mdlm/bound/nll"] - one["mdlm/bound/nll"]
    error = abs(second - one["mdlm/bound/nll"]) / 2  # of two draws
    assert two["mdlm/bound/error"] == pytest.approx(error, rel=1e-3) and error > 0
    assert two["mdlm/bound/bits"] == pytest.approx(two["mdlm/bound/nll"] / math.log(2))


def test_only_a_bound_and_a_latent_have_draws(judge):
    with pytest.raises(UsageError, match="--beam .*no effect.*checkpoint.*latent"):
        judge("mdlm", "--beam 2")


@pytest.fixture
def seen(runs, toy_data):
    judged = evaluate.open_setup(runs / "vae", toy_data / "text", torch.device("cpu"))
    return judged, measured.measure_latent(judged, 1, 400, lambda done: None)


def test_every_text_has_its_own_latent(seen, toy_data):
    judged, latent = seen
    vocab = judged.data.vocab
    texts = [vocab.decode(text) for text in latent.texts]
    space = LatentSpace(judged.model, judged.data.task)
    assert np.allclose(space.encode(texts).mean, latent.means, atol=1e-5)
    assert len(set(texts)) == judged.num_texts


def test_a_model_that_has_diverged_is_refused(seen):
    judged, _ = seen
    judged.model.bridge.weight.data *= 1e6
    with pytest.raises(NonFiniteError, match="the divergence.*latents.* NaN or infinity"):
        measured.measure_latent(judged, 1, 400, lambda done: None)


@pytest.mark.parametrize("shift", [0, 1])
def test_texts_are_compared_with_what_was_written_of_them(judge, seen, monkeypatch, shift):
    judged, latent = seen
    texts = [judged.data.vocab.decode(text) for text in latent.texts]

    class Wrote:
        def __init__(self, text):
            self.text = text

    told = [[Wrote(text)] for text in texts[shift:] + texts[:shift]]
    monkeypatch.setattr(LatentSpace, "decode", lambda *args, **kwargs: told)
    found = judge("vae", "--draws 1")
    assert found["exact"] == (0 if shift else 100)
    assert (found["bleu"] == pytest.approx(100)) == (shift == 0)


def test_an_autoencoder_is_called_one(judge):
    (note,) = [note for note in judge("ae", "--draws 1 --beam 0")["notes"] if "beta" in note]
    assert note.startswith("trained with beta = 0: an autoencoder")
    text = judge("ae", "--draws 1 --beam 0", form="text")
    assert f"note: {note}" in text.splitlines()


def test_words_are_not_left_out(runs, toy_data):
    judged = evaluate.open_setup(runs / "ae", toy_data / "text", torch.device("cpu"))
    task = judged.data.task
    assert (task.config.encoder_drop, task.config.decoder_drop) == (0, 0)


def test_absurd_figures_have_a_cause(seen):
    judged, _ = seen
    sense = {"elbo": 10.0, "kl": 2.0, "mi_ceiling": 4.0, "z_gap": 3.0}

    def notes(**figures):
        return list(measured._notes(judged, sense | figures, 10.0))

    assert notes() == []
    assert "posterior collapse" in notes(z_gap=0.01)[0]
    assert notes(z_gap=math.nan) == []
    (note,) = notes(elbo=1922.0, kl=1900.0)
    assert "a kl of 1900 nats a text is beyond sense" in note and "too small a beta" in note


def test_a_checkpoint_of_a_phase_without_beta(runs, toy_data):
    judged = evaluate.open_setup(runs / "vae", toy_data / "text", torch.device("cpu"))
    sense = {"elbo": 10.0, "kl": 2.0, "mi_ceiling": 4.0, "z_gap": 3.0}
    config = {**judged.state["config"], "criterion.beta": "cyclical:cycles=1"}
    judged.state["config"] = config
    parsed = evaluate.checkpoint.components(
        judged.state, judged.path, chosen_kinds=("task", "criterion")
    )
    criterion = parsed.components["criterion"].config.build(9)
    object.__setattr__(judged, "criterion", criterion)
    judged.state["step"] = 2
    (note,) = measured._notes(judged, sense, 10.0)
    assert note.startswith("saved at update 2, while beta was 0")
    judged.state["step"] = 4
    assert list(measured._notes(judged, sense, 10.0)) == []


def test_lines(judge):
    lines = judge("vae", "--draws 2", form="text").splitlines()
    assert lines[2].startswith("texts                   60, with their ends")
    for start in (
        "bound",
        "  kl, sorted",
        "mutual information",
        "active units",
        "z-gap",
        "written",
    ):
        assert sum(line.startswith(start) for line in lines) == 1
    assert "(ln 60)" in "\n".join(lines) and "(importance-weighted, 2 draws)" in lines[3]
    assert [line.split()[0] for line in judge("lm", form="text").splitlines()[:2]] == [
        "checkpoint",
        "data",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--draws 3", "--draws has no effect: the checkpoint has no latent"),
        ("--beam 0 --max-len 3", "--max-len has no effect with --beam 0"),
        ("--field title", "--field has no effect on a corpus"),
        ("--stateful-rows 4", "--stateful-rows 4 has no effect: --arch gpt2_tiny carries nothing"),
    ],
)
def test_usage(judge, words, message):
    with pytest.raises(UsageError, match=message):
        judge("lm", words)


def test_data_that_cannot_be_judged(judge, toy_data, tmp_path):
    with pytest.raises(DataError, match=r"no valid/ .*holds.*name"):
        for name in ("train", "test"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "manifest.json").write_text("{}")
        judge("lm", data=tmp_path)
    with pytest.raises(DataError, match="--data .*nowhere: no such"):
        judge("lm", data=tmp_path / "nowhere")
    (tmp_path / "text.txt").write_text("some other words here\n" * 9)
    with pytest.raises(CheckpointError, match="none: .*checkpoint"):
        judge("none", data=tmp_path / "text.txt")
    size = "--vocab-kind bpe --vocab-size 40"
    preprocess(f"--input {tmp_path}/text.txt --dest {tmp_path}/other {size}".split())
    with pytest.raises(DataError, match="was made.*vocabulary"):
        judge("lm", data=tmp_path / "other" / "train")
    with pytest.raises(CheckpointError):
        run(["--checkpoint", str(tmp_path / "none"), "--data", str(toy_data / "text")])


PAIRS = [
    {"sentence_good": "ba to ki", "sentence_bad": "ki ba to", "UID": "x", "linguistics_term": "p"},
    {"sentence_good": "ba to ki", "sentence_bad": "ba to ki", "UID": "y"},
]


@pytest.fixture
def compare(runs, tmp_path, capsys):
    """`compare("lm", "--output-format json")`: what is printed about the pairs above."""

    def call(name, words="", rows=PAIRS):
        records(tmp_path / "pairs.jsonl", rows)
        capsys.readouterr()
        flags = f"--checkpoint {runs / name} --pairs {tmp_path / 'pairs.jsonl'} --device cpu"
        run([*flags.split(), *words.split()])
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("name", ["lm", "qa"])
def test_minimal_pairs(compare, runs, tmp_path, name):
    found = json.loads(compare(name, f"--output-format json --output {tmp_path / 'scores.jsonl'}"))
    assert found["checkpoint"] == str(runs / name) and found["ties"] == 1
    assert found["sets"]["y"]["accuracy"] == 50 and found["phenomena"]["p"]["sets"] == 1
    lines = list(map(json.loads, (tmp_path / "scores.jsonl").read_text().splitlines()))
    model = unitk.load(runs / name)
    for row, line in zip(PAIRS, lines, strict=True):
        for side in ("good", "bad"):
            [own] = model.likelihood(row[f"sentence_{side}"])
            assert line[f"score_{side}"] == pytest.approx(own.sum(), abs=1e-4)
            assert line[f"tokens_{side}"] == len(own)
    text = compare(name)
    assert text.splitlines()[1] == f"data                    {tmp_path / 'pairs.jsonl'}"
    assert "2 pairs, 1 tie," in text


def test_a_failure_leaves_no_scores(compare, tmp_path):
    with pytest.raises(DataError, match=r"pairs.jsonl, line 3: sentence_bad .*too long"):
        long = {"sentence_good": "ba", "sentence_bad": "ba " * 2000}
        compare("lm", f"--output {tmp_path / 'scores.jsonl'}", [*PAIRS, long])
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.jsonl"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--data x", "give one of --data, --choices, --infill, --last-word, --pairs"),
        ("--stride 3", "--stride has no effect without --bits or --data"),
        ("--field title", "--field has no effect without --data"),
        ("--draws 3", "--draws has no effect without --bits or --data"),
        ("--stateful-rows 4", "--stateful-rows has no effect without --data"),
        ("--whole-words", "--whole-words has no effect: task lm hides no tokens"),
        ("--task mlm", "--task mlm: .* was trained with lm"),
        ("--task.delimitr off", "delimitr"),
    ],
)
def test_usage_of_pairs(compare, words, message):
    with pytest.raises(UsageError, match=message):
        compare("lm", words)


@pytest.mark.parametrize(
    "words", ["--whole-words", "--output x", "--task lm", "--task.ends off", "--context 3"]
)
def test_options_of_pairs_alone(judge, words):
    with pytest.raises(UsageError, match=f"{words.split()[0]} .*no effect.* --"):
        judge("lm", words)


def test_windows_of_one_text_are_its_likelihood(judge, runs, toy_data):
    found = judge("lm", "--stride 7 --context 3")
    model = unitk.load(runs / "lm")
    corpus = open_corpus(toy_data / "text" / "valid")
    texts = [np.concatenate(corpus.document(i)) for i in range(len(corpus))]
    nats = 0.0
    for text in texts:
        places = [(0, 0, 10), *((at - 3, at, at + 7) for at in range(10, len(text), 7))]
        for first, at, stop in places:
            window = text[first:at], text[at:stop]
            [(gains, _)] = likelihoods(model.model, model.task, [window])
            nats -= gains.sum(dtype=float)
    assert found["nats"] == pytest.approx(nats, rel=1e-5)
    assert found["tokens"] == sum(map(len, texts)) and found["texts"] == len(texts)
    assert found["ppl_token"] == pytest.approx(math.exp(nats / found["tokens"]), rel=1e-4)
    assert found["words"] == sum(len(model.vocab.decode(text).split()) for text in texts)


def test_windows_count_the_words_that_are_predicted(judge, toy_data):
    """Where nothing opens a text, its first token is read and no word of the perplexity."""
    found = judge("lm", "--stride 7 --context 3 --task.opening none")
    vocab, corpus = (
        open_vocab(toy_data / "text" / "valid"),
        open_corpus(toy_data / "text" / "valid"),
    )
    texts = [np.concatenate(corpus.document(i))[1:] for i in range(len(corpus))]
    spelt = [vocab.decode(text) for text in texts]
    assert found["tokens"] == sum(map(len, texts))
    assert found["words"] == sum(len(text.split()) for text in spelt)
    assert found["bytes"] == sum(len(text.encode()) for text in spelt)
    assert found["ppl_word"] == pytest.approx(math.exp(found["nats"] / found["words"]))


def test_windows_without_context_or_opening(judge, toy_data):
    found = judge("lm", "--stride 2 --context 0 --task.opening none")
    corpus = open_corpus(toy_data / "text" / "valid")
    tokens = sum(map(int, corpus.document_lengths()))
    assert found["tokens"] == tokens - found["windows"]
    assert found["ppl_token"] == pytest.approx(math.exp(found["nats"] / found["tokens"]))


def test_stride_is_for_texts(judge, toy_data):
    with pytest.raises(DataError, match="holds pairs; --stride .*texts"):
        judge("qa", "--stride 8", data=toy_data / "pairs")


def test_choices_may_follow_without_a_delimiter(runs, tmp_path):
    (tmp_path / "rows.jsonl").write_text(
        '{"context": "ba to", "choices": ["ki", "sa"], "label": 0}'
    )
    line = f"--checkpoint {runs / 'lm'} --choices {tmp_path / 'rows.jsonl'} --overwrite --output"
    found = {}
    for given, option in {"ki": ["--delimiter", ""], " ki": []}.items():
        run([*line.split(), str(tmp_path / "out"), *option])
        found[given] = json.loads((tmp_path / "out").read_text())["sum"][0]
    model = unitk.load(runs / "lm")
    whole = model.likelihood(["ba toki", "ba to"])
    assert found["ki"] == pytest.approx(float(whole[0].sum() - whole[1].sum()), rel=1e-4)
    assert found[" ki"] == pytest.approx(
        float(model.likelihood(" ki", ["ba to"])[0].sum()), rel=1e-5
    )


@pytest.mark.parametrize("name", ["lm", "qa"])
def test_last_words_and_choices(runs, tmp_path, capsys, name):
    words = ["ba to ki", "ki ba"]
    (tmp_path / "texts.txt").write_text("".join(f"{text} sa\n" for text in words))
    rows = [{"context": text, "choices": ["sa", "ba to"], "label": 0} for text in words]
    (tmp_path / "choices.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = f"--checkpoint {runs / name} --output-format json --output {tmp_path / 'out'}"
    run(f"{flags} --last-word {tmp_path / 'texts.txt'}".split())
    found = json.loads(capsys.readouterr().out)
    model = unitk.load(runs / name)
    gains = [model.likelihood(" sa", [text])[0].sum() for text in words]
    assert found["log_prob"] == pytest.approx(np.mean(gains), rel=1e-5)
    assert found["ppl_last_word"] == pytest.approx(math.exp(-np.mean(gains)), rel=1e-4)
    lines = [json.loads(line)["log_prob"] for line in (tmp_path / "out").read_text().splitlines()]
    assert lines == pytest.approx(gains, rel=1e-5)
    run(f"{flags} --overwrite --choices {tmp_path / 'choices.jsonl'}".split())
    assert json.loads(capsys.readouterr().out)["chance"] == 50
    first = json.loads((tmp_path / "out").read_text().splitlines()[0])
    assert first["sum"][0] == pytest.approx(gains[0], rel=1e-5)


def test_bits_of_a_corpus_and_of_its_text_are_one_value(judge, toy_data, tmp_path):
    """Tokens cost what they do in windows of perplexity; bytes are those of the text."""
    windows = judge("lm", "--stride 20 --context 20")
    found = judge("lm", "--bits --stride 20")
    assert found["kind"] == "exact" and found["nats"] == pytest.approx(windows["nats"])
    vocab = open_vocab(toy_data / "text" / "valid")
    corpus = open_corpus(toy_data / "text" / "valid")
    texts = [[vocab.decode(ids) for ids in corpus.document(i)] for i in range(len(corpus))]
    path = tmp_path / "x.txt"
    path.write_text("\n\n".join("\n".join(one) for one in texts))
    size = sum(len(" ".join(one)) for one in texts)
    assert found["bytes"] == size and found["documents"] == len(texts)
    assert found["bits_per_byte"] == pytest.approx(found["nats"] / math.log(2) / size)
    again = judge("lm", "--bits --stride 20", data=path)
    assert {**again, "data": 0} == pytest.approx({**found, "data": 0})
    text = judge("mdlm", "--bits --draws 2", form="text")
    assert re.search(r"kind +bound: ", text) and re.search(r"\ndraws +2\n", text)


def test_bits_are_of_texts(judge, toy_data, tmp_path):
    with pytest.raises(DataError, match="--data .*pairs"):
        judge("lm", "--bits", data=toy_data / "pairs")
    (tmp_path / "x.txt").write_text("\n\n")
    with pytest.raises(DataError, match="--data .*x.txt"):
        judge("lm", "--bits", data=tmp_path / "x.txt")
    with pytest.raises(UsageError, match="--draws"):
        judge("lm", "--bits --draws 3")
