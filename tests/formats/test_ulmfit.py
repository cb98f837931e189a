"""fastai's files of ULMFiT: what unitk reads computes what torch's LSTM layers do."""

import pickle

import pytest
import torch
from rounding import assert_near
from torch import nn

import unitk
from unitk.errors import CheckpointError, UsageError
from unitk.options.settings import Origin, Settings
from unitk.registry import get
from unitk.training.saving.checkpoint import load
from unitk.verbs import convert, train

WORDS = ["xxunk", "xxpad", "xxbos", "xxmaj", "\n", "the", "cat", "sat", ".", "slept", "a", "dog"]
OLD = ["_unk_", "_pad_", *WORDS[3:], "on"]
V, WIDTH, CELLS = len(WORDS), 6, 10
SHAPES = [(WIDTH, CELLS), (CELLS, CELLS), (CELLS, WIDTH)]


@pytest.fixture
def released(tmp_path):
    """The folder of a language model that fastai saved, and its tensors."""
    torch.manual_seed(1)
    there = {"0.encoder.weight": torch.randn(V, WIDTH)}
    there["0.encoder_dp.emb.weight"] = there["1.decoder.weight"] = there["0.encoder.weight"]
    there["1.decoder.bias"] = torch.randn(V)
    for number, (inputs, cells) in enumerate(SHAPES):
        own = f"0.rnns.{number}."
        there[f"{own}weight_hh_l0_raw"] = torch.randn(4 * cells, cells) / 2
        there[f"{own}module.weight_ih_l0"] = torch.randn(4 * cells, inputs) / 2
        there[f"{own}module.bias_ih_l0"] = torch.randn(4 * cells)
        there[f"{own}module.bias_hh_l0"] = torch.randn(4 * cells)
    write(tmp_path, there, WORDS)
    return tmp_path, there


def write(folder, there, words, name="lstm_fwd.pth"):
    torch.save(there, folder / name)
    (folder / "itos_wt103.pkl").write_bytes(pickle.dumps(words))


def expected(there, ids):
    """The logits [T, V] after each of these ids, by torch's own layers."""
    x = there["0.encoder.weight"][torch.tensor([ids])]
    for number, sizes in enumerate(SHAPES):
        layer, own = nn.LSTM(*sizes, batch_first=True), f"0.rnns.{number}."
        layer.weight_hh_l0.data = there[f"{own}weight_hh_l0_raw"]
        for name in ("weight_ih", "bias_ih", "bias_hh"):
            getattr(layer, f"{name}_l0").data = there[f"{own}module.{name}_l0"]
        x, _ = layer(x)
    return (x[0] @ there["1.decoder.weight"].T + there.get("1.decoder.bias", 0)).detach()


def logits(folder, text):
    with torch.no_grad():
        return unitk.load_module(folder, format="ulmfit").logits([text])[0]


def test_logits_are_those_of_the_layers(released):
    folder, there = released
    found = logits(folder, "the cat sat .")
    assert_near(found[:, :V], expected(there, [2, 5, 6, 7, 8]))
    assert found[:, V:].max() == -torch.inf  # [SEP] and [MASK], which fastai has not


def test_unknown_words_and_blanks_keep_their_rows(released):
    """A word that is a blank has a row that no text reads; words after it keep their ids."""
    vocab = get("format", "ulmfit").read(released[0]).task.vocab
    assert vocab.encode("the zebra xxunk dog [CLS]") == [5, 0, 0, 11, 0]
    assert (vocab.unk, vocab.pad, vocab.cls) == (0, 1, 2)


def test_an_output_layer_of_its_own_is_read(released):
    folder, there = released
    there["1.decoder.weight"] = torch.randn(V, WIDTH)
    write(folder, there, WORDS)
    assert_near(logits(folder, "a dog")[:, :V], expected(there, [2, 10, 11]))


def test_files_of_2018_have_other_names_and_no_bias(released):
    """They open no text, since their lists have no xxbos."""
    folder, there = released
    del there["1.decoder.bias"], there["0.encoder_dp.emb.weight"]
    old = {name.replace("weight_hh", "module.weight_hh"): one for name, one in there.items()}
    old = {name.replace("module.module", "module"): one for name, one in old.items()}
    (folder / "lstm_fwd.pth").unlink()
    write(folder, old | {"0.encoder_with_dropout.embed.weight": torch.zeros(V, WIDTH)}, OLD, "a.h5")
    assert_near(logits(folder, "the cat sat")[:, :V], expected(there, [4, 5, 6]))


