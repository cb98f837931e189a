"""What all verbs share: completion by the shell, and `--quiet`."""

import io
import os
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import unitk
from unitk.decoding.files.outputs import STDOUT, write
from unitk_cli import run_unitk
from unitk_cli.main import main

ROOT = Path(__file__).parents[2]


def complete(words):
    """What bash is offered for the last word."""
    given = {"_UNITK_COMPLETE": "bash_complete", "COMP_WORDS": f"unitk {words}"}
    given["COMP_CWORD"] = str(len(words.split(" ")))
    # a program of another name would have another variable
    program = "from unitk_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | given, capture_output=True, text=True
    )
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.split()]


def test_the_shell_completes_verbs_options_and_names():
    assert complete("tr") == ["train"]
    assert complete("train --valid-t") == ["--valid-texts"]
    assert complete("train --task glm_infill --task.mean") == ["--task.mean-span"]
    assert complete("train --task lm --task.mean") == []
    assert complete("train --task gl") == ["glm_infill"]
    assert complete("generate --quie") == ["--quiet"]
    assert complete("train --data some/fol") == ["some/fol"]  # bash takes a file


@pytest.mark.parametrize("words", ["", "help", "-h"])
def test_who_asks_for_nothing_gets_the_verbs(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["unitk", *words.split()])
    main()
    page = capsys.readouterr()
    assert not page.err
    assert {"Usage:", "quickstart", "generate"} <= set(page.out.split())


@pytest.mark.parametrize("word", ["version", "--version"])
def test_the_version_is_asked_for_in_either_way(word, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["unitk", word])
    main()
    assert capsys.readouterr().out == f"unitk, version {unitk.__version__}\n"


def test_help_explains_a_verb(monkeypatch, capsys):
    pages = []
    for words in ("help show", "show -h", "show --help"):
        monkeypatch.setattr(sys, "argv", ["unitk", *words.split()])
        with suppress(SystemExit):
            main()
        pages.append(capsys.readouterr().out)
    assert pages[0].startswith("unitk show") and len(set(pages)) == 1


