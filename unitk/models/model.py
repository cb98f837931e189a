"""Models: named towers, the last of which is decoded, and output layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from unitk.errors import UsageError, show_value
from unitk.models.base import ArchConfig, families_with
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.models.heads.base import LM, Answers, Asked, Heads, asked_slots, layers_key
from unitk.models.heads.words import WordHead
from unitk.models.layers import Embedding, Tower, init_weights
from unitk.models.stack import Stack
from unitk.models.state import Carry, Condition, Reading, read_to_depth
from unitk.slots import Batch

STORED = {"enc": "encoder"}
"""Under which name a tower that is not decoded is stored, where that is not its own."""


class Model(Answers):
    """Named towers, the last of which is decoded, and output layers.

    Tensors are stored, and named by `named_parameters`, without the name of the decoded tower and
    with "encoder" for that of the encoder (`stored_name`).
    """

    additions: tuple[str, ...] = ()
    between: Mapping[str, str] = {}
    copied: tuple[str, ...] = ()
    """Towers that begin as the decoded one where a checkpoint has that alone."""
    beside_forward: Sequence[str] = ("condition",)

    def __init__(self, config: ArchConfig, vocab_size: int, decoder: Tower | None = None):
        super().__init__()
        if decoder is None:
            assert isinstance(config, ModelConfig)
            decoder = Stack(config, vocab_size)
        # other families have their own settings, and `unitk convert` has no format for them
        self.config = cast(ModelConfig, config)
        self.towers = nn.ModuleDict({config.towers[-1]: decoder})
        self.heads = Heads(decoder.config, vocab_size, config.head_config)
        init_weights(decoder, decoder.config)
        init_weights(self.heads, decoder.config)
        if isinstance(decoder, Stack):
            decoder.scale_logits()

    @property
    def decoder(self) -> Tower:
        """The tower that is decoded."""
        return self.tower(self.config.towers[-1])

    @property
    def reader(self) -> Tower:
        """The tower that reads a text: the encoder, if there is one."""
        return self.tower(self.config.towers[0])

    def tower(self, name: str) -> Tower:
        """A tower by its name."""
        tower = self.towers[name]
        assert isinstance(tower, Tower)
        return tower

    def stored_name(self, name: str) -> str:
        """The stored name of a tensor or part of this model."""
        name = name.removeprefix(f"towers.{self.config.towers[-1]}.")
        return re.sub(r"^towers\.(\w+)", lambda tower: STORED.get(tower[1], tower[1]), name)

    def inner(self, name: str) -> str:
        """The name in this model of a stored name."""
        root, _, rest = name.partition(".")
        for tower in self.config.towers[:-1]:
            if root == STORED.get(tower, tower):
                return f"towers.{tower}.{rest}".rstrip(".")
        # a part beside the towers (heads, a latent's bridge), else one of the decoded tower
        beside = root in self._modules or root in self._parameters
        return name if beside else f"towers.{self.config.towers[-1]}.{name}".rstrip(".")

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by their stored names; a shared one has that of the decoded tower."""
        parameters = list(super().named_parameters(prefix, recurse, remove_duplicate=False))
        # the decoded tower and the heads come first
        kinds = (f"towers.{self.config.towers[-1]}.", "heads.", "towers.", "")
        parameters.sort(key=lambda pair: [pair[0].startswith(kind) for kind in kinds].index(True))
        seen = set[nn.Parameter]()
        for name, parameter in parameters:
            if not (remove_duplicate and parameter in seen):
                seen.add(parameter)
                yield self.stored_name(name), parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers by their stored names."""
        for name, buffer in super().named_buffers(prefix, recurse, remove_duplicate):
            yield self.stored_name(name), buffer

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Tensors by their stored names."""
        state: dict[str, Any] = super().state_dict(*args, **kwargs)
        return {self.stored_name(name): tensor for name, tensor in state.items()}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take tensors by their stored names."""
        inner = {self.inner(name): tensor for name, tensor in state_dict.items()}
        keys = super().load_state_dict(inner, strict, assign)
        return type(keys)(*([self.stored_name(name) for name in names] for names in keys))

    def get_submodule(self, target: str) -> nn.Module:
        """A part by its stored name."""
        return super().get_submodule(self.inner(target))

    def resize_table(self, name: str, table: Tensor) -> Tensor:
        """A position table of a checkpoint, resized to the rows of this model."""
        embed = self.get_submodule(name.rsplit(".", 2)[0])
        assert isinstance(embed, Embedding)
        return embed.resize_table(name, table)

    @property
    def words(self) -> WordHead:
        """The output layer over the vocabulary."""
        head = self.heads[LM]
        assert isinstance(head, WordHead)
        return head

    @property
    def trained(self) -> int:
        """Trained rows of the output layer over the vocabulary; the others have no probability."""
        return self.words.trained

    def leave_out(self, rows: Mapping[str, int]) -> None:
        """Give no probability to rows that an import added to tables of this many rows."""
        counts = [count for name, count in rows.items() if not name.startswith("encoder.")]
        self.words.trained = min([self.words.trained, *counts])

    def condition(self, batch: Batch) -> Condition:
        """The inputs beside the slots; for a single tower, the embeddings of the docs' tasks."""
        return Condition(bias=self.decoder.embed.of_tasks(batch))

    def latents(self, batch: Batch) -> Tensor:
        """The most likely latents [N, Z] of the docs."""
        able = families_with(lambda arch: arch.latent > 0)
        raise UsageError(f"this architecture has no latent of a text; {able} have")

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The decoded tower's states [B, T, D], by its name; without `condition` one is made.

        Stateful rows carry on what `states_to_carry` says.
        """
        name = self.config.towers[-1]
        self.check_tower(name, batch)
        condition = self.condition(batch) if condition is None else condition
        if batch.stateful_rows is None or not self.config.carries:
            return self.read(name, batch, condition), {}
        depths: list[Tensor] = []
        states = self.read(name, batch, condition, depths)
        entered_BLTD = torch.stack(depths[:-1], 1).detach()
        return states, self.states_to_carry(batch.towers[name], entered_BLTD, condition.memory)

    def states_to_carry(self, slots: Tensor, entered_BLTD: Tensor, memory: Carry) -> Carry:
        """The states that enter the next text of a row, out of those that entered each layer here.

        Only architectures that carry states have it. `memory` is what entered this text.
        """
        raise NotImplementedError

    def read(
        self,
        name: str,
        batch: Batch,
        condition: Condition | None = None,
        depths: list[Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The states of a tower, and those of several layers where a head reads them.

        Those of all depths are added to `depths` (`Reading.depths`).
        """
        layers = self.config.head_layers
        mixed = bool(layers) and any(
            ask.tower == name and ask.head != LM for ask in batch.asks.values()
        )
        depths = [] if mixed and depths is None else depths
        asked = asked_slots(batch, name) if batch.only_asked and depths is None else None
        reading = Reading.of(batch, name, condition, asked=asked, depths=depths)
        states = {name: self.tower(name).encode(reading)}
        if mixed and depths is not None:
            states[layers_key(name)] = torch.stack([depths[layer] for layer in layers], dim=2)
        return states

    def embed(self, batch: Batch, depth: int) -> Tensor:
        """The states [B, T, D] of texts (`Task.to_embed`) after as many layers."""
        return read_to_depth(
            lambda depths: self.reader.encode(Reading.of(batch, "enc", depths=depths)),
            depth,
            len(self.reader.layers),
        )

    def check_tower(self, name: str, batch: Batch) -> None:
        """Raise `UsageError` unless the batch has this tower of the model."""
        if name not in batch.towers:
            present = " and ".join(self.config.towers)
            laid_out = " and ".join(batch.towers)
            raise UsageError(f"--arch has the towers {present}, but the task lays out {laid_out}")

    def head(self, asked: Tensor | Asked, name: str = LM) -> Tensor:
        """The output of a head at asked rows; states [K, D] are of rows that read one slot."""
        if isinstance(asked, Tensor):
            asked = Asked(asked[:, None])
        head = self.heads.get(name)
        if head.mix is not None:
            asked = replace(asked, states=head.mix(asked.states))
        return head(asked, self.decoder.embed.tokens.weight)

    @torch.no_grad()
    def step(
        self,
        columns: Tensor,
        sight: Tensor,
        condition: Condition | None,
        cache: Any,
        at: int | Tensor,
        asked: Tensor | None = None,
    ) -> Tensor:
        """Read the slots `columns` [9, B, q] after what the cache holds: their states [B, q, D].

        Their keys and values become the cache's columns [at, at + q); query i of row b looks at
        the columns where `sight` [B, q, S] is true. The prompt is a step with at = 0. A condition
        is the one that the cache was made with. `asked` [B, a] limits the states to these slots.
        """
        return self.decoder.extend(columns, sight, cache, at, condition, asked)

    def new_cache(self, *args: Any, **kwargs: Any) -> Any:
        """An empty cache of the decoded tower (`Stack.new_cache`)."""
        return self.decoder.new_cache(*args, **kwargs)


