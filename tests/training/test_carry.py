"""What a model carries from update to update over stateful rows."""

import json

import pytest
import torch
from exact_options import EXACT
from ranks import run_ranks
from safetensors.torch import load_file

from unitk.errors import UsageError
from unitk.evaluation.objective import objective, open_setup
from unitk.slots import TOKEN
from unitk.training import loop
from unitk.training.start import parse_train, prepare
from unitk.verbs import convert

ROWS = 4
FILES = ("model.safetensors", "optim.safetensors", "carry.safetensors")


@pytest.fixture
def words(toy_data):
    """`words(run, "--max-steps 3")`: the options of a run of a recurrent network."""

    def make(run, more="", rows=ROWS):
        text = (
            f"--task lm --arch awd_lstm_tiny --data {toy_data / 'text'}"
            f" --save-dir {run} --blocks stream --block-size 24 --stateful-rows {rows} --lr 1e-2"
            " --lr-schedule constant --precision fp32 --valid none --log-every 1"
            f" {EXACT} --writers none --threads 1 --rank-timeout 30 {more}"
        )
        flags = dict(pairwise_options(text))
        return [f"{name}={value}" for name, value in flags.items()]

    return make


def pairwise_options(text):
    """Options with their values; the last one of a name counts, as in a dictionary."""
    for option in text.split(" --"):
        name, _, value = option.removeprefix("--").partition(" ")
        yield f"--{name}", value or "on"


def train(words):
    loop.train(prepare(parse_train(words)))


def sums(run, step):
    files = json.loads((run / "checkpoints" / f"step-{step}" / "manifest.json").read_text())
    return [files["files"][name]["sha256"] for name in FILES]


def losses(run):
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [event["train/loss"] for event in events if "train/loss" in event]