def test_messages_are_escaped_where_standard_output_lacks_characters(tmp_path):
    """Of a Latin or ASCII terminal; what is written does not depend on it."""
    (tmp_path / "größe.txt").write_text("Ein schöner Text.\n", encoding="utf-8")
    given = ["preprocess", "--input", "größe.txt", "--vocab", "unitk-base-en", "--dest"]
    told = {}
    for encoding in ("utf-8", "latin-1", "ascii"):
        env = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
        for words in ([*given, encoding], ["preprocess", "--help"]):
            done = subprocess.run(
                [sys.executable, "-m", "unitk", *words], env=env, cwd=tmp_path, capture_output=True
            )
            assert not done.returncode and not done.stderr
            told.setdefault(encoding, []).append(done.stdout.decode(encoding))
        folder = tmp_path / encoding / "train"
        told[encoding].append(
            {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
        )
    assert told["utf-8"][2] == told["latin-1"][2] == told["ascii"][2]
    assert "ﬁ" in told["utf-8"][0] and "\\ufb01" in told["latin-1"][0]
    assert "\\u3002" in told["ascii"][1] and "。" in told["utf-8"][1]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_answers_are_written_as_they_are_or_not_at_all(encoding, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding, errors="backslashreplace", newline="\n")
    monkeypatch.setattr(sys, "stdout", stream)
    for text in ("plain", "schön", "ﬁne"):
        with suppress(UnicodeEncodeError):
            write([text], STDOUT, False)
    shown = stream.buffer.getvalue().decode(encoding)
    assert shown == ("plain\n" if encoding == "ascii" else "plain\nschön\n")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_verb_that_is_ended_leaves_nothing_half_written(tmp_path, name, code):
    """Whichever verb it is: the handler is that of the program."""
    program = f"""
import os, signal, time
from pathlib import Path
from unitk.files import create, new_file
from unitk_cli import main
def work(*_, **__):
    with new_file(Path({str(tmp_path / "out.txt")!r}), "--output") as part:
        create(part, "half")
        os.kill(os.getpid(), signal.{name})
        time.sleep(60)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
main.cli.main = work
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("where", ["Deaf()", "exec('Deaf.__del__(0)')"])
def test_a_signal_is_heard_wherever_it_comes(name, code, where):
    """Python drops what a handler raises in a destructor; a Ctrl-C in an exec ends it as such."""
    program = f"""
import signal, time
from unitk_cli import main
class Deaf:
    def __del__(self):
        signal.raise_signal(signal.{name})
def work(*_, **__):
    {where}
    time.sleep(20)
signal.signal(signal.SIGINT, signal.default_int_handler)
main.cli.main = work
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = "interrupted\n" if name == "SIGINT" else ""
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_waits_for_the_end_of_an_import(tmp_path, name, code):
    """Libraries drop what is raised while they import, and then lack what was to come."""
    module = f"""
import signal
try:
    signal.raise_signal(signal.{name})
except BaseException:
    raise AttributeError("a module that is half there")
"""
    (tmp_path / "library.py").write_text(module)
    program = f"""
import signal, sys, time
from unitk_cli import main
def work(*_, **__):
    import library
    time.sleep(20)
sys.path.append({str(tmp_path)!r})
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
main.cli.main = work
main.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = "interrupted\n" if name == "SIGINT" else ""
    assert (done.returncode, done.stderr) == (code, said)


def test_a_signal_while_modules_are_imported_ends_quietly():
    """A Ctrl-C right after Return comes before the verb is known."""
    program = """
import builtins, runpy, signal
real = builtins.__import__
def interrupted(name, *rest, **named):
    if name == "click":
        signal.raise_signal(signal.SIGINT)
    return real(name, *rest, **named)
builtins.__import__ = interrupted
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("unitk_cli", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
    # `python -m unitk` imports the package before it can guard anything
    program = "import sys, unitk; print(*(name for name in sys.modules if 'unitk' in name))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["unitk"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"unitk": f"{run_unitk.__module__}:{run_unitk.__name__}"}


@pytest.mark.slow
def test_a_start_never_searches_all_objects_for_garbage():
    program = """
import atexit, gc
from unitk_cli import run_unitk
from unitk_cli.main import main
atexit.register(lambda: print(gc.get_stats()[2]["collections"] - begun, gc.get_freeze_count()))
begun = gc.get_stats()[2]["collections"]
main()"""
    words = ["generate", "--checkpoint", "unitk-base-en", "--infill", "A [MASK].", "--max-len", "1"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    searches, kept = map(int, done.stdout.split()[-2:])
    assert searches == 0 and kept > 100_000  # those of PyTorch, at the end


def test_libraries_that_report_leaks_can_free_their_objects():
    """Triton's bindings count what is left at the end, which a frozen collector leaves."""
    program = """
import atexit, gc, sys
from unitk_cli.main import main
sys.modules["triton"] = sys
atexit.register(lambda: print(gc.get_freeze_count()))
main()"""
    words = [sys.executable, "-c", program, "list", "task"]
    assert subprocess.check_output(words, text=True).split()[-1] == "0"


@pytest.mark.slow
def test_quiet_leaves_warnings_and_errors(toy_data, tmp_path):
    words = (
        f"train --task lm --arch gpt2_tiny --blocks line --data {toy_data / 'text'} --max-steps 1"
    )
    said = {}
    for name, more in {
        "loud": "",
        "quiet": " --quiet",
        "warned": " --quiet --max-tokens 3",
    }.items():
        run = f"{words} --save-dir {tmp_path / name} --batch-tokens 200{more}"
        command = [sys.executable, "-m", "unitk_cli", *run.split()]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0
        said[name] = done.stderr
    assert "parameters" in said["loud"] and said["quiet"] == ""
    warned = said["warned"].splitlines()
    assert warned and all("above --max-tokens 3" in line for line in warned)
    command = [sys.executable, "-m", "unitk_cli", "train", "--quiet", "--task", "lmm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "lmm" in done.stderr


PROGRAM = """
import numpy as np, unitk
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
unitk.load("unitk-base-en").infill("The [MASK] sat.", max_len=2)
large, later = np.ones(1 << 24), bytearray(1 << 22)
before = resident()
del large
assert before - resident() > 100 << 20
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
def test_a_notebook_returns_what_it_frees():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


@pytest.mark.every(2)
@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_fault(tmp_path, streams):
    """Nothing that is written has the number of one of them, and the code is that of the work."""
    program = f'"{sys.executable}" -m unitk_cli'
    made = f'{program} show --task mlm "a b" --output "{tmp_path / "a.svg"}" {streams}'
    done = subprocess.run(made, shell=True, capture_output=True, text=True)
    assert not done.returncode and not done.stdout and "Traceback" not in done.stderr
    assert (tmp_path / "a.svg").read_text().rstrip().endswith("</svg>")


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("show --task mlm a_b --output a.svg", "a.svg"),
        ("show --task mlm a_b --output a.html", "a.html"),
        ("preprocess --input text.txt --vocab unitk-base-en --dest data", "data"),
    ],
)
def test_files_are_written_though_nobody_reads_what_is_printed(tmp_path, words, written):
    """`| head` may end before the first line, and a line is then printed at once or much later."""
    (tmp_path / "text.txt").write_text("a text\n")
    for unbuffered in ("1", ""):
        reading, writing = os.pipe()
        os.close(reading)
        env = os.environ | {"PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "unitk", *words.split()]
        done = subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, env=env, cwd=tmp_path, text=True
        )
        os.close(writing)
        assert not done.returncode and not done.stderr
        path = tmp_path / written
        path.rename(tmp_path / f"{written}{unbuffered or 0}")  # it is there


def test_an_output_that_cannot_be_spelled_is_one_line():
    """Nothing is written in other letters; log lines, which nobody reads by program, are."""
    command = [sys.executable, "-m", "unitk_cli", "show", "--task", "mlm", "b \u00fc"]
    given = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=given, capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.splitlines()) == 1 and "PYTHONIOENCODING=utf-8" in done.stderr


def test_options_of_all_verbs_may_precede_the_verb(tmp_path, monkeypatch, capsys):
    for words in (
        ["--quiet"],
        ["--cache-dir", str(tmp_path), "--quiet"],
        [f"--cache-dir={tmp_path}"],
    ):
        monkeypatch.setattr(os, "environ", dict(os.environ))
        monkeypatch.setattr(sys, "argv", ["unitk", *words, "list", "criterion"])
        main()
        assert "cross_entropy" in capsys.readouterr().out


def test_names_in_a_locale_without_utf8_are_one_line(tmp_path):
    """Python reads them as ASCII there; what is in a file is UTF-8 all the same."""
    env = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    (tmp_path / "größe.txt").write_text("schön\n", encoding="utf-8")
    (tmp_path / "plain.txt").write_text("schön\n", encoding="utf-8")
    said = []
    for name in ("größe.txt", "*.txt", "plain.txt"):
        line = ["preprocess", "--input", name, "--vocab", "unitk-base-en", "--dest", "d"]
        program = [sys.executable, "-m", "unitk_cli", *line]
        done = subprocess.run(program, cwd=tmp_path, env=os.environ | env, capture_output=True)
        said.append(done.stderr.decode())
    assert not said.pop() and all(line.count("\n") == 1 for line in said)
    assert all("ascii" in line and "PYTHONUTF8=1" in line for line in said)