class EncoderDecoder(Model):
    """The decoder "dec" reads the states of the encoder "enc"."""

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int):
        of_decoder = replace(config, num_layers=config.decoder_layers or config.num_layers)
        super().__init__(config, vocab_size, Stack(of_decoder, vocab_size, cross=True))
        encoder = self.towers["enc"] = Stack(config, vocab_size)
        init_weights(encoder, config)
        if config.shared_embeddings:
            encoder.embed.tokens = self.decoder.embed.tokens
            encoder.embed.virtual = self.decoder.embed.virtual

    def condition(self, batch: Batch) -> Condition:
        """The encoder's states."""
        self.check_tower("enc", batch)
        condition = Condition(bias=self.reader.embed.of_tasks(batch))
        reading = Reading.of(batch, "enc", condition)
        states_BSD = self.reader.encode(reading)
        return Condition(states_BSD, reading.slots, bias=self.decoder.embed.of_tasks(batch))

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states of both towers; without `condition`, it is computed from the batch."""
        condition = self.condition(batch) if condition is None else condition
        states, carry = super().forward(batch, condition)
        assert condition.cross is not None
        return {"enc": condition.cross, **states}, carry


def build(arch: ArchConfig, vocab_size: int, source_vocab_size: int | None = None) -> Model:
    """The network of an architecture (`ArchConfig.build`), which is a module of torch."""
    network = arch.build(vocab_size, source_vocab_size)
    if isinstance(network, Model):
        return network
    what = f"--arch: {type(arch).__name__}.build must return a Model"
    raise UsageError(f"{what}, got {show_value(network)}")
