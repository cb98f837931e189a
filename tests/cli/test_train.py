"""`unitk train`: runs that are begun, resumed, fine-tuned and refused."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from exact_options import DETERMINISTIC

from unitk.data.corpus.writer import CorpusWriter
from unitk.training.saving.folder import seal
from unitk.vocab.train import train_vocab
from unitk_cli.main import main


@pytest.fixture
def unitk(monkeypatch, capsys):
    """`unitk("train ...")` -> (exit code, what stderr says, what stdout says)."""

    def run(words):
        monkeypatch.setattr(sys, "argv", ["unitk", *words.split()])
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        said = capsys.readouterr()
        return code, said.err, said.out

    return run


@pytest.fixture
def base(toy_data):
    return (
        f"train --task glm_infill --arch glm_tiny --blocks line --block-size 64 --max-tokens 400"
        f" --log-every 1 --precision fp32 {DETERMINISTIC} --data {toy_data / 'text'}"
    )


def losses(run):
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [e["train/loss"] for e in events if e["kind"] == "train"]


def test_pretrain_fine_tune_resume_plot(unitk, base, toy_data, tmp_path):
    code, said, _ = unitk(f"{base} --save-dir {tmp_path / 'pre'} --max-steps 3")
    assert code == 0, said
    # a first update that is tried out before there is a folder may have said how it attends
    lines = said[said.index("pre-training") :].splitlines()
    assert lines[0] == "pre-training on text with task glm_infill, from scratch"
    assert lines[1].startswith("train: 40 documents of")
    assert "200 examples" in lines[1] and "updates of 400 slots" in lines[1]
    assert lines[2].startswith("valid: 12 documents of")
    assert "model: glm_tiny, 0.2 M parameters" in said
    assert "--max-steps reached: 3 updates" in lines[-3]
    assert losses(tmp_path / "pre")[0] == max(losses(tmp_path / "pre"))

    tune = (
        f"train --task glm_infill --data {toy_data / 'pairs'} --init-from {tmp_path / 'pre'}"
        f" --save-dir {tmp_path / 'tune'} --max-source-len 9 --max-tokens 800 --log-every 1"
        " --valid none"
    )
    code, said, _ = unitk(f"{tune} --max-steps 2")
    assert code == 0, said
    assert f"fine-tuning on pairs with task glm_infill, weights of {tmp_path / 'pre'}/" in said
    assert "\nvalid: none (--valid)\n" in said
    assert re.search(r"train: \d+ of 200 pairs are shortened to 9 source", said)

    again = tune.replace(f"--init-from {tmp_path / 'pre'}", "--arch glm_tiny --resume")
    code, said, _ = unitk(f"{again} --max-steps 4")
    assert code == 0, said
    assert f"resumed from {tmp_path / 'tune'}/checkpoints/step-2" in said
    assert len(losses(tmp_path / "tune")) == 4

    code, said, out = unitk(f"plot {tmp_path / 'pre'} {tmp_path / 'tune'}")
    assert code == 0 and out == f"{tmp_path / 'pre' / 'curves.png'}\n"
    assert (tmp_path / "pre" / "curves.png").stat().st_size > 10_000


def test_config_yaml_repeats_the_run(unitk, base, tmp_path):
    unitk(f"{base} --save-dir {tmp_path / 'a'} --max-steps 2 --arch.dropout 0.2 --lr 3e-3")
    code, said, _ = unitk(
        f"train --config {tmp_path / 'a/config.yaml'} --save-dir {tmp_path / 'b'}"
    )
    assert code == 0, said
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    a, b = ((tmp_path / run / "config.yaml").read_text() for run in "ab")
    without = [[line.split("  #")[0] for line in text.splitlines()] for text in (a, b)]
    different = [pair for pair in zip(*without, strict=True) if pair[0] != pair[1]]
    assert [pair[0].partition(":")[0] for pair in different] == ["save_dir", "config"]


def test_resuming_keeps_what_is_frozen(unitk, base, toy_data, tmp_path):
    run = f"--save-dir {tmp_path / 'run'}"
    assert unitk(f"{base} {run} --max-steps 2 --save-every 1")[0] == 0
    for words, message in {
        "--seed 2": "--seed is 2, but the run to resume has 1: it cannot change",
        "--block-size 32": "--block-size is 32, but the run to resume has 64",
        "--task.mean-span 4": "--task.mean-span is 4.0, but the run to resume has 3.0",
        "--arch.dropout 0.5": "--arch.dropout is 0.5, but the run to resume has 0.0",
        f"--init-from {tmp_path / 'run'}": "has none: it cannot change",
        f"--data {toy_data / 'text'}=2": "--data: contents or weights are not those of the run",
    }.items():
        changed = base.replace(f"--data {toy_data / 'text'}", "") if "--data" in words else base
        name = words.split()[0]
        changed = changed.replace("--block-size 64", "") if name == "--block-size" else changed
        code, said, _ = unitk(f"{changed} {run} --max-steps 3 --resume {words}")
        assert (code, message in said) == (2, True), said
    words = "--max-steps 3 --resume --save-every 7 --keep-last 1 --lr 1e-3"
    code, said, _ = unitk(f"{base.replace('--max-tokens 400', '--max-tokens 200')} {run} {words}")
    assert code == 0, said
    # the size of an update was recorded: fewer tokens a pass are more passes
    assert "batch_tokens: '400'" in (tmp_path / "run" / "config.yaml").read_text()


def test_resuming_nothing_is_refused(unitk, tmp_path):
    code, said, _ = unitk(f"train --resume --save-dir {tmp_path}/none")
    assert code == 2 and "needs a --task" in said
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_passed_over(unitk, base, tmp_path):
    run = f"--save-dir {tmp_path / 'run'}"
    assert unitk(f"{base} {run} --max-steps 4 --save-every 2")[0] == 0
    whole = losses(tmp_path / "run")
    damaged = tmp_path / "run" / "checkpoints" / "step-4"
    (damaged / "model.safetensors").write_bytes(b"")
    code, said, _ = unitk(f"{base} {run} --max-steps 4 --save-every 2 --resume")
    assert code == 0, said
    assert f"checkpoint {damaged} is damaged (model.safetensors has 0 bytes, not the" in said
    assert f"resumed from {tmp_path / 'run'}/checkpoints/step-2" in said
    assert losses(tmp_path / "run") == whole
    assert (damaged / "manifest.json").exists()  # made again
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-2")
    (damaged / "state.json").unlink()
    code, said, _ = unitk(f"{base} {run} --max-steps 4 --resume")
    assert code == 4 and "damaged: 1" in said


def test_resume_starts_where_there_is_nothing(unitk, base, tmp_path):
    code, said, _ = unitk(f"{base} --save-dir {tmp_path / 'run'} --max-steps 1 --resume")
    assert code == 0 and "from scratch" in said
    code, said, _ = unitk(f"{base} --save-dir {tmp_path / 'run'} --max-steps 1")
    assert code == 2 and "--resume continues it" in said


def test_another_vocabulary_is_refused(unitk, base, tmp_path):
    run = tmp_path / "run"
    assert unitk(f"{base} --save-dir {run} --max-steps 1")[0] == 0
    other = tmp_path / "other"
    vocab = train_vocab(["only a few words, and others than those"] * 9, 28)
    writer = CorpusWriter(other, len(vocab))
    vocab.save(other / "vocab")
    writer.add(np.full(20, vocab.unk), np.array([20]), np.array([1]))
    writer.close({"vocab": vocab.hash})
    words = base.replace(base.split()[-1], str(other))
    for how in (f"--init-from {run} --save-dir {tmp_path / 'new'}", f"--resume --save-dir {run}"):
        code, said, _ = unitk(f"{words} --max-steps 2 {how}")
        assert code == 3 and "another vocabulary" in said, said


MISTAKES = """
import sys
import time
from unitk_cli.main import main
for words in {commands}:
    sys.argv = ["unitk", *words.split()]
    try:
        main()
        code = 0
    except SystemExit as exit:
        code = exit.code or 0
    print(code)
    assert "torch" not in sys.modules, words
