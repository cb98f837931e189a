"""`unitk launch`: write the file with which a cluster trains, or makes a corpus, and submit it.

    slurm       a script for sbatch: each task of srun is a rank; queued again before its time limit
    kubeflow    a TrainJob of Kubeflow Trainer v2, whose runtime torch-distributed starts torchrun
    skypilot    a managed job of SkyPilot, which comes back on another machine

What follows -- is `train` or, for Slurm, `preprocess` with --shards. A run is resumed
whenever it is started again, so `--resume` is added.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from unitk import files
from unitk.api.verb import Verb, find_verb, verb
from unitk.decoding.files.outputs import check_spelling
from unitk.errors import DataError, UsageError, require
from unitk.options.config import parse
from unitk.options.fields import Checked, Count, Positive, flag
from unitk.registry import register
from unitk.training.start import parse_train

PORT = 29500
SUBMIT = {
    "slurm": ("sbatch",),
    "kubeflow": ("kubectl", "create", "-f"),
    "skypilot": ("sky", "jobs", "launch", "--yes"),
}
"""Scheduler -> the command that takes its file."""
LIMIT = re.compile(r"(\d+-)?\d{1,2}:\d\d(:\d\d)?|\d+")
ONE = {"time": "slurm", "add": "slurm", "gpu_type": "skypilot", "image": "kubeflow"}
"""Option -> the one scheduler whose file has it."""
NAME = re.compile(r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Write the file with which Slurm, Kubeflow or SkyPilot trains a model on several machines.

    What follows -- is `train` with its options, or for Slurm `preprocess`.

    unitk launch slurm -- train --task lm --data d --save-dir r --max-steps 9
    unitk launch slurm --shards 9 -- preprocess --input f --vocab v --dest d
    """

    scheduler: Literal["slurm", "kubeflow", "skypilot"]
    """What the file is for; also the first word without a flag."""
    nodes: Positive = 1
    """Machines."""
    gpus: Count = 1
    """GPUs of each machine, with a process each. 0: one process on the CPU."""
    cpus: Positive = 4
    """Cores of each process."""
    time: str = "24:00:00"
    """Slurm: time limit of the job, in its form (minutes, HH:MM:SS or D-HH:MM:SS). The job is
    queued again five minutes before."""
    name: str = "unitk"
    """Name of the job: small letters, digits and hyphens."""
    shards: Positive | None = None
    """Slurm, for `preprocess`: jobs of an array that make a shard of the corpus each. A job after
    them merges them."""
    gpu_type: str = "H100"
    """SkyPilot: the accelerators."""
    image: str = "unitk"
    """Kubeflow: the image of the containers, which has unitk in it (`Dockerfile`)."""
    add: tuple[str, ...] = ()
    """Slurm: further options of sbatch, such as --add=--partition=gpu,--account=me."""
    output: Path | None = None
    """File to write. Default: it is printed."""
    overwrite: bool = False
    """Replace --output."""
    submit: bool = False
    """Submit the file that was written: sbatch, kubectl create, sky jobs launch."""

    def check(self) -> None:
        """Refuse what no scheduler takes."""
        fits = LIMIT.fullmatch(self.time) is not None
        require(fits, f"--time must be minutes, HH:MM:SS or D-HH:MM:SS, got {self.time!r}")
        require(
            NAME.fullmatch(self.name) is not None,
            f"--name must be small letters, digits and hyphens, got {self.name!r}",
        )
        for text in self.add:
            option = text.startswith("--") and "\n" not in text
            require(
                option, f"--add must be options of sbatch, such as --partition=gpu, got {text!r}"
            )
        for name, only in ONE.items():
            idle = self.scheduler != only and getattr(self, name) != getattr(Options, name)
            require(not idle, f"{flag(name)} has no effect but for {only}")
        require(not self.submit or self.output is not None, "--submit needs --output FILE")


def value(argv: Sequence[str]) -> str:
    """Write the file, and submit it if that is asked for; returns its text."""
    words = [*argv]
    at = words.index("--") if "--" in words else len(words)
    own_words = [*words[:at]]
    if own_words and not own_words[0].startswith("-"):
        own_words[0] = f"--scheduler={own_words[0]}"
    options: Options = parse("launch", Options, own_words).main
    options.check()
    verb_name = "train"
    job_words = [*words[at + 1 :]]
    if job_words and job_words[0] in ("train", "preprocess"):
        verb_name, *job_words = job_words
    named = job_words and not job_words[0].startswith("-")
    require(not named, f"what follows -- is train or preprocess, got {job_words[:1]}")
    check_command(options, verb_name, job_words)
    text = (
        RENDER[options.scheduler](options, job_words)
        if verb_name == "train"
        else array(options, job_words)
    )
    if options.output is not None:
        with files.new_file(options.output, "--output", replace=options.overwrite) as part:
            files.create(part, text)
        if options.submit:
            submit([*SUBMIT[options.scheduler], str(options.output)])
    return text


