"""fairseq's data-bin folders on the command line: whatever takes a corpus takes them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from fairseq_programs import needs_fairseq, run_fairseq

from unitk.errors import DataError, UsageError
from unitk.verbs import convert, evaluate, generate, preprocess, train

TINY = "--arch.num-layers 1 --arch.width 32 --arch.num-heads 2 --arch.ffn-width 64"
TINY += " --arch.dropout 0.1 --max-tokens 300 --max-steps 3 --log-every 1 --precision fp32"
TINY += " --threads 1"

WHOLE = ("--cpu", "--required-batch-size-multiple", "1")
"""fairseq-fixed leaves out a last batch that is no multiple of 8."""


def lines(seed, count):
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(30)]
    return [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Text and pairs in fairseq's format and in ours; run from this folder."""
    here = tmp_path_factory.mktemp("data")
    sizes = {"train": 90, "valid": 20, "test": 6}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for number, (name, count) in enumerate(sizes.items()):
            text = [line if i % 7 else "" for i, line in enumerate(lines(number, count))]
            Path(f"{name}.txt").write_text("\n".join(text))
            Path(f"{name}.de").write_text("\n".join(lines(number, count)))
            Path(f"{name}.en").write_text("\n".join(lines(number + 9, count)))
        sets = "--input train.txt --valid valid.txt"
        pairs = " ".join(
            f"--{part}source-file {name}.de --{part}target-file {name}.en"
            for part, name in {"": "train", "valid-": "valid", "test-": "test"}.items()
        )
        langs = "--source-lang de --target-lang en"
        preprocess.run(f"{sets} --format fairseq --dest text".split())
        preprocess.run(f"{sets} --vocab text --dest ours-text --workers 1".split())
        preprocess.run(f"{pairs} --format fairseq {langs} --dest pairs".split())
        preprocess.run(f"{pairs} --vocab pairs --dest ours-pairs --workers 1".split())
    return here


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)


def losses(run):
    events = map(json.loads, Path(run, "log.jsonl").read_text().splitlines())
    keys = ("train/loss", "valid/loss")
    return [event[key] for event in events for key in keys if key in event]


@pytest.mark.parametrize(
    ("kind", "task"), [("text", "mlm --arch bert_tiny"), ("pairs", "seq2seq --arch bart_tiny")]
)
def test_training_is_that_on_a_corpus_of_ours(kind, task, tmp_path, capsys):
    found = []
    for data in (kind, f"ours-{kind}"):
        run = tmp_path / data
        train.run(f"--task {task} --data {data} --save-dir {run} {TINY}".split())
        said = capsys.readouterr().err
        assert ("fairseq's, ends of items dropped" in said) == (data == kind)
        found.append(losses(run))
    assert len(found[0]) == 4 and found[0] == found[1]
    more = f"--task {task} --data {kind} --save-dir {tmp_path / kind} {TINY} --resume"
    more = more.replace("--max-steps 3", "--max-steps 5")
    train.run(more.split())
    assert len(losses(tmp_path / kind)) == 7
    with pytest.raises(UsageError, match="--data: contents.*not those"):
        train.run(more.replace(f"--data {kind} ", f"--data {kind}/valid ").split())


def test_evaluate_and_generate(tmp_path, capsys):
    run = tmp_path / "run"
    task = "--task seq2seq --arch bart_tiny"
    train.run(f"{task} --data pairs --valid dev=pairs/valid --save-dir {run} {TINY}".split())
    capsys.readouterr()
    judged = []
    for data in ("pairs", "pairs/valid", "ours-pairs/valid"):
        words = f"--checkpoint {run} --data {data} --output-format json --device cpu"
        evaluate.run(words.split())
        judged.append(json.loads(capsys.readouterr().out))
    assert judged[0]["data"] == "pairs/valid" and judged[0]["texts"] == 20
    assert judged[0]["loss"] == judged[1]["loss"] == judged[2]["loss"]
    with pytest.raises(DataError, match="pairs .*folder.* name pairs/test or pairs/tr"):
        generate.run(f"--checkpoint {run} --input pairs".split())
    out = []
    for data in ("pairs/test", "ours-pairs/test"):
        words = f"--checkpoint {run} --input {data} --max-len 4 --output-format fairseq"
        generate.run(f"{words} --overwrite --output {tmp_path / 'out'} --device cpu".split())
        out.append((tmp_path / "out").read_text())
    assert out[0] == out[1]
    kinds = [line.partition("\t")[0] for line in out[0].splitlines()]
    assert kinds == [f"{kind}-{i}" for i in range(6) for kind in "STHDP"]
    with pytest.raises(DataError, match="text/valid .*texts"):
        generate.run(f"--checkpoint {run} --input text/valid".split())
    with pytest.raises(UsageError, match="task seq2seq cannot pre-train on texts"):
        evaluate.run(f"--checkpoint {run} --data text/valid --device cpu".split())


