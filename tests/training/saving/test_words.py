"""--save-at-words, --max-words: which checkpoints there are; a resumed run has the same ones."""

import json
import shutil

import pytest
from conftest import toy_lines, write_text

from unitk.data.corpus.columns import WORDS as WORDS_FILE
from unitk.data.corpus.writer import write_manifest
from unitk.errors import CheckpointError, UsageError
from unitk.files import MANIFEST, damage
from unitk.training.saving.folder import OPTIMIZER, find_checkpoint
from unitk.training.saving.state import Progress, read_state, short

WORDS = sum(len(line.split()) for line in toy_lines(200))
RUN = "--task lm --arch gpt2_tiny --blocks doc --max-words 3k --save-at-words 500,1k,...,3k"


def kept(folder):
    """Name of each link -> the words of its checkpoint, and its bytes."""
    found = {}
    for link in sorted(folder.glob("words_*")):
        state = read_state(find_checkpoint(link))
        assert link.resolve().name == f"step-{state['step']}"
        found[link.name] = state["words"], (link / "model.safetensors").read_bytes()
    return found


def words_of(folder):
    lines = (folder / "log.jsonl").read_text().splitlines()
    events = [one for one in map(json.loads, lines) if one["kind"] == "train"]
    return [event["words"] for event in events]


def test_each_is_the_first_to_reach_its_words_and_none_is_removed(train, tmp_path):
    at = train(f"{RUN} --keep-last 1 --save-every 3")
    folder, read = tmp_path / "run", words_of(tmp_path / "run")
    assert WORDS < 3000 <= at.words == read[-1] and read[-2] < 3000  # more than an epoch
    names = ["words_500", *(f"words_{short(n)}" for n in (1000, 1500, 2000, 2500, 3000))]
    assert sorted(kept(folder)) == sorted(names)
    for name, (words, _) in kept(folder).items():
        mark = int(name[6:].replace("k", "000"))
        assert words == min(seen for seen in read if seen >= mark)
    steps = {path.resolve().name for path in [*folder.glob("words_*"), folder / "last"]}
    assert {path.name for path in (folder / "checkpoints").iterdir()} == steps
    # their weights are whole, and the optimizer's state is there for the newest one only
    for path in (folder / "checkpoints").iterdir():
        assert damage(path) is None
        assert (path / OPTIMIZER).exists() == (path == (folder / "last").resolve())
    shutil.rmtree((folder / "last").resolve())
    with pytest.raises(CheckpointError, match="--resume: .*kept.*state"):
        train(f"{RUN} --resume")


@pytest.mark.slow
def test_a_resumed_run_has_the_same_checkpoints(train, tmp_path):
    train(RUN, run="whole")
    train(RUN.replace("3k --save", "1300 --save") + " --lr-schedule constant", run="parts")
    train(f"{RUN} --lr-schedule constant", run="constant")
    assert 2 <= len(kept(tmp_path / "parts")) < 6
    # what a process that was killed had not linked yet
    (tmp_path / "parts" / "words_1k").unlink()
    train(f"{RUN} --lr-schedule constant --resume", run="parts")
    assert kept(tmp_path / "parts") == kept(tmp_path / "constant")
    assert {k: v[0] for k, v in kept(tmp_path / "whole").items()} == {
        k: v[0] for k, v in kept(tmp_path / "parts").items()
    }


def test_the_rate_falls_to_the_end_of_the_words(train, curve):
    train(f"{RUN} --lr-schedule linear")
    rates = [rate for _, rate in curve(value="lr")]
    assert rates[-1] == pytest.approx(0, abs=rates[0] / 5) and min(rates[:-1]) > rates[-1]


def test_a_run_that_did_not_count_its_words_is_not_resumed_by_them(train, tmp_path, toy_vocab):
    write_text(tmp_path / "new", toy_vocab, toy_lines(20))
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    about = json.loads((tmp_path / "old" / MANIFEST).read_text())
    (tmp_path / "old" / WORDS_FILE.file).unlink()
    left = {name: about[name] for name in ("kind", "dtype", "counts", "unknown_rate", "vocab")}
    write_manifest(tmp_path / "old", left)
    words = "--task lm --arch gpt2_tiny --max-steps 1 --data"
    assert train(f"{words} {tmp_path / 'old'}").words == 0
    with pytest.raises(UsageError, match="--max-words .*step-1 .*words"):
        train(f"{words} {tmp_path / 'new'} --max-words 1k --resume")


def test_an_update_may_reach_several_marks():
    at = Progress(step=4, words=900)
    at.count_words(1200, (500, 1000, 2000, 3000))
    assert at.words == 2100 and at.kept == {"words_1k": 4, "words_2k": 4}
    at.step = 5
    at.count_words(10, (500, 1000, 2000, 3000))
    assert at.words == 2110 and at.kept == {"words_1k": 4, "words_2k": 4}
    at.forget(4)
    assert not at.kept


def test_names():
    assert [*map(short, (1, 1500, 2000, 1_000_000, 1_500_000, 10**9))] == [
        *("1", "1500", "2k", "1M", "1500k", "1000M"),
    ]
