"""Files for clusters: what they say, and runs with the variables that the launchers set."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from unitk.errors import DataError, UsageError
from unitk.runs.launch import value

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ["--", "train", "--task", "lm", "--data", "d", "--save-dir", "r s", "--max-steps", "9"]
ARRAY = ["--", "preprocess", "--input", "a b", "--vocab", "v", "--dest", "out d"]


def launched(text):
    return value([*text.split(), *TRAIN])


def test_the_recipe_is_what_launch_writes():
    written = value(["slurm", "--gpus", "8", "--", "train"])
    assert (ROOT / "recipes" / "slurm.sh").read_text() == written


def test_slurm_has_a_task_for_each_gpu():
    text = launched(
        "slurm --nodes 3 --gpus 4 --cpus 7 --time 2-10:00:00 --add=--partition=a,--qos=b"
    )
    head = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    wanted = ["--nodes=3", "--ntasks-per-node=4", "--gpus-per-node=4", "--cpus-per-task=7"]
    wanted += ["--time=2-10:00:00", "--partition=a", "--qos=b", "--requeue"]
    assert {f"#SBATCH {one}" for one in wanted} <= {*head}
    assert "train --resume --task lm --data d --save-dir 'r s' --max-steps 9 \"$@\"" in text


def test_a_train_job():
    job = yaml.safe_load(launched("kubeflow --nodes 2 --gpus 8 --name a-b --image me/unitk"))
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["metadata"] == {"name": "a-b"}
    assert job["spec"]["runtimeRef"] == {"name": "torch-distributed"}
    trainer = job["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"], trainer["image"]) == (2, 8, "me/unitk")
    assert trainer["resourcesPerNode"]["limits"] == {"cpu": 32, "nvidia.com/gpu": 8}
    assert trainer["command"][0] == "torchrun" and trainer["args"][:2] == ["train", "--resume"]
    assert trainer["args"][2:] == TRAIN[2:]


def test_a_task_of_skypilot():
    text = launched("skypilot --nodes 2 --gpus 8 --gpu-type A100")
    job = yaml.safe_load(text)
    assert job["num_nodes"] == 2 and job["resources"]["accelerators"] == "A100:8"
    words = shlex.split(job["run"])
    assert words[words.index("-m") + 1 :][:3] == ["unitk_cli", "train", "--resume"]
    assert words[-len(TRAIN[2:]) :] == TRAIN[2:]
    schemas = pytest.importorskip("sky.utils.schemas")
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(job, schemas.get_task_schema())
    jsonschema.validate(job["resources"], schemas.get_resources_schema())


def test_scripts_have_no_faults(tmp_path):
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    for number, words in enumerate(
        (["slurm", *TRAIN], ["slurm", "--shards", "3", *ARRAY], ["skypilot", *TRAIN])
    ):
        path, text = tmp_path / f"{number}.sh", value(words)
        if "skypilot" in words:
            text = "#!/bin/bash\n" + yaml.safe_load(text)["run"]
        path.write_text(text)
        assert not subprocess.run(["shellcheck", path], capture_output=True, text=True).stdout


def test_an_array_makes_the_shards_and_merges_them(tmp_path):
    words = [*ARRAY[:2], "--input", "a b", "--vocab", "v", "--dest=out d"]
    for given in (ARRAY, words):
        script = tmp_path / "job.sh"
        script.write_text(value(["slurm", "--shards", "2", "--name", "n", *given]))
        for name in ("unitk", "sbatch"):
            program = tmp_path / name
            program.write_text(
                f'#!/bin/sh\nfor one; do echo "$one" >> {tmp_path}/said-{name}; done\n'
            )
            program.chmod(0o755)
        for number in ("0", "1"):
            env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_JOB_ID": "7"}
            env |= {"SLURM_ARRAY_TASK_ID": number}
            subprocess.run(["bash", script], env=env, check=True)
        made = (tmp_path / "said-unitk").read_text().splitlines()
        assert made.count("--shard=0/2") == made.count("--shard=1/2") == 1
        assert {"--dest=out d.shards/0", "--dest=out d.shards/1", "a b"} <= {*made}
        merge = (tmp_path / "said-sbatch").read_text().splitlines()
        assert "--dependency=afterok:7" in merge
        wrapped = shlex.split(merge[-1].removeprefix("--wrap="))
        parts = ["out d.shards/0", "out d.shards/1"]
        assert wrapped == ["unitk", "merge", *parts, "--dest", "out d"]
        for name in ("said-unitk", "said-sbatch"):
            (tmp_path / name).unlink()


@pytest.mark.parametrize(
    "text, named",
    [
        ("slurm --time tomorrow", "--time .*'tomorrow'"),
        ("slurm --name A_b", "--name .*'A_b'"),
        ("slurm --add=partition", "--add .*'partition'"),
        ("kubeflow --add=--x", "--add .*slurm"),
        ("skypilot --time 9", "--time .*slurm"),
        ("slurm --image x", "--image .*kubeflow"),
        ("kubeflow --gpu-type A100", "--gpu-type .*skypilot"),
        ("slurm --submit", "--submit .*--output"),
        ("slurm --shards 2", "--shards .*preprocess"),
        ("pbs", "--scheduler .*slurm, kubeflow, skypilot"),
        ("slurm --nodes 0", "--nodes .*1"),
    ],
)
def test_mistakes_are_refused(text, named):
    with pytest.raises(UsageError, match=named):
        launched(text)


def test_mistakes_after_the_dashes_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--nproc .*--gpus"):
        value(["slurm", *TRAIN, "--nproc", "2"])
    with pytest.raises(UsageError, match="--max-stepz.*--max-steps"):
        value(["slurm", *TRAIN, "--max-stepz", "2"])
    with pytest.raises(UsageError, match="--shards N"):
        value(["slurm", *ARRAY])
    with pytest.raises(UsageError, match="--vocab"):
        value(["slurm", "--shards", "2", *ARRAY[:4], *ARRAY[6:]])
    for name in ("gpus", "nodes"):
        with pytest.raises(UsageError, match=f"--{name} .*preprocess"):
            value(["slurm", "--shards=2", f"--{name}=2", *ARRAY])
    with pytest.raises(UsageError, match="preprocess, got .*generate"):
        value(["slurm", "--", "generate", "--beam", "2"])
    with pytest.raises(UsageError, match="-- train"):
        value(["kubeflow"])
    output = tmp_path / "job.sh"
    value(["slurm", f"--output={output}", *TRAIN])
    with pytest.raises(UsageError, match="--overwrite"):
        value(["slurm", f"--output={output}", *TRAIN])


def test_submit_calls_the_tool(tmp_path, monkeypatch):
    output = tmp_path / "job.sh"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=f"sbatch.*sbatch {output}"):
        value(["slurm", "--submit", f"--output={output}", *TRAIN])
    (tmp_path / "sbatch").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said\n')
    (tmp_path / "sbatch").chmod(0o755)
    value(["slurm", "--submit", "--overwrite", f"--output={output}", *TRAIN])
    assert (tmp_path / "said").read_text() == f"{output}\n"


SRUN = """\
#!/bin/bash
shift
pids=()
trap 'kill -USR1 "${pids[@]}"' USR1
for ((i = 0; i < SLURM_NTASKS; i++)); do
  SLURM_PROCID=$i SLURM_LOCALID=$((i % (SLURM_NTASKS / SLURM_NNODES))) "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do
  while :; do
    wait "$pid"
    one=$?
    kill -0 "$pid" 2>/dev/null || break
  done
  ((one > code)) && code=$one
