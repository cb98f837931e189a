"""A disk that takes no more is one line of every verb, and nothing half-written stays."""

import errno
import resource
import subprocess
import sys
import tempfile

import pytest

import unitk
from unitk import files
from unitk.api import records
from unitk.api.verb import find_verb
from unitk.errors import CheckpointError, DataError, refusal, say

LIMIT = 3000
"""Bytes of a file: the system then refuses as a full disk does."""


def program(line, folder, **more):
    words = [sys.executable, "-m", "unitk_cli", *line.split()]
    return subprocess.run(words, cwd=folder, stderr=subprocess.PIPE, text=True, **more)


def program_to(stream, line, folder):
    """A program whose standard output a shell sends elsewhere, such as to a full disk."""
    words = f'"{sys.executable}" -m unitk_cli {line} {stream}'
    return subprocess.run(words, shell=True, cwd=folder, stderr=subprocess.PIPE, text=True)


def assert_one_line(done, code, said):
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert said in line


@pytest.fixture(scope="module")
def models(make_checkpoint, tmp_path_factory):
    arch = {"unilm": "unilm_tiny", "glm_infill": "glm_tiny"}
    run = tmp_path_factory.mktemp("run")
    (run / "log.jsonl").write_text('{"kind": "train", "step": 1, "lm/loss": 1.0}\n')
    return {"run": run} | {task: make_checkpoint(task, name) for task, name in arch.items()}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("line", "code"),
    [
        pytest.param("convert --from unitk {unilm} --to hf out", 4, marks=pytest.mark.slow),
        pytest.param("convert --from unitk {unilm} --to unilm out", 4, marks=pytest.mark.slow),
        pytest.param("convert --from unitk {glm_infill} --to glm out", 4, marks=pytest.mark.slow),
        pytest.param("average --checkpoint {unilm},{unilm} --dest out", 4, marks=pytest.mark.slow),
        ("preprocess --input in.txt --vocab {unilm} --dest out", 3),
        ("embed --checkpoint {unilm} --input in.txt --output out.npy --device cpu", 3),
        ("plot {run} --output out.png", 3),
        ("show --task lm a b c --output out.png", 3),
    ],
)
def test_writing(line, code, models, tmp_path):
    (tmp_path / "in.txt").write_text("the cat sat on the mat .\n" * 400)
    done = program(
        line.format(**models),
        tmp_path,
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
    )
    assert_one_line(done, code, "out")
    assert "too large" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_file_that_takes_no_more_is_named(tmp_path):
    """Also where no option names it, such as the table of a sweep."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, limits[1]))
    try:
        with pytest.raises(OSError) as error:
            files.write(tmp_path / "sweep.json", "x" * 2 * LIMIT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert refusal(error.value).startswith(f"{tmp_path / 'sweep.json'}: ")


@pytest.mark.parametrize(
    "line",
    [
        "preprocess --input - --vocab {unilm} --dest out",
        "evaluate --checkpoint {unilm} --data in.txt --device cpu",
        "evaluate --checkpoint {unilm} --data - --device cpu",
    ],
)
def test_copies_of_what_is_read(line, models, tmp_path):
    """It is no fault of the input, and where there is more room is for the user to say."""
    (tmp_path / "in.txt").write_text("the cat sat on the mat .\n" * 40_000)
    with open(tmp_path / "in.txt") as stdin:
        done = program(
            line.format(**models),
            tmp_path,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT)),
        )
    assert_one_line(done, 3, f"the temporary folder {tempfile.gettempdir()}: ")
    assert "TMPDIR" in done.stderr and "--" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_records_in_memory(monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records, "_write", write)
    with pytest.raises(DataError, match="TMPDIR"):
        unitk.score(metric="bleu", hypotheses=["a"], references=["a"])


@pytest.mark.parametrize("line", ["list task", "show --task lm a b c", "score --help", "--version"])
@pytest.mark.parametrize("stream", [">/dev/full", ">&-"])
def test_printing(line, stream, tmp_path):
    """A result that is printed nowhere is lost, and the exit code says so."""
    done = program_to(stream, line, tmp_path)
    assert_one_line(done, 3, "the output cannot be written: ")


def test_lines_about_files_may_be_lost(tmp_path, monkeypatch):
    """The file is what one wants; then the next line has no place either."""
    done = program_to(">/dev/full", "show --task lm a --output a.svg", tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "a.svg").exists()
    monkeypatch.setattr("sys.stderr", open("/dev/full", "w"))
    say("a remark")


def test_what_is_no_optimus(models, tmp_path):
    with pytest.raises(CheckpointError, match="has .*latent.*Optimus"):
        words = f"--from unitk {models['unilm']} --to optimus {tmp_path}/out"
        find_verb("convert")(words.split())