"""


def test_mistakes_are_told_before_torch_is_imported(toy_data, tmp_path):
    (tmp_path / "file").touch()
    text = f"--data {toy_data / 'text'}"
    good = f"train --task glm_infill {text} --save-dir {tmp_path / 'run'} --max-steps 1"
    commands = {
        "train --help": 0,
        "train --task glm_infill --help": 0,
        "plot --help": 0,
        f"train {text}": 2,
        good.replace("glm_infill", "glm_infil"): 2,
        f"{good} --arch glm_smal": 2,
        f"{good} --arch.width 7": 2,
        f"{good} --optimizer adam": 2,
        f"{good} --criterion.smoothing 1": 2,
        f"{good} --learning-rate 1": 2,
        f"{good} --lr-schedule liner": 2,
        f"{good} --arch glm_small --block-size 1000": 2,
        good.replace(str(tmp_path / "run"), str(tmp_path / "file" / "run")): 2,
        good.replace(str(toy_data / "text"), str(tmp_path / "nowhere")): 3,
        f"{good} --init-from {tmp_path / 'nowhere'}": 4,
        f"{good} --resume --init-from {tmp_path / 'nowhere'}": 4,
        f"{good} --config {tmp_path / 'nowhere.yaml'}": 2,
        "plot": 2,
        f"plot {tmp_path}": 3,
    }
    program = MISTAKES.format(commands=list(commands))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    codes = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    wrong = [c for c, got in zip(commands, codes, strict=True) if commands[c] != got]
    assert not wrong, (wrong, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == sum(code > 0 for code in codes), done.stderr  # one line each
    assert all(line.startswith(("unitk train: ", "unitk plot: ")) for line in lines)
    assert not (tmp_path / "run").exists()  # and nothing was written


KINDS_OF_RUN = {
    "plain": "--task lm --arch gpt2_tiny --arch.dropout 0.1 --data {text}",
    "from weights": "--task glm_infill --data {pairs} --max-source-len 9 --init-from {pre}",
    "of a latent": "--task optimus --arch optimus_tiny --data {text}",
    "mixture": "--task glm_infill=0.5 --task lm=cyclical --task.glm_infill.mean-span 4"
    " --arch glm_tiny --data {text}",
}


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", KINDS_OF_RUN)
def test_the_command_of_a_runs_readme_continues_it(
    unitk, base, toy_data, tmp_path, monkeypatch, kind
):
    pre, whole, run = tmp_path / "pre", tmp_path / "whole", tmp_path / "stopped"
    if kind == "from weights":
        assert unitk(f"{base} --save-dir {pre} --max-steps 1")[0] == 0
    words = KINDS_OF_RUN[kind].format(text=toy_data / "text", pairs=toy_data / "pairs", pre=pre)
    words = f"train {words} --block-size 64 --max-tokens 400 --log-every 1 --max-steps 4"
    words += f" {DETERMINISTIC}"
    assert unitk(f"{words} --save-dir {whole}")[0] == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert unitk(f"{words} --save-dir {run}")[0] == 143
    (line,) = re.findall("^unitk (train .*)", (run / "README.md").read_text(), re.M)
    assert line == f"train --resume --save-dir {run.name}"
    assert str(tmp_path) not in (run / "README.md").read_text()
    monkeypatch.chdir(tmp_path)  # beside the folder
    options = re.findall("^[|] `.*", (run / "README.md").read_text(), re.M)
    code, said, _ = unitk(line)
    assert code == 0, said
    assert "resumed from" in said and "note:" not in said
    assert losses(run) == losses(whole) and len(losses(run)) == 4
    assert (run / "config.yaml").read_text().count("  # default") > 20
    page = (run / "README.md").read_text()
    assert set(options) <= set(re.findall("^[|] `.*", page, re.M))
    # the first command with --resume does the same
    code, said, _ = unitk(f"{words} --save-dir {run} --resume")
    assert code == 0 and "--max-steps reached: 4 updates" in said, said


def test_resuming_keeps_what_is_not_given(unitk, base, tmp_path):
    run = tmp_path / "run"
    assert unitk(f"{base} --save-dir {run} --max-steps 2 --lr 3e-3")[0] == 0
    code, said, _ = unitk(f"train --resume --save-dir {run} --max-steps 3 --batch-texts 7")
    assert code == 0 and "updates of 7 texts" in said, said
    text = (run / "config.yaml").read_text()
    assert "lr: '0.003'  # --lr\n" in text and "batch_tokens: none" in text
    code, said, _ = unitk(f"train --resume --save-dir {run} --task mlm")
    assert code == 2 and "--task is mlm" in said
    # a folder decides nothing about code: plug-ins are named again
    (run / "config.yaml").write_text(text.replace("user_dir: none", "user_dir: /x"))
    code, said, _ = unitk(f"train --resume --save-dir {run}")
    assert code == 2 and "give --user-dir /x" in said


def test_a_number_is_compared_not_its_text(unitk, base, tmp_path):
    """Checkpoints of an earlier version have `cycles=10` and `mean_span: 3`."""
    run = tmp_path / "run"
    assert unitk(f"{base} --save-dir {run} --max-steps 2")[0] == 0
    step = run / "checkpoints" / "step-2"
    state = (step / "state.json").read_text()
    assert '"task.mean_span": "3.0"' in state
    (step / "state.json").write_text(state.replace('"3.0"', '"3"'))
    (step / "manifest.json").unlink()
    seal(step)
    assert unitk(f"{base} --save-dir {run} --max-steps 3 --resume")[0] == 0


def stop_after(monkeypatch, steps, number=signal.SIGTERM):
    from unitk.training.loop import Trainer

    update = Trainer.update

    def watched(self, one):
        if self.progress.step + 1 == steps:
            os.kill(os.getpid(), number)
        update(self, one)

    monkeypatch.setattr(Trainer, "update", watched)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["train", "generate"])
def test_too_little_memory_is_one_line(unitk, base, toy_data, tmp_path, verb):
    """In an address space with room for the program, but not for what is asked of it."""
    run, source = tmp_path / "run", tmp_path / "in.txt"
    assert unitk(f"{base} --save-dir {run} --max-steps 1")[0] == 0
    source.write_text("the bado\n" * 40)
    words = {
        "train": f"train --task lm --arch gpt2_small --save-dir {tmp_path / 'b'} --max-steps 1"
        f" --data {toy_data / 'text'}",
        "generate": f"generate --checkpoint {run} --input {source} --beam 10000 --max-len 30",
    }[verb]
    command = f"ulimit -v 2600000; exec {sys.executable} -m unitk_cli {words}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert re.match(rf"unitk {verb}: out of memory.* lower .*--max-tokens", last), last


PLUGIN = """
from unitk.registry import register
from unitk.tasks.lm import LM

