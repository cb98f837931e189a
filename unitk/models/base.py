"""What the toolkit asks of an architecture and of the network it builds; torch is not imported.

Training, checkpoints, ranks, decoding and imports know these two and no layer of any family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from unitk.models.condition import Carry, Condition
    from unitk.slots import Batch


class Limits(Protocol):
    """Rows of a tower's tables, which what it reads may not exceed; 0: no such table."""

    @property
    def max_positions(self) -> int: ...

    @property
    def max_positions2(self) -> int: ...

    def tower(self, name: str) -> Limits:
        """The limits of a tower."""
        ...


class ArchConfig(Limits, Protocol):
    """A registered architecture: a frozen dataclass whose fields are the options `--arch.*`."""

    @property
    def towers(self) -> tuple[str, ...]:
        """The names of the towers, the decoded one last; a task lays out the same."""
        ...

    @property
    def room(self) -> int:
        """Positions that every tower has; 0: no tower has a table of them."""
        ...

    @property
    def num_virtual(self) -> int:
        """Input ids beyond the vocabulary."""
        ...

    @property
    def num_tasks(self) -> int:
        """Numbers of tasks that have an embedding; 0: none has."""
        ...

    @property
    def latent(self) -> int:
        """Dimensions of the latent of a text; 0: it has none."""
        ...

    @property
    def carries(self) -> bool:
        """Whether its models carry anything from one stretch of a row to the next."""
        ...

    def num_weights(self, vocab_size: int) -> int:
        """Weights in matrices and tables."""
        ...

    def build(self, vocab_size: int, source_vocab_size: int | None = None) -> Any:
        """The network with fresh weights, on torch's default device ("meta" makes no weights).

        An encoder may have a vocabulary of its own, of so many words.
        """
        ...


class Cache(Protocol):
    """What a network keeps of the slots it has read: keys and values, or a state."""

    def follow(self, back: Tensor) -> None:
        """Hypothesis k of row b goes on from hypothesis back[b, k] of the step before."""
        ...

    def select(self, rows: Tensor) -> Any:
        """The cache of these batch rows, copied."""
        ...


class Decoder(Protocol):
    """What decoding asks of a network or of an ensemble."""

    @property
    def config(self) -> Limits: ...

    def condition(self, batch: Batch) -> Any:
        """What enters beside the slots, such as an encoder's states; None: nothing."""
        ...

    def new_cache(self, batch_size: int, columns: int, *, condition: Any = None) -> Any:
        """An empty `Cache` for so many rows and columns of slots."""
        ...

    def step(
        self,
        columns: Tensor,
        sight: Tensor,
        condition: Any,
        cache: Any,
        at: int | Tensor,
        asked: Tensor | None = None,
    ) -> Tensor:
        """Read further slots [9, B, q]: their states [B, q, D], or those of the asked ones."""
        ...

    def head(self, states_KD: Tensor, name: str = "lm") -> Tensor:
        """The logits of an output layer at K states."""
        ...


class Network(Decoder, Protocol):
    """A model: named towers and output layers."""

    training: bool
    towers: Mapping[str, Any]
    between: Mapping[str, str]
    """Parts that stand between the towers -> the tower whose weights they come with ("": none)."""
    beside_forward: Iterable[str]
    """Methods that a criterion calls beside the forward pass."""

    def __call__(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states [B, T, D] by tower, and what stateful rows carry on."""
        ...

    def latents(self, batch: Batch) -> Tensor:
        """The most likely latents [N, Z] of the docs, where the architecture has any."""
        ...
