"""A layer of long short-term memory (Hochreiter and Schmidhuber 1997) over texts of any lengths.

N texts, L steps, I inputs, C cells, P outputs. Gates are in torch's order: input, forget, value,
output.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import _VF, Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from unitk.kernels.products import packs

State = tuple[Tensor, Tensor]
"""What a layer gave last [N, P], and its cells [N, C]."""

STEPS = 64
"""Steps of a chunk on a CPU, where the gradients of ragged texts take a time that grows with the
square of the steps."""


class LSTM(nn.Module):
    """One layer in one direction; its output may be projected, clipped, and recurs.

    Torch's kernel computes layers without projection and clips, a loop over the steps the others.
    """

    def __init__(
        self,
        inputs: int,
        cells: int,
        outputs: int,
        *,
        cell_clip: float = 0.0,
        projection_clip: float = 0.0,
        weight_dropout: float = 0.0,
        forget_bias: float = 0.0,
        projects: bool = False,
        bptt: int = 0,
        bptt_chunks: int = 0,
    ) -> None:
        super().__init__()
        self.clips = (cell_clip, projection_clip)
        self.weight_dropout = weight_dropout
        self.bptt = bptt
        self.bptt_chunks = bptt_chunks
        self.weight_ih = nn.Parameter(torch.empty(4 * cells, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * cells, outputs))
        self.weight_hr = nn.Parameter(torch.empty(outputs, cells)) if projects else None
        self.bias = nn.Parameter(torch.zeros(4 * cells))
        for weight in (self.weight_ih, self.weight_hh, self.weight_hr):
            if weight is not None:
                nn.init.uniform_(weight, -(cells**-0.5), cells**-0.5)
        nn.init.constant_(self.bias[cells : 2 * cells], forget_bias)

    @property
    def widths(self) -> tuple[int, int]:
        """P and C."""
        return self.weight_hh.shape[1], self.weight_hh.shape[0] // 4

    def forward(self, x_NLI: Tensor, length_N: Tensor, state: State) -> tuple[Tensor, State]:
        """The outputs [N, L, P], 0 after the end of a text, and the state at each text's end.

        `length_N` is on the host.
        """
        around = F.dropout(self.weight_hh, self.weight_dropout, self.training)
        size = self.bptt or (STEPS if x_NLI.device.type == "cpu" else 0)
        whole = not size or x_NLI.shape[1] <= size or not torch.is_grad_enabled()
        if whole:
            return self._pass(x_NLI, length_N, state, around)
        return self._run_chunks(x_NLI, length_N, state, around, size)

    def _run_chunks(
        self, x_NLI: Tensor, length_N: Tensor, state: State, around: Tensor, size: int
    ) -> tuple[Tensor, State]:
        """What `_pass` gives, in chunks of `size` steps; `bptt` ends gradients where one begins."""
        reach = size * (self.bptt_chunks or x_NLI.shape[1])
        outputs = []
        for number, x_NlI in enumerate(x_NLI.split(size, 1)):
            left_N = length_N - number * size
            on_R = (left_N > 0).nonzero()[:, 0]  # texts that have not ended
            left_R = left_N[on_R]
            row_R = on_R.to(x_NLI.device)
            out_RP, cell_RC = (part[row_R].detach() if self.bptt else part[row_R] for part in state)
            near_R = left_R <= reach
            with torch.set_grad_enabled(bool(near_R.any())):  # no memory for what is not reached
                arguments = x_NlI[row_R], left_R.clamp(max=size), (out_RP, cell_RC)
                made_RlP, after = self._pass(*arguments, around)
            if not near_R.all():
                near_R11 = near_R.to(x_NLI.device)[:, None, None]
                made_RlP = torch.where(near_R11, made_RlP, made_RlP.detach())
            none = made_RlP.new_zeros(len(x_NLI), *made_RlP.shape[1:])
            outputs.append(none.index_copy(0, row_R, made_RlP))
            out_NP, cell_NC = (
                old.to(new.dtype).index_copy(0, row_R, new)
                for old, new in zip(state, after, strict=True)
            )
            state = out_NP, cell_NC
        return torch.cat(outputs, 1), state

    def _pass(
        self, x_NLI: Tensor, length_N: Tensor, state: State, around: Tensor
    ) -> tuple[Tensor, State]:
        if self.weight_hr is not None or any(self.clips):
            return self._run_steps(x_NLI, length_N, state, around)
        on_cpu = x_NLI.device.type == "cpu"
        if on_cpu and torch.is_autocast_enabled("cpu") and not packs("bf16"):
            # torch's kernel raises for weights in fp32 where the processor lacks bf16
            with torch.autocast("cpu", enabled=False):
                return self._run_kernel(x_NLI.float(), length_N, state, around)
        return self._run_kernel(x_NLI, length_N, state, around)

    def _run_kernel(
        self, x_NLI: Tensor, length_N: Tensor, state: State, around: Tensor
    ) -> tuple[Tensor, State]:
        # torch's layer has a second bias, which would only add to the first
        weights = [self.weight_ih, around, self.bias, torch.zeros_like(self.bias)]
        before = [part[None].to(x_NLI.dtype) for part in state]
        how = weights, True, 1, 0.0, self.training, False
        if bool((length_N == x_NLI.shape[1]).all()):
            out_NLP, *after = _VF.lstm(x_NLI, before, *how, True)
        else:
            packed = pack_padded_sequence(x_NLI, length_N, batch_first=True, enforce_sorted=False)
            # packing sorts the texts by their lengths, and so must their states be
            order, back = packed.sorted_indices, packed.unsorted_indices
            assert order is not None and back is not None
            before = [part.index_select(1, order) for part in before]
            data, *after = _VF.lstm(packed.data, packed.batch_sizes, before, *how)
            after = [part.index_select(1, back) for part in after]
            sorted_out = PackedSequence(data, *packed[1:])
            out_NLP, _ = pad_packed_sequence(sorted_out, True, total_length=x_NLI.shape[1])
        return out_NLP, (after[0][0], after[1][0])

    def _run_steps(
        self, x_NLI: Tensor, length_N: Tensor, state: State, around: Tensor
    ) -> tuple[Tensor, State]:
        out_NP, cell_NC = state
        outputs = []
        cell_clip, projection_clip = self.clips
        # what the inputs add to the gates is one product for all steps
        gates_NLG = F.linear(x_NLI, self.weight_ih, self.bias)
        real_NL1 = torch.arange(x_NLI.shape[1]) < length_N[:, None]
        whole = bool(real_NL1.all())
        real_NL1 = real_NL1[..., None].to(x_NLI.device)
        for gates_NG, real_N1 in zip(gates_NLG.unbind(1), real_NL1.unbind(1), strict=True):
            enter, forget, value, leave = (gates_NG + F.linear(out_NP, around)).chunk(4, -1)
            cells = forget.sigmoid() * cell_NC + enter.sigmoid() * value.tanh()
            cells = cells.clamp(-cell_clip, cell_clip) if cell_clip else cells
            step_NP = leave.sigmoid() * cells.tanh()
            if self.weight_hr is not None:
                step_NP = F.linear(step_NP, self.weight_hr)
            step_NP = (
                step_NP.clamp(-projection_clip, projection_clip) if projection_clip else step_NP
            )
            if not whole:  # after its end a text has the state that it had there
                cells = torch.where(real_N1, cells, cell_NC)
                step_NP = torch.where(real_N1, step_NP, out_NP)
            out_NP, cell_NC = step_NP, cells
            outputs.append(step_NP if whole else step_NP * real_N1)
        return torch.stack(outputs, 1), (out_NP, cell_NC)
