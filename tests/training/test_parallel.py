"""Several processes are one run: the same examples, losses and weights as in one process."""

import json
import os
import signal
import time
from datetime import timedelta
from functools import partial

import entity_files
import numpy as np
import pytest
import torch
from ranks import exit_codes, run_ranks, start_forks
from safetensors.torch import load_file

from unitk.errors import UsageError
from unitk.models.model import build
from unitk.registry import get, names
from unitk.training import loop
from unitk.training.config import MEETING
from unitk.training.parallel import BUCKET, Group, Ranks, group_tensors, join_processes

BASE = (
    "--arch.dropout 0.1 --blocks line --block-size 64 --max-tokens 270 --batch-tokens 1000"
    " --precision fp32 --log-every 1 --lr 1e-2 --writers none --rank-timeout 30 --threads 1"
)


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What an optimizer imports late, so that forks start at once."""
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])


@pytest.fixture
def words(toy_data):
    """`words("pmlm", "--max-steps 3", run)` -> the options of a run; "pmlm ARCH" names that too."""

    def make(task, more, run, data="text"):
        task, _, arch = task.partition(" ")
        tiny = {"mass": "mass_tiny", "glm_infill": "glm_tiny", "optimus": "optimus_tiny"}
        arch = arch or tiny.get(task, "unilm2_tiny")
        return (
            f"--task {task} --arch {arch} --data {toy_data / data} --save-dir {run} {BASE} {more}"
        )

    return make


def curve(run, value="train/loss"):
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [event[value] for event in events if value in event]


def state(run):
    return json.loads((run / "last" / "state.json").read_text())


def check_same_run(one, other, exactly=("lr", "tokens", "texts", "epoch")):
    for value in exactly:
        assert curve(one, value) == curve(other, value), value
    for value in ("train/loss", "valid/loss"):
        assert curve(one, value) == pytest.approx(curve(other, value), rel=1.5e-5, abs=1.5e-5), (
            value
        )
    assert curve(one, "gnorm") == pytest.approx(curve(other, "gnorm"), rel=1e-5)
    a, b = (load_file(run / "last" / "model.safetensors") for run in (one, other))
    assert a.keys() == b.keys()
    # Adam divides by the root of what may be tiny: rounding shows more in weights than in losses
    assert max(float((a[name] - b[name]).abs().max()) for name in a) < 1e-3


@pytest.mark.parametrize(
    "task",
    [
        "glm_infill",
        pytest.param("mass", marks=pytest.mark.slow),
        pytest.param("glm_infill modern_tiny", marks=pytest.mark.slow),
        pytest.param("glm_infill gemma3_tiny", marks=pytest.mark.slow),
    ],
)
def test_two_ranks_are_one_run(words, toy_data, tmp_path, task):
    more = f"--max-steps 8 --valid {toy_data / 'text'} --valid-every 3"
    for world in (1, 2):
        assert set(run_ranks(words(task, more, tmp_path / str(world)), world)) == {0}
    check_same_run(tmp_path / "1", tmp_path / "2")
    assert {name: state(tmp_path / "1")[name] for name in ("epoch", "cursor", "texts")} == {
        name: state(tmp_path / "2")[name] for name in ("epoch", "cursor", "texts")
    }


@pytest.mark.slow
def test_a_share_that_is_a_schedule_on_two_ranks(words, tmp_path):
    """The same run on one rank, and bit for bit after a stop in the midst of an epoch."""
    more = "--max-steps 5 --task.mask-ratio linear:value=0.3,floor=0.1"
    one, two, again = (tmp_path / name for name in ("1", "2", "3"))
    assert run_ranks(words("glm_infill", more, one), 1) == [0]
    assert run_ranks(words("glm_infill", more, two), 2) == [0, 0]
    check_same_run(one, two)
    assert run_ranks(words("glm_infill", more, again), 2, partial(stop_at, 2)) == [143, 143]
    assert run_ranks(words("glm_infill", f"{more} --resume", again), 2) == [0, 0]
    assert curve(two) == curve(again)
    a, b = (load_file(run / "last" / "model.safetensors") for run in (two, again))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        *("glm_infill", "mass", "optimus", "glm_infill modern_tiny", "glm_infill gemma3_tiny"),
        # what starts at zero has gradients near zero, by whose roots Adam divides
        "mass modern_encdec_tiny --arch.zero-init off",
    ],
)
def test_shards_are_one_run(words, toy_data, tmp_path, task):
    more = f"--max-steps 8 --valid {toy_data / 'text'} --valid-every 3"
    alone, shards = tmp_path / "1", tmp_path / "2"
    assert run_ranks(words(task, more, alone), 1) == [0]
    assert run_ranks(words(task, f"{more} --shard", shards), 2, partial(stop_at, 5)) == [143, 143]
    # any number of ranks, with or without shards, goes on from the same folder
    again = f"{more} --shard --resume"
    assert run_ranks(words(task, again, shards), 2, partial(stop_at, 7)) == [143, 143]
    assert run_ranks(words(task, f"{more} --resume", shards), 1) == [0]
    check_same_run(alone, shards)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        "ernie2 ernie2_tiny --task.learning multitask",  # a rank's texts ask some of the heads
        "mlm bert_tiny --task.nsp on --arch.head-layers 0,1,2",
        "albert albert_tiny",
        "albert albert_tiny --arch.num-layers 4 --arch.layer-groups 2 --arch.layer-share ffn",
        "thu_ernie thu_ernie_tiny",
        "electra electra_tiny",
    ],
)
def test_shards_of_other_heads_and_layers_are_the_whole_run(words, tmp_path, toy_vocab, task):
    more = "--max-steps 4 --arch.dropout 0 --valid none"
    if task.startswith("thu"):
        given = entity_files.write_entities(tmp_path / "given", toy_vocab)
        more += "".join(f" --task.{name} {value}" for name, value in given.items())
    for name, how in (("whole", ""), ("shards", "--shard")):
        own = words(task, f"{more} {how}", tmp_path / name).replace("--blocks line", "")
        assert run_ranks(own.replace("--arch.dropout 0.1", ""), 2) == [0, 0]
    check_same_run(tmp_path / "whole", tmp_path / "shards")


@pytest.mark.parametrize("arch", [name for name in names("arch") if name.endswith("_tiny")])
def test_networks_have_the_methods_that_shards_gather_weights_for(arch):
    with torch.device("meta"):
        model = build(get("arch", arch)(), 50)
    assert all(callable(getattr(model, method, None)) for method in model.beside_forward)


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["", "--shard"])
def test_a_plan_on_two_ranks_is_one_run(words, tmp_path, shard):
    """Stopped in the middle of thawing; of the frozen part no rank has gradients."""
    more = "--max-steps 8 --thaw 3 --freeze layers.0.ffn.* --optimizer.layer-decay 0.5"
    assert run_ranks(words("glm_infill", more, tmp_path / "1"), 1) == [0]
    two = words("glm_infill", f"{more} {shard}", tmp_path / "2")
    assert run_ranks(two, 2, partial(stop_at, 4)) == [143, 143]
    assert run_ranks(f"{two} --resume", 2) == [0, 0]
    check_same_run(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["", "--shard"])
@pytest.mark.parametrize("optimizer", ["muon --optimizer.precision fp32", "lamb"])
def test_an_optimizer_of_whole_matrices_has_them_on_two_ranks(words, tmp_path, optimizer, shard):
    more = f"--max-steps 8 --optimizer {optimizer}"
    assert run_ranks(words("mass", more, tmp_path / "1"), 1) == [0]
    two = words("mass", f"{more} {shard}", tmp_path / "2")
    assert run_ranks(two, 2, partial(stop_at, 4)) == [143, 143]
    assert run_ranks(f"{two} --resume", 2) == [0, 0]
    check_same_run(tmp_path / "1", tmp_path / "2")


@pytest.mark.slow
def test_ranks_may_change_when_a_run_is_resumed(words, tmp_path):
    assert run_ranks(words("glm_infill", "--max-steps 9", tmp_path / "whole"), 1) == [0]
    again = words("glm_infill", "--max-steps 9 --resume", tmp_path / "run")
    for world, steps in ((1, 3), (2, 6), (1, 99)):
        codes = run_ranks(again, world, partial(stop_at, steps))
        assert set(codes) == ({143} if steps < 9 else {0})
    check_same_run(tmp_path / "whole", tmp_path / "run")


def stop_at(step, rank, wanted=None):
    """SIGTERM to this process (if it is the wanted rank) after an update."""
    if wanted is not None and rank != wanted:
        return
    update = loop.Trainer.update

    def counted(self, one):
        update(self, one)
        if self.progress.step + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)

    loop.Trainer.update = counted


def test_a_signal_to_one_rank_stops_all(words, tmp_path):
    run, stop = tmp_path / "run", partial(stop_at, 4, wanted=1)
    assert run_ranks(words("glm_infill", "--max-steps 9", run), 2, stop) == [143, 143]
    assert state(run)["step"] == 4


@pytest.mark.slow
def test_a_rank_that_dies_is_told(words, tmp_path, capfd):
    def die(rank):
        def update(self, one):
            os._exit(9)

        if rank == 1:
            loop.Trainer.update = update

    assert run_ranks(words("glm_infill", "--max-steps 9", tmp_path / "run"), 2, die) == [6, 9]
    assert "rank 0 of 2: another rank" in capfd.readouterr().err


@pytest.mark.slow
def test_a_rank_that_hangs_is_told(words, tmp_path, capfd):
    def hang(rank):
        def update(self, one):
            import time

            time.sleep(4)

        if rank == 1:
            loop.Trainer.update = update

    line = words("glm_infill", "--max-steps 9", tmp_path / "run").replace("out 30", "out 1")
    assert run_ranks(line, 2, hang)[0] == 6
    assert "within 1 s (--rank-timeout)" in capfd.readouterr().err


def test_ranks_with_other_options_do_not_start(words, tmp_path, capfd):
    def other(rank):
        if rank == 1:
            os.environ["MASTER_ADDR"] = "localhost"
            check = Group.check_same
            Group.check_same = lambda self, what: check(self, what + " --lr 2")

    assert run_ranks(words("glm_infill", "--max-steps 9", tmp_path / "run"), 2, other) == [6, 6]
    assert "other options" in capfd.readouterr().err
    assert not (tmp_path / "run").exists()


def test_buckets_hold_every_tensor_once():
    sizes = [3, 10 * BUCKET // 4, 5, BUCKET // 8, BUCKET // 8, 7]
    tensors = [torch.empty(size, device="meta") for size in sizes]
    found = group_tensors(tensors)
    assert [tensor.numel() for bucket in found for tensor in bucket] == sizes
    assert all(len(b) == 1 or sum(t.numel() * 4 for t in b) <= BUCKET for b in found)


def test_one_process_needs_no_launcher(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join_processes() == Ranks() and join_processes().leads
    assert join_processes().all_reduce_max(3, 4.5) == [
        3,
        4.5,
    ] and join_processes().all_gather_texts("a") == ["a"]
    assert np.isclose(float(join_processes().norm([torch.nn.Parameter(torch.ones(3))])), 0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("WORLD_SIZE=", "WORLD_SIZE must be .*, got ''"),
        ("WORLD_SIZE=0", "WORLD_SIZE must be .*, got '0'"),
        ("WORLD_SIZE=two", "WORLD_SIZE must be .*, got 'two'"),
        ("WORLD_SIZE=2", "RANK is not set"),
        ("WORLD_SIZE=2 RANK=2 LOCAL_RANK=0", r"^RANK must .* 1\], got '2'"),
        ("WORLD_SIZE=2 RANK=0 LOCAL_RANK=x", "LOCAL_RANK must .* got 'x'"),
        ("WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_PORT=70000", "MASTER_PORT .* '70000'"),
    ],
)
def test_variables_of_a_launcher_are_checked(given, message, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", MEETING):
        monkeypatch.delenv(name, raising=False)
    for one in f"MASTER_ADDR=localhost MASTER_PORT=1 {given}".split():
        monkeypatch.setenv(*one.split("="))
    with pytest.raises(UsageError, match=message):
        join_processes()


def test_ranks_that_torchrun_restarts_do_not_wait_for_those_before():
    """Its store still has the addresses of the ranks before, as in torch 2.13."""
    server = torch.distributed.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30)
    )

    def action(attempt, rank):
        agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": attempt}
        os.environ |= {**agent, "MASTER_PORT": str(server.port), "LOCAL_WORLD_SIZE": "2"}
        time.sleep(rank == 0)  # the other one reads the store before this one writes
        group = Group(rank, 2)
        group.connect(torch.device("cpu"), 8.0)
        assert group.all_reduce_max(rank) == [1.0]

    for attempt in ("0", "1"):
        assert exit_codes(start_forks(partial(action, attempt), 2)) == [0, 0]