@pytest.mark.parametrize("backward", ["off", "on"])
def test_updates_over_rows_are_one_long_pass(words, tmp_path, backward):
    """With weights that stay, the losses are those of each row's texts read in one go."""
    more = f"--max-steps 4 --task.backward {backward} --device cpu"
    train(words(tmp_path / "run", f"{more} --lr 1e-30"))
    trainer = loop.Trainer(prepare(parse_train(words(tmp_path / "again", more))))
    model, updates, asked = trainer.model, trainer.feed.updates(), []
    for number in range(4):
        update = next(updates)
        [batch] = [one.to("cpu") for one in update.batches]
        assert update.begins == (number == 0)
        # row r has the r-th part of the texts: update u reads text u of each, or the u-th last one
        text = trainer.per_epoch - 1 - number if backward == "on" else number
        texts = len(trainer.data.train.items.lengths)
        assert update.ids.tolist() == [r * texts // ROWS + text for r in range(ROWS)]
        ask, width = batch.asks["lm"], batch.towers["x"].shape[2]
        found = [(ask.first[ask.first // width == row], row) for row in range(ROWS)]
        token = batch.towers["x"][TOKEN].flatten()
        asked.append([(token[at], ask.label[ask.first // width == row]) for at, row in found])
    nll = [[] for _ in asked]
    with torch.no_grad():
        for row in zip(*asked, strict=True):
            x = model.decoder.embed.tokens.weight[torch.cat([token for token, _ in row])]
            for layer in model.decoder.layers:
                kernel = torch.nn.LSTM(layer.weight_ih.shape[1], layer.widths[1])
                for name in ("weight_ih", "weight_hh"):
                    getattr(kernel, f"{name}_l0").copy_(getattr(layer, name))
                kernel.bias_ih_l0.copy_(layer.bias)
                kernel.bias_hh_l0.zero_()
                x, (_, last) = kernel(x)
            logits = torch.nn.functional.linear(x, model.decoder.embed.tokens.weight)
            label = torch.cat([label for _, label in row])
            each = torch.nn.functional.cross_entropy(logits, label, reduction="none")
            for own, part in zip(nll, each.split([len(label) for _, label in row]), strict=True):
                own.append(part)
    expected = [float(torch.cat(own).mean()) for own in nll]
    assert losses(tmp_path / "run") == pytest.approx(expected, rel=1e-5)
    carried = load_file(tmp_path / "run" / "last" / "carry.safetensors")
    assert torch.allclose(carried["cell.1"][-1], last[0], atol=1e-6)


def test_a_criterion_that_carries_nothing_is_refused(words, tmp_path):
    train(words(tmp_path / "teacher", "--max-steps 1"))
    more = f"--max-steps 2 --criterion distill --criterion.teacher {tmp_path / 'teacher'}"
    with pytest.raises(UsageError, match="--stateful-rows: .*--criterion"):
        train(words(tmp_path / "run", more))


@pytest.mark.slow
def test_stopped_and_resumed_is_uninterrupted(words, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(words(whole, "--max-steps 40 --save-every 1 --keep-last 99"))
    epoch = [
        json.loads((whole / "checkpoints" / f"step-{step}" / "state.json").read_text())["epoch"]
        for step in range(1, 41)
    ]
    new = epoch.index(1) + 1  # the update after this one begins an epoch, with nothing carried
    for stop in (2, 3, new, new + 1, 40):
        train(words(parts, f"--max-steps {stop} --resume --keep-last 99"))
        assert sums(parts, stop) == sums(whole, stop), stop
    assert losses(parts) == losses(whole)
    first, second = (load_file(whole / "checkpoints" / f"step-{s}" / FILES[2]) for s in (2, 3))
    assert (first["cell.0"] != second["cell.0"]).all() and len(first["cell.0"]) == ROWS


@pytest.mark.every(2)
@pytest.mark.parametrize("micro", [1, 2])
def test_two_ranks_are_one_run_and_continue_as_one(words, tmp_path, micro):
    more = f"--max-tokens {32 * ROWS // 2 // micro} --max-steps"
    for world in (1, 2):
        run = tmp_path / str(world)
        assert set(run_ranks(" ".join(words(run, f"{more} 5")), world)) == {0}
    # what the other number of ranks left is taken up
    for world in (1, 2):
        run = tmp_path / str(3 - world)
        assert set(run_ranks(" ".join(words(run, f"{more} 9 --resume")), world)) == {0}
    one, two = (tmp_path / "1", tmp_path / "2")
    assert losses(one) == pytest.approx(losses(two), rel=1e-6)
    for name in FILES[::2]:
        a, b = (load_file(run / "last" / name) for run in (one, two))
        assert all(torch.allclose(a[key], b[key], atol=1e-4) for key in a), name


@pytest.mark.slow
def test_two_ranks_resume_bit_for_bit(words, tmp_path):
    for run, stops in (("whole", [6]), ("parts", [3, 6])):
        for stop in stops:
            more = f"--max-steps {stop} --resume"
            assert set(run_ranks(" ".join(words(tmp_path / run, more)), 2)) == {0}
    assert sums(tmp_path / "parts", 6) == sums(tmp_path / "whole", 6)


def test_what_excludes_stateful_rows_is_named(words, tmp_path, toy_data):
    for more, what in (
        ("--arch gpt2_tiny", "no effect: --arch gpt2_tiny carries nothing"),
        ("--batch-tokens 400", "--batch-tokens has no effect with --stateful-rows 4"),
        (f"--data {toy_data / 'text'}=2", "--data takes no weight"),
        (f"--data {toy_data / 'pairs'}", "needs texts in their order"),
    ):
        with pytest.raises(UsageError, match=what):
            prepare(parse_train(words(tmp_path / "run", f"--max-steps 1 {more}")))


@pytest.mark.parametrize("option", ["recompute on", "attention dense", "compile on"])
def test_an_option_of_attention_is_refused_by_its_name(words, tmp_path, option):
    with pytest.raises(UsageError) as error:
        train(words(tmp_path / "run", f"--max-steps 1 --{option}"))
    assert str(error.value) == f"--{option.split()[0]} has no effect on LSTM layers"


def test_objectives_in_another_order_are_refused_before_training(words, tmp_path):
    for more, what in (
        ("--task glm_infill", "reads words one after the other, but task glm_infill lays them out"),
        ("--task bart", "--task bart needs an encoder and a decoder, but --arch awd_lstm_tiny"),
    ):
        with pytest.raises(UsageError, match=what):
            prepare(parse_train(words(tmp_path / "run", f"--max-steps 1 {more}")))


def test_no_other_system_has_a_place_for_it(words, tmp_path):
    train(words(tmp_path / "run", "--max-steps 1"))
    with pytest.raises(UsageError, match="recurrent network.* --to hf.*no place"):
        convert.run(f"--from unitk {tmp_path / 'run'} --to hf {tmp_path / 'hf'}".split())


def test_an_evaluation_counts_the_texts_that_rows_read(words, tmp_path, toy_data):
    """Rows are equally long, so that a few of the last texts may belong to none."""
    train(words(tmp_path / "run", "--max-steps 1"))
    whole, rows = (
        open_setup(tmp_path / "run", toy_data / "text" / "train", torch.device("cpu"), rows=rows)
        for rows in (0, 7)
    )
    read = list[int]()
    objective(rows, 400, read.append)
    assert sum(read) == rows.num_texts == whole.num_texts // 7 * 7 < whole.num_texts
