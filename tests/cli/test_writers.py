"""Of two processes that write one destination the second is refused; what is written is whole."""

import json
import shutil
import subprocess
import sys

import pytest

from unitk.api.verb import find_verb
from unitk.errors import UsageError
from unitk.files import below, hold_lock

VERBS = ["preprocess", "generate", "convert", "average", "merge", "plot", "embed"]


@pytest.fixture(scope="module")
def inputs(make_checkpoint, tmp_path_factory):
    """What the verbs read: two of everything, which differ."""
    folder = tmp_path_factory.mktemp("inputs")
    for i, seed in ((1, 1), (2, 2)):
        lines = [f"the cat {i} sat on the mat .\n"] * 400
        (folder / f"text{i}.txt").write_text("".join(lines))
        (folder / f"few{i}.txt").write_text("".join(lines[: 4 * i]))
        shutil.copytree(make_checkpoint("lm", "gpt2_tiny", seed=seed), folder / f"model{i}")
        events = [{"kind": "train", "step": n, "lm/loss": n / i} for n in range(1, 9)]
        (folder / f"run{i}").mkdir()
        log = "".join(json.dumps(event) + "\n" for event in events)
        (folder / f"run{i}" / "log.jsonl").write_text(log)
        model, text = folder / "model1", folder / f"text{i}.txt"
        words = f"--input {text} --documents line --vocab {model} --dest {folder}/corpus{i}"
        find_verb("preprocess")(words.split())
    return folder


def words_of(verb, inputs, dest, i):
    model = inputs / f"model{i}"
    text = inputs / f"text{i}.txt"
    return {
        "preprocess": f"--input {text} --documents line --vocab {inputs}/model1 --dest {dest}",
        "generate": f"--checkpoint {inputs}/model1 --input {inputs}/few{i}.txt --output {dest}"
        " --max-len 4",
        "convert": f"--from unitk {model} --to hf {dest}",
        "average": f"--checkpoint {model} --checkpoint {inputs}/model1 --dest {dest}",
        "merge": f"{inputs}/corpus{i} {inputs}/corpus{i} --dest {dest}",
        "plot": f"{inputs}/run{i} --output {dest}",
        "embed": f"--checkpoint {inputs}/model1 --input {inputs}/few{i}.txt --output {dest}",
    }[verb].split()


def content(dest):
    """What a file or folder holds."""
    found = below(dest) if dest.is_dir() else {"": dest}
    return {name: path.read_bytes() for name, path in found.items()}


@pytest.mark.parametrize("verb", VERBS)
def test_a_destination_that_is_being_written_is_refused(verb, inputs, tmp_path):
    dest = tmp_path / "out.png"
    with hold_lock(tmp_path / ".out.png.lock", "this test"):
        with pytest.raises(UsageError, match=r"out.png .*being.*process \d+ on "):
            find_verb(verb)(words_of(verb, inputs, dest, 1))
        assert [path.name for path in tmp_path.iterdir()] == [".out.png.lock"]
    find_verb(verb)(words_of(verb, inputs, dest, 1))
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


@pytest.mark.parametrize("name", [".out.png.lock", "out.png", ".out.png.partial"])
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_written_through_a_link(verb, name, inputs, tmp_path):
    (tmp_path / "thesis").write_text("ten years of work")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / name).symlink_to("../thesis")
    if verb == "generate" or "partial" not in name:
        with pytest.raises(UsageError, match=f"{name} (is (.*file but )?a link|exists)"):
            find_verb(verb)(words_of(verb, inputs, tmp_path / "d" / "out.png", 1))
    assert (tmp_path / "thesis").read_text() == "ten years of work"
    assert [path.name for path in (tmp_path / "d").iterdir()] == [name]


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["log.jsonl", "values.csv", ".lock", "README.md", "config.yaml"])
@pytest.mark.parametrize("hard", [False, True])
def test_a_run_that_somebody_packed_harms_no_other_file(name, hard, toy_data, tmp_path):
    (run := tmp_path / "run").mkdir()
    path, thesis = run / name, tmp_path / "thesis"
    begin = "--task lm --arch gpt2_tiny --max-tokens 200 --blocks line --block-size 32 --device cpu"
    words = f"--data {toy_data / 'text'} --save-dir {run} --writers csv".split()
    find_verb("train")([*words, *begin.split(), "--max-steps", "1"])
    if path.exists():
        path.rename(thesis)
    else:
        thesis.write_text("ten years of work")
    before = thesis.read_bytes()
    path.hardlink_to(thesis) if hard else path.symlink_to("../thesis")
    try:
        find_verb("train")([*words, "--resume", "--max-steps", "2"])
    except UsageError as error:
        assert str(path) in str(error)  # noqa: PT017
    else:
        assert not path.is_symlink() and path.read_bytes() != before
    assert thesis.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_pairs_of_processes(verb, inputs, tmp_path, pairs=20):
    alone = []
    for i in (1, 2):
        find_verb(verb)(words_of(verb, inputs, tmp_path / f"alone{i}.png", i))
        alone.append(content(tmp_path / f"alone{i}.png"))
    assert alone[0] != alone[1]
    refused = 0
    for number in range(pairs):
        dest = tmp_path / str(number) / "out.png"
        dest.parent.mkdir()
        both = [
            subprocess.Popen(
                [sys.executable, "-m", "unitk_cli", verb, *words_of(verb, inputs, dest, i)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for i in (1, 2)
        ]
        said = [process.communicate()[1] for process in both]
        codes = [process.returncode for process in both]
        assert sorted(codes) == [0, 2], said
        winner, loser = codes.index(0), codes.index(2)
        assert content(dest) == alone[winner], f"pair {number} is mixed"
        assert len(said[loser].splitlines()) == 1
        refused += "is being written by process" in said[loser]
        assert [path.name for path in dest.parent.iterdir()] == ["out.png"]
    print(f"{verb}: {refused} of {pairs} while the first wrote, the others after it")