@register("verb", "launch")
@verb(
    Options,
    parses=True,
    after_dashes="train",
    value=value,
    example='(scheduler="slurm", gpus=8, '
    'train={"task": "lm", "data": "d", "save_dir": "r", "max_steps": 9})',
)
def run(argv: Sequence[str]) -> None:
    """Write the file; print it, or where it is."""
    text = value(argv)
    named = any(word.partition("=")[0] == "--output" for word in argv)
    print("" if named else check_spelling(text), end="")


def check_command(options: Options, verb_name: str, job_words: Sequence[str]) -> None:
    """Refuse here what the verb would refuse on the cluster, as far as it needs no data."""
    names = {word.partition("=")[0] for word in job_words}
    if verb_name == "preprocess":
        require(options.scheduler == "slurm", f"preprocess is for slurm, not {options.scheduler}")
        require(options.shards is not None, "preprocess needs --shards N before --")
        for name in ("--vocab", "--dest"):
            require(name in names, f"preprocess needs {name}, which all shards have in common")
        for name in ("nodes", "gpus"):
            idle = getattr(options, name) != getattr(Options, name)
            require(
                not idle, f"{flag(name)} has no effect on preprocess: --shards says how many jobs"
            )
        require("--shard" not in names, "--shard is added: --shards N says how many there are")
        parse_preprocess([*job_words, f"--shard=0/{options.shards}"])
        return
    require(options.shards is None, "--shards has no effect on train: it is for preprocess")
    require(
        "--nproc" not in names,
        "--nproc is for one machine; --nodes and --gpus say how many processes there are",
    )
    if job_words:  # of a script without options, these are given to it
        parse_train([word for word in job_words if word.partition("=")[0] != "--resume"])
    elif options.scheduler != "slurm":
        raise UsageError("launch needs a training after --: -- train --task lm --data DIR")


def parse_preprocess(words: Sequence[str]) -> Any:
    """The options of `unitk preprocess` that these words give."""
    preprocess = find_verb("preprocess")
    assert isinstance(preprocess, Verb)
    return preprocess.parsed(words, "preprocess").main


def submit(command: list[str]) -> None:
    """Run the scheduler's own command."""
    try:
        done = subprocess.run(command)
    except FileNotFoundError:
        raise DataError(
            f"--submit: there is no command {command[0]}; run it where {command[0]} is: "
            f"{shlex.join(command)}"
        ) from None
    if done.returncode:
        raise DataError(f"--submit: `{shlex.join(command)}` ended with code {done.returncode}")


def training_words(job_words: Sequence[str]) -> list[str]:
    """The words of a training that goes on where it was."""
    return ["train", "--resume", *(word for word in job_words if word != "--resume")]


def directives(options: Options, lines: Sequence[str]) -> str:
    """The beginning of a script for sbatch."""
    flags = [f"--job-name={options.name}", *lines, f"--time={options.time}", *options.add]
    return "#!/usr/bin/env bash\n" + "".join(f"#SBATCH {line}\n" for line in flags)


def slurm(options: Options, job_words: Sequence[str]) -> str:
    """A script for sbatch. Options that are given to it follow those of the training."""
    ranks = options.gpus or 1
    lines = [
        f"--nodes={options.nodes}",
        f"--ntasks-per-node={ranks}",
        f"--cpus-per-task={options.cpus}",
    ]
    if options.gpus:
        lines.append(f"--gpus-per-node={options.gpus}")
    lines += ["--requeue", "--open-mode=append", "--signal=B:USR1@300"]
    return directives(options, lines) + SCRIPT.format(words=shlex.join(training_words(job_words)))


SCRIPT = """\
# Written by `unitk launch slurm`. Options of this script are options of `unitk train`:
#
#   sbatch FILE [--task mlm --data data-bin/books --save-dir runs/mlm ...]
#
# Each task of srun is a rank. torchrun is not used: it would turn exit code 75 into 1.
# Slurm sends SIGUSR1 to this script 300 seconds before the limit. unitk saves, and exits with 75.
set -u
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
WORLD_SIZE=$SLURM_NTASKS
export MASTER_ADDR MASTER_PORT WORLD_SIZE
# since Slurm 22.05 srun does not take it from the job
export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
# a rank that has saved must not end those that still do: --kill-on-bad-exit=0
# shellcheck disable=SC2016  # each task expands its own numbers
srun --kill-on-bad-exit=0 bash -c '
  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID
  export LOCAL_WORLD_SIZE=$((WORLD_SIZE / SLURM_NNODES))
  exec unitk "$@"' rank {words} "$@" &
child=$!
trap 'kill -USR1 $child' USR1
wait $child
code=$?
while kill -0 $child 2>/dev/null; do # the signal ended wait, not the training
  wait $child
  code=$?
done
[ $code != 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit $code
"""