done
exit "$code"
"""
"""What srun does, on one machine."""


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(scheduler, nodes, words, folder):
    """The processes of the machines of a job, all of them here."""
    own = [scheduler, "--nodes", str(nodes), "--gpus", "2", "--", "train", *words]
    text, path = value(own), f"{folder / 'bin'}:{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(ROOT)
    env.pop("UNITK_REPORT", None)
    script, number = folder / "job.sh", str(port())
    if scheduler == "slurm":
        script.write_text(text)
        env |= {"SLURM_JOB_ID": number, "SLURM_NTASKS": str(2 * nodes), "SLURM_NNODES": str(nodes)}
        env |= {"SLURM_JOB_NODELIST": "here", "SLURM_CPUS_PER_TASK": "1"}
        each = [["bash", str(script)]]
        more = [{}]
    elif scheduler == "kubeflow":
        trainer = yaml.safe_load(text)["spec"]["trainer"]
        command = [*trainer["command"], *trainer["args"]]
        command[0:1] = [sys.executable, "-m", "torch.distributed.run"]
        each, more = [command] * nodes, [{"PET_NODE_RANK": str(one)} for one in range(nodes)]
        env |= {"PET_NNODES": str(nodes), "PET_NPROC_PER_NODE": "2"}
        env |= {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": number}
        env |= {one["name"]: one["value"] for one in trainer["env"]}
    else:
        job = yaml.safe_load(text)
        script.write_text(job["run"].replace("--master-port=29500", f"--master-port={number}"))
        each = [["bash", str(script)]] * nodes
        more = [{"SKYPILOT_NODE_RANK": str(one)} for one in range(nodes)]
        env |= {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2"}
        env |= job["envs"]
    with (folder / "log.txt").open("ab") as log:
        return [
            subprocess.Popen(
                one, env=env | own, stdout=log, stderr=log, start_new_session=True, cwd=folder
            )
            for one, own in zip(each, more, strict=True)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("scheduler", ["slurm", "kubeflow", "skypilot"])
def test_a_job_that_is_killed_and_queued_again(scheduler, nodes, toy_data, tmp_path):
    (tmp_path / "bin").mkdir()
    programs = {"srun": SRUN, "scontrol": '#!/bin/sh\n[ "$1" = show ] && echo 127.0.0.1\n'}
    programs["scontrol"] += '[ "$1" != requeue ] || touch requeued\n'
    programs["unitk"] = f'#!/bin/sh\nexec {sys.executable} -m unitk_cli "$@"\n'
    programs["torchrun"] = f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n'
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    words = f"--task lm --arch gpt2_tiny --data {toy_data / 'text'} --valid none --device cpu"
    words += " --threads 1 --max-steps 30 --save-every 5 --log-every 1 --block-size 32"
    words += " --max-tokens 128 --batch-tokens 512 --writers none --save-dir"
    for run in ("whole", "killed"):
        log, ended = tmp_path / run / "log.jsonl", run == "whole"
        while True:
            jobs = start(scheduler, nodes, [*words.split(), str(tmp_path / run)], tmp_path)
            while not ended and all(job.poll() is None for job in jobs):
                if log.exists() and log.read_bytes().count(b"\n") >= 8:
                    for job in jobs:
                        if scheduler == "slurm":
                            job.send_signal(signal.SIGUSR1)
                        else:
                            os.killpg(job.pid, signal.SIGKILL)
                    break
                time.sleep(0.02)
            codes = [job.wait(300) for job in jobs]
            if ended:
                break
            assert codes == ([75] if scheduler == "slurm" else [-signal.SIGKILL] * nodes)
            assert (tmp_path / "requeued").exists() == (scheduler == "slurm")
            ended = True
            if scheduler != "slurm":
                time.sleep(1)  # ranks of torchrun end after it
        assert codes == [0] * len(jobs), (tmp_path / "log.txt").read_text()[-3000:]
    one, other = (
        (tmp_path / run / "checkpoints" / "step-30" / "model.safetensors").read_bytes()
        for run in ("whole", "killed")
    )
    assert one == other