def read(path):
    """The lines of an output of fairseq-generate: name -> the columns of each of its lines."""
    found = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, *columns = line.split("\t")
        if name[:2] in ("S-", "T-", "H-", "D-", "P-"):
            found.setdefault(name, []).append(columns)
    return found


@pytest.mark.slow
@needs_fairseq
def test_outputs_are_those_of_fairseq(tmp_path):
    """A model that fairseq trained on our folder."""
    made = tmp_path / "fairseq"
    run = (
        "pairs -s de -t en --arch transformer_tiny --cpu --share-all-embeddings"
        " --optimizer adam --lr 0.003 --max-update 20 --max-tokens 300 --disable-validation"
        f" --criterion cross_entropy --save-dir {made}"
    )
    run_fairseq("train", *run.split())
    search = "--beam 4 --nbest 3 --min-len 1"
    words = f"pairs --path {made / 'checkpoint_last.pt'} -s de -t en --max-len-b 9 {search}"
    (tmp_path / "theirs").write_text(
        run_fairseq("generate", *words.split(), *WHOLE), encoding="utf-8"
    )
    source = f"fairseq {made / 'checkpoint_last.pt'} --vocab pairs/dict.de.txt"
    convert.run(f"--from {source} --to unitk {tmp_path / 'ours'}".split())
    words = f"--checkpoint {tmp_path / 'ours'} --input pairs/test --max-len 9 {search}"
    more = f"--search fairseq --output-format fairseq --output {tmp_path / 'out'} --device cpu"
    generate.run(f"{words} {more}".split())
    ours, theirs = read(tmp_path / "out"), read(tmp_path / "theirs")
    assert ours.keys() == theirs.keys() and len(ours) == 30
    for name, wanted in theirs.items():
        assert len(ours[name]) == len(wanted) == (1 if name[0] in "ST" else 3)
        for one, other in zip(ours[name], wanted, strict=True):
            assert one[-1] == other[-1] or name[0] == "P"
            if name[0] in "HDP":  # our 5 symbols after the 40 of the dictionary take their share
                scores = [[float(score) for score in row[0].split()] for row in (one, other)]
                more = np.subtract(*reversed(scores))
                assert more.min() > -1e-4 and more.max() < np.log2(45 / 40)


@pytest.mark.slow
@needs_fairseq
def test_fairseq_reads_a_model_of_ours(tmp_path):
    """It writes the same with the dictionary of the exported folder."""
    run, search = tmp_path / "run", "--beam 4 --min-len 1"
    train.run(
        "--task seq2seq --task.opening sep --arch bart_tiny --data pairs --valid none --lr 0.003"
        f" --max-steps 20 --save-dir {run} --device cpu".split()
    )
    words = f"--checkpoint {run} --input pairs/test --max-len 9 --precision fp32 {search}"
    more = f"--search fairseq --output-format fairseq --output {tmp_path / 'out'} --device cpu"
    generate.run(f"{words} {more}".split())
    convert.run(f"--from unitk {run} --to fairseq {tmp_path / 'there'}".split())
    data = shutil.copytree("pairs", tmp_path / "data")
    for name in ("dict.de.txt", "dict.en.txt"):
        shutil.copy(tmp_path / "there" / "dict.txt", data / name)
    words = f"--path {tmp_path / 'there' / 'checkpoint_best.pt'} -s de -t en --max-len-b 9 {search}"
    (tmp_path / "theirs").write_text(run_fairseq("generate", str(data), *words.split(), *WHOLE))
    ours, theirs = read(tmp_path / "out"), read(tmp_path / "theirs")
    assert ours.keys() == theirs.keys() and len(ours) == 30
    for name, [wanted] in theirs.items():
        [found] = ours[name]
        assert name[0] == "P" or found[-1] == wanted[-1]
        if name[0] in "HDP":
            one, other = ([float(score) for score in row[0].split()] for row in (found, wanted))
            assert one == pytest.approx(other, abs=2e-4)