def array(options: Options, job_words: Sequence[str]) -> str:
    """A script for sbatch whose jobs make a shard of a corpus each; another one merges them."""
    dest = str(parse_preprocess(job_words).dest)
    words = list[str]()
    skip = False
    for word in job_words:  # --dest is that of each shard
        if not skip and word.partition("=")[0] != "--dest":
            words.append(word)
        skip = not skip and word == "--dest"
    assert options.shards is not None
    parts = [f"{dest}.shards/{number}" for number in range(options.shards)]
    lines = [f"--array=0-{options.shards - 1}", "--ntasks=1", f"--cpus-per-task={options.cpus}"]
    job_words = shlex.join([*words, f"--workers={options.cpus}", "--overwrite"])
    return directives(options, [*lines, "--requeue", "--open-mode=append"]) + ARRAY.format(
        shards=options.shards,
        words=job_words,
        part=shlex.quote(f"{dest}.shards"),
        merge=shlex.quote(shlex.join(["unitk", "merge", *parts, "--dest", dest])),
        name=options.name,
        time=options.time,
    )


ARRAY = """\
# Written by `unitk launch slurm`. Each job of the array makes a shard; the first one submits the
# job that merges them when all are made.
set -u
if [ "$SLURM_ARRAY_TASK_ID" = 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
  sbatch --job-name={name}-merge --time={time} --dependency="afterok:$SLURM_ARRAY_JOB_ID" \\
    --wrap={merge}
fi
exec unitk preprocess {words} --shard="$SLURM_ARRAY_TASK_ID/{shards}" \\
  --dest={part}/"$SLURM_ARRAY_TASK_ID"
"""


def kubeflow(options: Options, job_words: Sequence[str]) -> str:
    """A TrainJob; the runtime gives torchrun its numbers by PET_NNODES and the like."""
    ranks = options.gpus or 1
    limits: dict[str, Any] = {"cpu": ranks * options.cpus}
    if options.gpus:
        limits["nvidia.com/gpu"] = options.gpus
    trainer = {
        "image": options.image,
        "numNodes": options.nodes,
        "numProcPerNode": ranks,
        "resourcesPerNode": {"requests": dict(limits), "limits": dict(limits)},
        "command": ["torchrun", "--max-restarts=10", "-m", "unitk_cli"],
        "args": training_words(job_words),
        "env": [{"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"}],
    }
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": options.name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer},
    }
    comment = (
        "# Written by `unitk launch kubeflow`. --save-dir and --data are paths in the containers\n"
    )
    comment += "# (a volume of the runtime), or addresses such as s3://bucket/run.\n"
    return comment + yaml.safe_dump(job, sort_keys=False, width=1000)


def skypilot(options: Options, job_words: Sequence[str]) -> str:
    """A managed job: one that lost its machines comes back, and resumes its run."""
    ranks = str(options.gpus) if options.gpus else "1"
    recovery = {"max_restarts_on_errors": 3, "recover_on_exit_codes": [143]}
    resources: dict[str, Any] = {"use_spot": True, "job_recovery": recovery}
    if options.gpus:
        resources["accelerators"] = f"{options.gpu_type}:{options.gpus}"
    resources["cpus"] = f"{max(options.gpus, 1) * options.cpus}+"
    job = {
        "name": options.name,
        "num_nodes": options.nodes,
        "resources": resources,
        "envs": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        "setup": "pip install 'unitk[remote]' s3fs\n",
        "run": RUN.format(ranks=ranks, port=PORT, words=shlex.join(training_words(job_words))),
    }
    comment = "# Written by `unitk launch skypilot`. A machine that comes back has an empty disk:\n"
    comment += (
        "# --save-dir and --data are addresses such as s3://bucket/run, or mounted buckets.\n"
    )
    yaml.SafeDumper.add_representer(Script, Script.dump)
    job |= {name: Script(job[name]) for name in ("setup", "run")}
    return comment + yaml.safe_dump(job, sort_keys=False, width=1000)


class Script(str):
    """A text of several lines, which YAML shows as such."""

    @staticmethod
    def dump(dumper: yaml.SafeDumper, text: Script) -> yaml.ScalarNode:
        """Write a script as a block of lines."""
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


RUN = """\
torchrun --nnodes="$SKYPILOT_NUM_NODES" --node-rank="$SKYPILOT_NODE_RANK" \\
  --nproc-per-node={ranks} --max-restarts=10 \\
  --master-addr="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)" --master-port={port} \\
  -m unitk_cli {words}
"""
RENDER = {"slurm": slurm, "kubeflow": kubeflow, "skypilot": skypilot}
"""Scheduler -> what writes its file for a training."""
