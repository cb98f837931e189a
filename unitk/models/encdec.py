"""Two towers: an encoder, and a decoder that reads its states."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from unitk.errors import UsageError
from unitk.models.condition import Carry, Condition
from unitk.models.config import EncoderDecoderConfig
from unitk.models.stack import Model, Stack, init_weights
from unitk.slots import Batch


class EncoderDecoder(Model):
    """This stack, with the output layers, is the decoder "dec"; the encoder "enc" is beside it."""

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int):
        layers = config.decoder_layers or config.num_layers
        super().__init__(replace(config, num_layers=layers), vocab_size, cross=True)
        self.config = config
        self.encoder = Stack(config, vocab_size)
        init_weights(self.encoder)
        if config.shared_embeddings:
            self.encoder.embed.tokens = self.embed.tokens
            self.encoder.embed.virtual = self.embed.virtual

    @property
    def reader(self) -> Stack:
        return self.encoder

    def condition(self, batch: Batch) -> Condition:
        """The encoder's states."""
        if batch.towers.keys() != {"enc", "dec"}:
            found = ", ".join(batch.towers)
            raise UsageError(f"--arch has two towers, enc and dec, but the task lays out {found}")
        slots = batch.towers["enc"]
        states_BSD = self.encoder.encode(slots, batch.sight["enc"], batch.num_keys["enc"])
        return Condition(states_BSD, slots)

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states of both towers; a condition that is not given is made."""
        condition = self.condition(batch) if condition is None else condition
        sight, num_keys = batch.sight["dec"], batch.num_keys["dec"]
        states_BTD = self.encode(batch.towers["dec"], sight, num_keys, condition)
        assert condition.cross is not None
        return {"enc": condition.cross, "dec": states_BTD}, {}
