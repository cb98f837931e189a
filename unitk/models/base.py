"""The interfaces of architectures and networks; torch is not imported.

Training, checkpoints, ranks, decoding and imports use these two, and no layer of any family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from unitk import registry
from unitk.errors import check_option
from unitk.options.fields import Checked
from unitk.registry import import_object

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from unitk.slots import Ask, Batch


class ArchConfig(Checked):
    """A registered architecture: a frozen dataclass whose fields are the options `--arch.*`."""

    KIND = "arch"

    towers: tuple[str, ...] = ("x",)
    """The names of the towers, the decoded one last; a task lays out the same."""
    cross_attention: bool = False
    """Whether the decoded tower looks at the states of another one."""
    cross_rotary: bool = True
    """Whether it does so by rotary positions, where it has them."""
    shared_embeddings: bool = False
    """Whether several towers have one token embedding."""
    latent: int = 0
    """Dimensions of the latent of a text; 0: it has none."""
    carries: bool = False
    """Whether its models carry anything from one stretch of a row to the next."""
    sequential: bool = False
    """Whether its towers read nothing but slots that come one after the other (LSTMs)."""
    spared: tuple[str, ...] = ()
    """Tables that a task's `needs` may name, but this architecture does without."""
    static_steps: bool = True
    """Whether all decoding steps are the same operations on the same memory (--capture)."""
    network: ClassVar[str]
    """`module:name` of what is built."""
    width: int
    heads: tuple[str, ...]
    """Output layers beside that over the vocabulary."""
    head_layers: tuple[int, ...]
    """Layers whose states these read, mixed."""
    max_positions: int
    max_positions2: int
    """Rows of the tables of positions, which bound the inputs; 0: there is no table."""
    num_segments: int
    num_virtual: int
    """Input ids beyond the vocabulary."""
    num_tasks: int
    """Numbers of tasks that have an embedding; 0: none has."""

    def tower(self, name: str) -> ArchConfig:
        """The settings of a tower."""
        return self

    @property
    def position_limit(self) -> int:
        """The number of positions that every tower has; 0: no tower has a table of them."""
        return self.max_positions

    @property
    def depth(self) -> int:
        """The number of layers of the deepest tower."""
        raise NotImplementedError

    @property
    def head_config(self) -> Any:
        """The settings of the heads other than the one over the vocabulary, as a `ModelConfig`."""
        raise NotImplementedError

    def num_weights(self, vocab_size: int) -> int:
        """The number of weights in matrices and tables, which is nearly all parameters."""
        raise NotImplementedError

    def build(self, vocab_size: int, source_vocab_size: int | None = None) -> Network:
        """Build the network with fresh weights, on torch's default device ("meta": without memory).

        `source_vocab_size` is that of an encoder with its own vocabulary.
        """
        return import_object(self.network)(self, vocab_size)

    def _require(self, name: str, holds: bool, what: str) -> None:
        """Raise a `UsageError` that an option must be `what`, unless that `holds`."""
        check_option(self, f"arch.{name}", holds, what)


def families_with(holds: Callable[[ArchConfig], bool]) -> str:
    """The registered architectures with a property; whole families as in "bart_*, mass_*"."""
    family = {name: name.partition("_")[0] for name in registry.names("arch")}
    able = [name for name in family if holds(registry.get("arch", name)())]
    mixed = {family[name] for name in family.keys() - able}
    shown = (name if family[name] in mixed else f"{family[name]}_*" for name in able)
    return ", ".join(dict.fromkeys(shown))


class Cache(Protocol):
    """The memory of a network for slots it has read: keys and values, or a recurrent state."""

    def follow(self, back: Tensor) -> None:
        """Let hypothesis k of row b continue hypothesis back[b, k] of the step before."""

    def select(self, rows: Tensor) -> Any:
        """The cache of these batch rows, copied."""


class Decoder(Protocol):
    """The interface of a network or an ensemble that decoding uses."""

    training: bool
    tasks: Sequence[Any]  # as which the members of an ensemble read texts that are understood

    @property
    def config(self) -> ArchConfig: ...

    @property
    def members(self) -> Sequence[Any]:
        """The models whose answers are averaged: one, or those of an ensemble."""

    @property
    def trained(self) -> int:
        """How many rows of the output layer over the vocabulary were trained."""

    @property
    def device(self) -> torch.device:
        """The device that holds the weights."""

    def train(self, mode: bool = True) -> Any: ...

    def eval(self) -> Any: ...

    def parameters(self) -> Iterator[Tensor]: ...

    def modules(self) -> Iterator[Any]: ...

    def __call__(
        self, batch: Batch, condition: Any = None
    ) -> tuple[dict[str, Tensor], Mapping[str, Tensor]]:
        """The states [B, T, D] by tower, and the states that stateful rows carry."""

    def score_labels(self, batch: Batch, ask: Ask, condition: Any = None) -> Tensor:
        """Log-probabilities of the labels, and 1 where a label is the most probable: [2, K]."""

    def output(self, batch: Batch, ask: Ask) -> Tensor:
        """The output of an ask's head for its rows [K, ...]."""

    def condition(self, batch: Batch) -> Any:
        """The inputs beside the slots, such as an encoder's states; None: there are none."""

    def new_cache(self, batch_size: int, columns: int, *, condition: Any = None) -> Cache:
        """An empty `Cache` for this many rows and columns of slots."""

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

    def head(self, states_KD: Tensor, name: str = "lm") -> Tensor:
        """The logits of an output layer at K states."""


@dataclass(frozen=True)
class Preset:
    """A registered architecture, which returns its configuration when it is called."""

    config: ArchConfig
    __doc__: str
    own: bool = False
    """Whether no paper trains it: new models of it take the optimizer and the rate that fit."""

    def __call__(self) -> ArchConfig:
        return self.config


class Network(Decoder, Protocol):
    """A model: named towers and output layers."""

    towers: Any
    between: Mapping[str, str]
    """Parts that are between the towers -> the tower whose weights they come with ("": none)."""
    beside_forward: Iterable[str]
    """Methods that a criterion calls before the forward pass, and which read weights."""

    def latents(self, batch: Batch) -> Tensor:
        """The most likely latents [N, Z] of the docs, where the architecture has any."""