def test_a_learner_and_an_encoder_alone_are_read(released, caplog):
    folder, there = released
    want = expected(there, [2, 5, 6])
    write(folder, {"model": there, "opt": {}}, WORDS)
    assert_near(logits(folder, "the cat")[:, :V], want)
    inside = {name[2:]: one for name, one in there.items() if name[0] == "0"}
    write(folder, inside, WORDS)
    assert_near(logits(folder, "the cat")[:, :V], want - there["1.decoder.bias"])
    assert "without their biases" in caplog.text


def test_a_backward_file_reads_from_the_end(released):
    folder, there = released
    (folder / "lstm_fwd.pth").rename(folder / "lstm_bwd.pth")
    assert_near(logits(folder, "the cat sat")[:, :V], expected(there, [2, 7, 6, 5]))
    given = Settings.of_texts({"task.backward": "off"}, Origin.FLAG)
    assert not get("format", "ulmfit").read(folder, None, given).task.backward


def test_it_is_trained_on(released, tmp_path, capsys):
    """The command's checkpoint begins a language model and a classifier."""
    folder, there = released
    convert.run(f"--from ulmfit {folder} --to unitk {tmp_path / 'ours'}".split())
    assert load(tmp_path / "ours").model.trained == V
    (tmp_path / "text.txt").write_text("the cat sat .\n\na dog slept .\n")
    rows = [("the cat sat .", 0), ("a dog slept .", 1)]
    unitk.preprocess(input=[tmp_path / "text.txt"], vocab=tmp_path / "ours", dest=tmp_path / "text")
    table = "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows])
    (tmp_path / "rows.tsv").write_text(table)
    unitk.preprocess(
        input=[tmp_path / "rows.tsv"],
        source_field="text",
        label_field="label",
        vocab=tmp_path / "ours",
        dest=tmp_path / "rows",
    )
    common = f"--init-from {tmp_path / 'ours'} --lr 1e-3 --max-steps 2 --precision fp32"
    for name, task in (("text", "lm"), ("rows", "classify")):
        run = tmp_path / f"run-{name}"
        train.run(f"--task {task} --data {tmp_path / name} --save-dir {run} {common}".split())
        moved = load(run).model.decoder.layers[1].weight_ih - there["0.rnns.1.module.weight_ih_l0"]
        assert 0 < moved.abs().max() < 0.01


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop("0.rnns.1.module.bias_hh_l0"), "does not have all tensors of an AWD-LSTM"),
        (lambda t: t.pop("0.encoder.weight"), "does not have all tensors of an AWD-LSTM"),
        (
            lambda t: t.update({"0.rnns.0.layers.0.linear.weight": torch.zeros(2, 2)}),
            r"is not of an AWD-LSTM: it has rnns.0.layers.0.linear.weight",
        ),
        (
            lambda t: t.update({"0.encoder.weight": torch.zeros(V)}),
            r"encoder.weight has shape \[12\]",
        ),
        (
            lambda t: t.update({"0.rnns.1.weight_hh_l0_raw": torch.zeros(44, 11)}),
            r"layers.1.weight_hh has shape \[44, 11\], but its options need \[40, 10\]",
        ),
        (
            lambda t: t.update({"0.encoder.weight": torch.zeros(9, WIDTH)}),
            r"has 9 rows, but the vocabulary has 12 words .--vocab",
        ),
    ],
)
def test_what_does_not_fit_is_named(released, change, message):
    folder, there = released
    change(there)
    write(folder, there, WORDS)
    with pytest.raises(CheckpointError, match=message):
        get("format", "ulmfit").read(folder)


def test_a_list_of_words_runs_no_code(released):
    folder, _ = released
    listed = folder / "itos_wt103.pkl"
    listed.write_bytes(pickle.dumps({1: "a"}))
    with pytest.raises(CheckpointError, match="is .*list.*words"):
        get("format", "ulmfit").read(folder)
    listed.write_bytes(pickle.dumps([print]))
    with pytest.raises(CheckpointError, match="is refused.*names builtins.print"):
        get("format", "ulmfit").read(folder)
    listed.unlink()
    with pytest.raises(UsageError, match=r"--vocab .*needed.* itos\*.pkl beside"):
        get("format", "ulmfit").read(folder)
