"""A layer is what its equations say, by torch's kernel and by steps."""

import pytest
import torch
from rounding import assert_near

from unitk.families.recurrent.lstm import LSTM

LENGTHS = torch.tensor([7, 3, 5, 1])


def layer(**options):
    torch.manual_seed(0)
    made = LSTM(6, 10, options.pop("outputs", 10), **options).double().eval()
    torch.nn.init.normal_(made.bias)
    return made


def beginning(made):
    return tuple(torch.randn(len(LENGTHS), width).double() for width in made.widths)


def restated(made, x, state):
    """Hochreiter and Schmidhuber's cell, a text and a step at a time."""
    cell_clip, projection_clip = made.clips
    found = []
    for number, length in enumerate(LENGTHS.tolist()):
        h, c = (one[number] for one in state)
        rows = []
        for t in range(length):
            gates = made.weight_ih @ x[number, t] + made.weight_hh @ h + made.bias
            i, f, g, o = gates.view(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            if cell_clip:
                c = torch.minimum(
                    torch.maximum(c, -torch.tensor(cell_clip)), torch.tensor(cell_clip)
                )
            h = torch.sigmoid(o) * torch.tanh(c)
            if made.weight_hr is not None:
                h = made.weight_hr @ h
            if projection_clip:
                h = h.clip(-projection_clip, projection_clip)
            rows.append(h)
        found.append((torch.stack(rows), h, c))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"outputs": 4, "projects": True},
        {"outputs": 4, "projects": True, "cell_clip": 0.4, "projection_clip": 0.1},
        {"cell_clip": 0.4},
    ],
)
def test_texts_of_any_length_are_the_restated_cell(options):
    made = layer(**options)
    x, state = torch.randn(4, 7, 6).double(), beginning(made)
    with torch.no_grad():
        out, (last, cells) = made(x, LENGTHS, state)
        for number, (rows, h, c) in enumerate(restated(made, x, state)):
            assert_near(out[number, : len(rows)], rows)
            assert not out[number, len(rows) :].any()
            assert_near(last[number], h)
            assert_near(cells[number], c)
    if made.clips[0]:
        assert (cells.abs() == 0.4).any()
    if made.clips[1]:
        assert (out.abs() == 0.1).any()


def test_the_kernel_is_the_loop_with_gradients():
    """Clips that never cut change nothing but the way it is computed."""
    found = []
    for options in ({}, {"cell_clip": 1e3}):
        made = layer(**options)
        torch.manual_seed(1)
        out, _ = made(torch.randn(4, 7, 6).double(), LENGTHS, beginning(made))
        out.square().sum().backward()
        found.append([out, *(weight.grad for weight in made.parameters())])
    for one, other in zip(*found, strict=True):
        assert_near(one.detach(), other.detach())


def test_a_projection_is_torchs():
    made = layer(outputs=4, projects=True)
    other = torch.nn.LSTM(6, 10, proj_size=4, batch_first=True).double()
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh", "weight_hr"):
            getattr(other, f"{name}_l0").copy_(getattr(made, name))
        other.bias_ih_l0.copy_(made.bias)
        other.bias_hh_l0.zero_()
        x, state = torch.randn(4, 7, 6).double(), beginning(made)
        out, _ = made(x, torch.full((4,), 7), state)
        assert_near(out, other(x, tuple(one[None] for one in state))[0])


def test_weight_dropout_is_one_draw_for_all_texts_and_steps():
    """In training the layer is one with fewer recurrent weights, larger by 1 / (1 - p)."""
    made = layer(weight_dropout=0.5)
    x, state = torch.randn(4, 7, 6).double(), beginning(made)
    torch.manual_seed(5)
    with torch.no_grad():
        out, _ = made.train()(x, LENGTHS, state)
        torch.manual_seed(5)
        made.weight_hh.copy_(torch.nn.functional.dropout(made.weight_hh, 0.5))
        assert 0.4 < (made.weight_hh == 0).double().mean() < 0.6
        assert_near(out, made.eval()(x, LENGTHS, state)[0])


def test_the_forget_gates_begin_with_their_bias():
    torch.manual_seed(0)
    made = LSTM(6, 10, 10, forget_bias=1.0)
    assert made.bias.view(4, 10).sum(1).tolist() == [0, 10, 0, 0]


@pytest.mark.parametrize("lengths", [LENGTHS, torch.full((4,), 7)])
def test_processors_without_bf16_compute_in_fp32(monkeypatch, lengths):
    """Torch's kernel raises there under autocast, for what comes in fp32."""
    monkeypatch.setattr("unitk.families.recurrent.lstm.packs", lambda precision: False)
    made = layer().float()
    x, state = torch.randn(4, 7, 6), tuple(one.float() for one in beginning(made))
    exact, (out, cells) = made(x, lengths, state)
    with torch.autocast("cpu", torch.bfloat16):
        found, after = made(x, lengths, state)
        rough, _ = made(x.bfloat16(), lengths, state)
    assert all(map(torch.equal, (found, *after), (exact, out, cells)))
    assert (rough - exact).norm() < 0.01 * exact.norm()