@register("task", "broken_lm")
class Broken(LM):
    def pretrain(self, text, rng):
        return text.nothing
"""


def test_a_plugins_own_bug_is_shown_with_its_line(base, tmp_path):
    (tmp_path / "broken_lm.py").write_text(PLUGIN)
    words = base.replace("glm_infill", "broken_lm").replace("glm_tiny", "gpt2_tiny")
    words += f" --save-dir {tmp_path / 'run'} --max-steps 1 --user-dir {tmp_path}"
    command = [sys.executable, "-m", "unitk_cli", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    lines = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert lines[1] == f'  File "{tmp_path}/broken_lm.py", line 8, in pretrain'
    assert "AttributeError" in lines[-1] and len(lines) <= 5 and "click" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("stop", [False, True])
def test_several_processes_leave_nothing_in_the_temporary_folder(base, tmp_path, stop):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    words = f"{base} --save-dir {tmp_path / 'run'} --nproc 2 --max-steps {10**6 if stop else 2}"
    words += " --device cpu --valid none"  # a GPU has one process
    command = [sys.executable, "-m", "unitk_cli", *words.split()]
    run = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)})
    log = tmp_path / "run/log.jsonl"
    while stop and not (log.exists() and log.stat().st_size):
        time.sleep(0.1)
    if stop:
        run.terminate()
    assert run.wait(timeout=120) == (143 if stop else 0)
    left = {path.name for path in temporary.iterdir()}
    assert not {name for name in left if not name.startswith("torchinductor_")}  # PyTorch's cache


def test_the_log_says_what_was_left_to_defaults(unitk, toy_data, tmp_path):
    run = f"--save-dir {tmp_path / 'run'}"
    small = "--arch.num-layers 1 --arch.width 64 --arch.ffn-width 64 --arch.num-heads 4"
    words = f"--task lm --data {toy_data / 'text'} --valid none --max-tokens 400 {small}"
    code, said, _ = unitk(f"train {words} {run} --max-steps 1")
    assert code == 0, said
    [line] = [line for line in said.splitlines() if line.startswith("defaults: ")]
    assert line.startswith("defaults: --arch qwen3_mini --optimizer muon --lr 0.004 --lr-schedule")
    assert "--optimizer.base-width 256" in line and "--arch.base-width 256" in line
    code, said, _ = unitk(f"train --resume {run} --max-steps 2")
    assert code == 0 and "--optimizer muon --lr 0.004" in said
