"""The processes of `--nproc`: how they meet, how they end, and whose message is printed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unitk.errors import UsageError
from unitk.verbs import train
from unitk.verbs.train import (
    check_processes,
    conclude,
    received_signals,
    variables,
    watch_processes,
)

HOOK = """
import os, sys
def note(event, arguments):
    if event == "pickle.find_class":
        with open(os.environ["FOUND"], "a") as file:
            print(*arguments, file=file)
sys.addaudithook(note)
"""


def shell(*lines):
    """A process for each line of shell."""
    return [subprocess.Popen(["bash", "-c", line], start_new_session=True) for line in lines]


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        (("exit 0", "exit 0"), None, ""),
        (("sleep 60", "exit 3"), 3, "what rank 1 says\n"),
        (("exit 6", "sleep 0.3; exit 5"), 5, "what rank 1 says\n"),
        (("exit 6", "exit 6"), 6, "what rank 0 says\n"),
        (("exit 6", "sleep 0.3; kill -9 $$"), 137, "rank 1 was ended by SIGKILL"),
        (("trap '' TERM; sleep 60", "kill -SEGV $$"), 139, "rank 1 was ended by SIGSEGV"),
        (("exit 75", "exit 75"), 75, "what rank 0 says\n"),
    ],
)
def test_the_cause_is_printed_and_all_processes_end(
    lines, code, said, monkeypatch, tmp_path, capfd
):
    monkeypatch.setattr(train, "GRACE", 0.5)
    for rank in range(2):
        if "kill" not in lines[rank]:
            (tmp_path / f"report-{rank}").write_text(f"what rank {rank} says\n")
    children = shell(*lines)
    codes = watch_processes(children, [], 0.5)
    assert all(child.returncode is not None for child in children)
    if code is None:
        conclude(codes, [], tmp_path)
    else:
        with pytest.raises(SystemExit) as exit:
            conclude(codes, [], tmp_path)
        assert exit.value.code == code
    err = capfd.readouterr().err
    assert said in err and err.count("\n") == bool(said)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGUSR1", 75)])
def test_signals_are_passed_on(name, code, tmp_path, capfd):
    line = f"trap 'touch {tmp_path}/$$; exit {code}' {name[3:]}; touch {tmp_path}/up-$$;"
    line += " while true; do sleep 0.05; done"
    # a background job of a shell ignores it, and so would the children
    signal.signal(signal.SIGINT, signal.default_int_handler)
    children = shell(line, line)
    while len([*tmp_path.glob("up-*")]) < 2:
        time.sleep(0.02)
    with received_signals() as received:
        os.kill(os.getpid(), getattr(signal, name))
        codes = watch_processes(children, received, 60)
    assert {path.name for path in tmp_path.glob("[0-9]*")} == {str(c.pid) for c in children}
    with pytest.raises(SystemExit) as exit:
        conclude(codes, received, tmp_path)
    assert exit.value.code == code
    assert name in capfd.readouterr().err


def test_a_stopped_process_saves_and_ends_as_the_others(tmp_path):
    """Whether a signal comes, or another process fails."""
    stops = f"trap 'touch {tmp_path}/$$; exit 143' TERM; kill -STOP $$"
    for received, others in (([signal.SIGTERM], ["sleep 60"]), ([], ["exit 3"])):
        child, *_ = children = shell(stops, *others)
        while Path(f"/proc/{child.pid}/stat").read_text().split()[2] != "T":
            time.sleep(0.02)
        begun = time.monotonic()
        watch_processes(children, received, 60)
        assert child.returncode == 143 and (tmp_path / str(child.pid)).exists()
        assert time.monotonic() < begun + 30


def test_what_does_not_heed_a_signal_is_killed(tmp_path, capfd):
    children = shell("trap '' TERM; sleep 60")
    time.sleep(0.3)
    with received_signals() as received:
        os.kill(os.getpid(), signal.SIGTERM)
        codes = watch_processes(children, received, 0.2)
    with pytest.raises(SystemExit) as exit:
        conclude(codes, received, tmp_path)
    assert exit.value.code == 137  # nothing was saved
    assert "rank 0 was ended by SIGKILL" in capfd.readouterr().err


def test_more_processes_than_memory_are_refused_and_than_cores_warned_of(caplog):
    with pytest.raises(UsageError, match=r"--nproc 100000 needs.*GB of memory"):
        check_processes(100_000)
    cores = len(os.sched_getaffinity(0))
    check_processes(cores)
    assert not caplog.text
    check_processes(cores + 1)
    assert re.search(rf"--nproc {cores + 1}: .* cores \({cores}\)", caplog.text)


def test_ranks_speak_over_loopback_only(tmp_path):
    found = variables(1, 4, tmp_path)
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"]) == ("1", "1", "4")
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == train.LOOPBACK["linux"]


def listening(pids):
    """The addresses, in hexadecimal, on which these processes listen."""
    own = set()
    for pid in pids:
        for path in Path(f"/proc/{pid}/fd").iterdir():
            try:
                own.add(os.readlink(path))
            except OSError:  # closed meanwhile
                continue
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = row.split()[:10]
            if f"socket:[{inode}]" in own and (state == "0A" or table.startswith("udp")):
                found.append(address.partition(":")[0])
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("more", ["", "--shard"])
def test_no_address_but_loopback_listens_and_nothing_is_unpickled(toy_data, tmp_path, more):
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", os.getcwd())])
    words = f"train --task lm --arch gpt2_tiny --data {toy_data / 'text'} --save-dir {tmp_path}/run"
    words += " --max-steps 1000000 --max-tokens 200 --blocks line --block-size 32 --device cpu"
    words += f" --nproc 2 --writers none --valid none --save-every 20 --rank-timeout 60 {more}"
    command = [sys.executable, "-m", "unitk_cli", *words.split()]
    env = {**os.environ, "PYTHONPATH": path, "FOUND": str(tmp_path / "found")}
    run = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run" / "checkpoints" / "step-20").exists():
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.1)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    assert len(children) == 2
    listens = listening([run.pid, *children])
    assert set(listens) <= {"0100007F", "00000000000000000000000001000000"}
    assert len(listens) >= 2  # gloo's: the table was read right
    assert "libtorch" not in Path(f"/proc/{run.pid}/maps").read_text()
    os.kill(int(children[1]), signal.SIGKILL)
    last = run.communicate(timeout=60)[1].splitlines()[-1]
    assert run.returncode == 137 and "rank 1 was ended by SIGKILL" in last
    assert not (tmp_path / "found").exists(), (tmp_path / "found").read_text()
