"""`recipes/slurm.sh` with stand-ins for Slurm's commands and for unitk."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "slurm.sh"
PROGRAMS = {
    "srun": 'echo "$SRUN_CPUS_PER_TASK" > cores; echo "$1" > srun; shift\n'
    'export SLURM_PROCID=0 SLURM_LOCALID=0; exec "$@"',
    "scontrol": '[ "$1" = show ] && echo node-1 || echo "$@" >> requeued',
    # as unitk does: finish the update, save, and exit with 75
    "unitk": 'trap "sleep 0.3; touch saved; exit 75" USR1\n'
    'echo "$@" > options; env > env; touch started\n'
    'for _ in $(seq 300); do [ -e done ] && exit "$(cat done)"; sleep 0.1; done',
}


@pytest.fixture
def job(tmp_path):
    """The script, started in a folder whose `bin` has the stand-ins."""
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    env |= {"SLURM_JOB_ID": "17", "SLURM_CPUS_PER_TASK": "32", "SLURM_NTASKS": "1"}
    env |= {"SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_NNODES": "1"}
    words = ["bash", str(SCRIPT), "--task", "lm", "--save-dir", "a b"]
    process = subprocess.Popen(words, cwd=tmp_path, env=env)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    yield process
    process.kill()


def test_the_signal_before_the_limit_saves_and_requeues(job, tmp_path):
    job.send_signal(signal.SIGUSR1)
    assert job.wait(20) == 75
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "requeued").read_text() == "requeue 17\n"
    assert (tmp_path / "options").read_text() == "train --resume --task lm --save-dir a b\n"
    assert (tmp_path / "cores").read_text() == "32\n"
    assert (tmp_path / "srun").read_text() == "--kill-on-bad-exit=0\n"
    env = {*(tmp_path / "env").read_text().splitlines()}
    assert {"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=node-1"} <= env


@pytest.mark.parametrize("code", [0, 5])
def test_a_job_that_ends_by_itself_is_not_requeued(job, tmp_path, code):
    (tmp_path / "new").write_text(str(code))
    (tmp_path / "new").rename(tmp_path / "done")
    assert job.wait(20) == code
    assert not (tmp_path / "requeued").exists()
