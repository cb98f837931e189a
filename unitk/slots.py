"""The contract between data, tasks and models: slots, asks, examples and batches.

Every position of every model input is a slot with three times: as a key it is alive from `born` to
`dies`, as a query it looks at the moment `now` (the rule itself is `masks.sees`). A task lays out
numpy arrays; `collate` packs and pads them; `Batch.to` makes tensors. Torch is imported there only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Row = npt.ArrayLike
"""What a field is for each slot, or one value for all of them."""

NEVER = 1 << 30  # a time no clock reaches; the times of tasks stay below it
FIELDS = ("token", "pos", "pos2", "seg", "now", "born", "dies", "doc", "cross")
TOKEN, POS, POS2, SEG, NOW, BORN, DIES, DOC, CROSS = range(len(FIELDS))
PAD = np.array([[0, 0, 0, 0, 0, NEVER, NEVER, 0, 0]]).T  # but for its doc, one of its row
NO_BLANKS = np.empty((0, 2), np.int64)
WIDTH = 16  # rows are padded to a multiple of this, as the attention kernels like it


@dataclass(frozen=True)
class Slots:
    """A run of slots: one int64 matrix [9, T] whose rows are `FIELDS`.

    `token` ids at or above the vocabulary are virtual rows of the input table; `pos`, `pos2` and
    `seg` index the position and segment tables; `doc` counts within the example; `cross` tells
    whether a decoder may read this encoder slot.
    """

    table: Ids

    token, pos, pos2, seg, now, born, dies, doc, cross = (
        property(lambda self, row=row: self.table[row])  # type: ignore[misc]
        for row in range(len(FIELDS))
    )

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def __add__(self, other: Slots) -> Slots:
        return concatenate([self, other])

    def take(self, index: Ids) -> Slots:
        """The slots at these places, in this order."""
        return Slots(self.table[:, index])


def exact_sum(values: Floats) -> float:
    """The sum of 32-bit numbers in 64 bits, which their order does not change."""
    return float(values.sum(dtype=np.float64))


def concatenate(runs: Sequence[Slots]) -> Slots:
    """Runs of slots one after the other."""
    return Slots(np.concatenate([run.table for run in runs], axis=1))


def stay(
    tokens: Row, pos: Row, *, at: Row = 0, pos2: Row = 0, seg: Row = 0, doc: Row = 0, cross: Row = 1
) -> Slots:
    """Slots that come at a time and never leave: born = now = at."""
    return _slots(tokens, pos, pos2, seg, at, at, NEVER, doc, cross)


def probe(tokens: Row, pos: Row, *, at: Row, pos2: Row = 0, seg: Row = 0, doc: Row = 0) -> Slots:
    """Slots that ask and leave no trace: only probes of the same time see them."""
    return _slots(tokens, pos, pos2, seg, at, at, at, doc, 0)


def query(tokens: Row, pos: Row, *, at: Row, pos2: Row = 0, seg: Row = 0, doc: Row = 0) -> Slots:
    """Slots that ask and that nobody sees, not even themselves: never born."""
    return _slots(tokens, pos, pos2, seg, at, NEVER, NEVER, doc, 0)


def _slots(tokens: Row, *others: Row) -> Slots:
    tokens = np.asarray(tokens, np.int64)
    table = np.zeros((len(FIELDS), len(tokens)), np.int64)
    table[TOKEN] = tokens
    for number, row in enumerate(others, start=1):
        if not isinstance(row, int) or row:  # half of them are 0
            table[number] = row
    return Slots(table)


def reads_one_by_one(table: Ids) -> bool:
    """Whether slots [9, T] are texts that a recurrent network can read.

    Those of a doc stay and have a time each, and their positions all rise or all fall with it.
    """
    ordered = table[:, np.lexsort((table[NOW], table[DOC]))]  # by doc, then by time
    step = np.diff(ordered)[:, np.diff(ordered[DOC]) == 0]
    stays = (ordered[DIES] == NEVER) & (ordered[BORN] == ordered[NOW])
    forward = (step[POS] > 0).all()
    backward = (step[POS] < 0).all()
    return bool(stays.all() and (step[NOW] > 0).all() and (forward or backward))


@dataclass(frozen=True)
class Ask:
    """What is predicted: the label is at the slot that is read, nothing is shifted later.

    `name` keys the mean and the log line, `head` the output layer (lm, or KIND:NAME). `rows` [K, a]
    are slot numbers of the tower; a question may read several slots (the options of a choice). A
    batch holds flat numbers b * T + t, and -1 after questions that read fewer slots than others.
    `label` [K] are ids or float targets, or [K, 2] a span's borders; `weight` [K] may be 0.
    `among` [C] are the ids that labels choose from: a label is a place in it, not an id.
    """

    name: str
    head: str
    tower: str
    rows: Any
    label: Any
    weight: Any
    among: Any = None

    first = property(lambda self: self.rows[:, 0])  # the first slot of each question, [K]
    arrays = property(lambda self: (self.rows, self.label, self.weight, self.among))


def lm(rows: Ids, label: npt.ArrayLike, *, name: str = "lm", tower: str = "x") -> Ask:
    """Ask the vocabulary head for `label` at `rows`, one slot a question."""
    labels = np.asarray(label, np.int64)
    if len(rows) != len(labels):
        raise ValueError(f"ask {name!r} has {len(rows)} rows and {len(labels)} labels")
    weights = np.ones(len(labels), np.float32)
    return Ask(name, "lm", tower, np.asarray(rows, np.int64)[:, None], labels, weights)


@dataclass(frozen=True)
class Example:
    """One training or decoding example: its towers, and what they are asked.

    `towers` are {"x"}, {"enc", "dec"} or others that the architecture has; the last one is decoded.
    `blanks` [M, 2] are (pos, pos2) of the further blanks, which decoding fills after the first.
    `inputs` are arrays beside the tokens: TOWER.NAME [T, ...] has a row for each slot of a tower
    (the characters of words [T, C], linked entities [T]), NAME [n, ...] one for each doc (the
    number of a task).
    """

    towers: dict[str, Slots]
    asks: list[Ask] = field(default_factory=list)
    blanks: Ids = field(default_factory=lambda: NO_BLANKS)
    inputs: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def decoded(self) -> str:
        """The tower that writes."""
        return next(reversed(self.towers))


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """How a task decodes, as data: the decoder calls no task code in a step (docs/design.md)."""

    end: int  # closes an output or a blank; never fed back
    probe: int | None = None
    """None: shift, the next word is read at the last one. Otherwise the id that asks for it."""
    unseen: bool = False  # the slot that asks is a query, which does not see itself (XLNet)
    dpos: int = 1
    dpos2: int = 0  # where the next slot is relative to the one read (GLM: 0, 1)
    begin: int | None = None  # opens the next blank (GLM: start of piece)
    banned: tuple[int, ...] = ()  # ids that are never generated
    endless: bool = False  # the model has no end: `--max-len` alone closes an output, at no cost
    opened: int = 0  # symbols before an output that its length penalty counts as words (BART)


@dataclass(frozen=True)
class Batch:
    """Rows of packed examples of one task; numpy arrays until `to` makes them tensors.

    B rows, T slots (a multiple of `WIDTH`), N docs in the batch, n docs a row at most.
    """

    towers: dict[str, Any]
    """[9, B, T] each; `doc` is unique in the batch, never-born slots come last."""
    asks: dict[str, Ask]
    num_keys: dict[str, int]  # keys are computed for this many slots, the first ones
    sight: dict[str, str]
    """"full": every key is visible; "causal": the plain triangle; "rule": the dense mask."""
    count: dict[str, float]  # weight sum of each ask, known on the host before backward
    docs: Any  # [B, n] docs of each row, -1 where there are fewer
    owner: Any  # [N] number of the example a doc belongs to, in the order of `collate`'s rows
    last: Any  # [B] the slot decoding reads first: the last slot of the row's decoding tower
    blanks: Any  # [B, M, 2] (pos, pos2) of further blanks, right-padded with 0
    num_blanks: Any  # [B]
    num_real: int  # slots of all towers that are no pads
    decoded: str  # the tower that writes
    inputs: dict[str, Any]
    """The `Example.inputs` by name: [B, T, ...] beside the slots of a tower, or [N, ...]."""
    stateful_rows: Any = None
    """[B] numbers of the stateful rows that these rows continue; None: all begin anew."""
    carry: dict[str, Any] = field(default_factory=dict)
    """States that stateful rows carry from their previous text, [B, ...] by name; else empty."""
    packed: dict[str, Any] = field(default_factory=dict)
    """The documents of towers whose slots see no more than these (`PackedDocs`), if known."""
    only_asked: bool = False
    """Nothing but the states that asks read is needed: a model may leave the others 0."""

    @property
    def num_slots(self) -> int:
        """Slots of the forward pass, pads included, over all towers."""
        return sum(table.shape[1] * table.shape[2] for table in self.towers.values())

    def to(self, device: Any) -> Batch:
        """The same batch with tensors on a device."""
        import torch

        pinned = torch.device(device).type == "cuda"

        def tensor(array: Any) -> Any:
            if array is None:
                return None
            on_host = torch.from_numpy(np.ascontiguousarray(array))
            return (on_host.pin_memory() if pinned else on_host).to(device, non_blocking=pinned)

        asks = {
            name: Ask(ask.name, ask.head, ask.tower, *map(tensor, ask.arrays))
            for name, ask in self.asks.items()
        }
        towers = {name: tensor(table) for name, table in self.towers.items()}
        inputs = {name: tensor(array) for name, array in self.inputs.items()}
        packed = {
            name: replace(docs, bounds=tensor(docs.bounds)) for name, docs in self.packed.items()
        }
        arrays = ("docs", "owner", "last", "blanks", "num_blanks", "stateful_rows")
        moved = {name: tensor(getattr(self, name)) for name in arrays}
        return replace(self, towers=towers, asks=asks, inputs=inputs, packed=packed, **moved)


def collate(rows: Sequence[Sequence[Example]]) -> Batch:
    """Pack each row's examples one after the other and pad the rows.

    All examples have the same towers. A pad looks at its row's first doc and nobody looks at it,
    so no row of a mask is empty. Its token is 0, which every tower's table has.
    """
    examples = [example for row in rows for example in row]
    edge = np.cumsum([0, *map(len, rows)])  # the first example of each row, and the end
    names = list(examples[0].towers)
    tables = {name: [example.towers[name].table for example in examples] for name in names}
    starts = {name: np.cumsum([0, *(t.shape[1] for t in tables[name])]) for name in names}
    last_doc = [
        np.maximum.reduceat(np.concatenate([t[DOC] for t in tables[name]]), starts[name][:-1])
        for name in names
    ]
    # docs count from 0 in each example, and from one example to the next in a batch
    num_docs = np.maximum.reduce(last_doc) + 1
    first_doc = np.append(0, num_docs.cumsum())
    towers = {name: _pack(tables[name], starts[name], edge, first_doc) for name in names}
    row_docs = first_doc[edge]  # the first doc of each row, and the end
    most_docs = np.diff(row_docs).max()
    docs = row_docs[:-1, None] + np.arange(most_docs)
    sight = dict.fromkeys(names, "rule")
    if most_docs == 1:
        sight = {name: _sight(towers[name].table, np.diff(starts[name][edge])) for name in names}
    asks = _asks(examples, towers)
    decoded = towers[examples[0].decoded]
    num_blanks = np.array([len(row[-1].blanks) for row in rows])
    blanks = np.zeros((len(rows), num_blanks.max(initial=0), 2), np.int64)
    for b in num_blanks.nonzero()[0].tolist():
        blanks[b, : num_blanks[b]] = rows[b][-1].blanks
    return Batch(
        towers={name: tower.table for name, tower in towers.items()},
        asks=asks,
        num_keys={name: tower.num_keys for name, tower in towers.items()},
        sight=sight,
        count={name: float(ask.weight.sum()) for name, ask in asks.items()},
        docs=np.where(docs < row_docs[1:, None], docs, -1),
        owner=np.arange(len(examples)).repeat(num_docs),
        last=decoded.place[decoded.starts[edge[1:]] - 1] % decoded.table.shape[2],
        blanks=blanks,
        num_blanks=num_blanks,
        num_real=sum(len(tower.place) for tower in towers.values()),
        decoded=examples[0].decoded,
        inputs={name: _input(name, examples, towers) for name in examples[0].inputs},
    )


@dataclass(frozen=True)
class _Packed:
    """A tower of a batch, and where the slots of the examples are in it."""

    table: Ids  # [9, B, T]
    num_keys: int
    """Only the first `num_keys` slots of a row are keys."""
    starts: Ids
    """[N + 1]: where each example begins in the line of all examples' slots, and the end."""
    place: Ids
    """Where each slot of that line is: flat numbers b * T + t."""


def _pack(tables: list[Ids], starts: Ids, edge: Ids, first_doc: Ids) -> _Packed:
    """Put the slots of all examples into rows.

    Example i has the slots `tables[i]` [9, n], `starts[i : i + 2]` of all in a line, and its first
    doc is `first_doc[i]`. Row b has the examples `edge[b : b + 2]`.
    """
    begins = starts[edge]
    lengths = np.diff(begins)
    width = -(-int(lengths.max()) // WIDTH) * WIDTH
    moved = width * np.arange(len(lengths)) - begins[:-1]  # from the line to where a row begins
    place = np.arange(starts[-1]) + moved.repeat(lengths)
    table = np.empty((len(FIELDS), len(lengths), width), np.int64)
    flat = table.reshape(len(FIELDS), -1)
    for begin, slots in zip(place[starts[:-1]].tolist(), tables, strict=True):
        flat[:, begin : begin + slots.shape[1]] = slots
    flat[DOC, place] += first_doc[:-1].repeat(np.diff(starts))
    for row, length in enumerate(lengths.tolist()):
        table[:, row, length:] = PAD
        table[DOC, row, length:] = first_doc[edge[row]]
    # Slots that are never born are no keys: a stable sort by (row, unborn) gives them the last
    # places of their row, so that keys are made of the first `num_keys` slots only.
    unborn = table[BORN] == NEVER
    num_keys = int(lengths.max())
    if np.count_nonzero(unborn) > unborn.size - len(place):  # others than pads
        order = np.argsort(unborn, axis=1, kind="stable")
        table = np.take_along_axis(table, order[None], axis=2)
        place = (np.argsort(order, axis=1) + width * np.arange(len(order))[:, None]).ravel()[place]
        num_keys = max(width - int(np.count_nonzero(unborn, axis=1).min()), 1)
    return _Packed(table, num_keys, starts, place)


def _input(name: str, examples: list[Example], towers: dict[str, _Packed]) -> npt.NDArray[Any]:
    """An input of all examples, its rows where the slots of its tower or the docs are.

    Axes after the first are padded with 0 to the longest; so are the rows of pads.
    """
    arrays = [example.inputs[name] for example in examples]
    longest = np.max([array.shape[1:] for array in arrays], axis=0).astype(int)
    rows = np.concatenate(
        [np.pad(a, [(0, 0), *((0, n) for n in longest - a.shape[1:])]) for a in arrays]
    )
    tower = name.rpartition(".")[0]
    if not tower:
        return rows  # docs are numbered in the order of the examples
    table = towers[tower].table
    placed = np.zeros((*table.shape[1:], *longest), rows.dtype)
    placed.reshape(-1, *longest)[towers[tower].place] = rows
    return placed


def _sight(table: Ids, lengths: Ids) -> str:
    """Which fast rendering of the rule is exact for rows of these lengths and one doc, if any."""
    now, born, dies = table[NOW], table[BORN], table[DIES]
    if (born.max(axis=1) <= now.min(axis=1)).all() and (now.max(axis=1) <= dies.min(axis=1)).all():
        return "full"
    real = np.arange(table.shape[2]) < lengths[:, None]
    # the plain triangle: slots that stay, in the order of their times
    stays = ((born == now) & (dies == NEVER)) | ~real
    rising = (now[:, 1:] > now[:, :-1]) | ~real[:, 1:]
    return "causal" if stays.all() and rising.all() else "rule"


def _asks(examples: list[Example], towers: dict[str, _Packed]) -> dict[str, Ask]:
    """The asks of all examples by name, their rows as flat numbers b * T + t."""
    by_name: dict[str, list[tuple[Ask, int]]] = {}
    for number, example in enumerate(examples):
        for ask in example.asks:
            by_name.setdefault(ask.name, []).append((ask, number))
    joined = {}
    for name, numbered in by_name.items():
        asks = [ask for ask, _ in numbered]
        tower = towers[asks[0].tower]
        questions = [ask.rows for ask in asks]
        width = max(rows.shape[1] for rows in questions)
        if width > 1:  # some questions read fewer slots than others: these end with -1
            questions = [
                np.pad(rows, [(0, 0), (0, width - rows.shape[1])], constant_values=-1)
                for rows in questions
            ]
        # slot of the example -> of all examples in a line -> flat place in [B, T]
        which = np.array([number for _, number in numbered]).repeat([*map(len, questions)])
        rows = np.concatenate(questions)
        begin = tower.starts[which]
        if (rows[:, 0] < 0).any() or (rows + begin[:, None] >= tower.starts[which + 1, None]).any():
            raise ValueError(f"ask {name!r} reads a slot that its example does not have")
        rows = np.where(rows < 0, -1, tower.place[rows + begin[:, None]])
        labels = [ask.label for ask in asks]
        among = None
        if asks[0].among is not None:
            # the batch's candidates are those of all examples, each once
            among, index = np.unique(np.concatenate([a.among for a in asks]), return_inverse=True)
            begins = np.cumsum([0] + [len(ask.among) for ask in asks[:-1]])
            labels = [index[begin + ask.label] for begin, ask in zip(begins, asks, strict=True)]
        weight = np.concatenate([ask.weight for ask in asks])
        label = np.concatenate(labels)
        joined[name] = Ask(name, asks[0].head, asks[0].tower, rows, label, weight, among)
    return joined


def unroll(prompt: Example, protocol: Protocol, written: npt.ArrayLike) -> Example:
    """Lay out decoding `written` after `prompt` for one pass, with an ask per word.

    Where a protocol opens further blanks (`begin`), `written` holds the words of every blank in
    turn, each closed by `protocol.end`; elsewhere the end is a word like any other, such as a
    separator within a text. The last end may be missing (an open hypothesis). Word j is asked for
    at the slot that decoding would read.
    """
    words = np.asarray(written, np.int64)
    tower = prompt.decoded
    slots = prompt.towers[tower]
    n = len(words)
    start = len(slots) - 1
    fed = words[:-1]
    closed = (words[:-1] == protocol.end) & (protocol.begin is not None)
    step = np.arange(n)
    home = slots.table[POS : POS2 + 1, -1:]
    if closed.any():
        # word j is in blank `blank[j]`, `step[j]` steps after the slot read first there
        blank = np.append(0, closed.cumsum())
        step = step - np.append(0, np.flatnonzero(closed) + 1)[blank]
        homes = np.concatenate([home.T, prompt.blanks])
        if (outputs := blank[-1] + 1) > len(homes):
            raise ValueError(f"{outputs} outputs written, but the prompt has {len(homes)} blanks")
        home = homes[blank].T
    pos, pos2 = home[0] + step * protocol.dpos, home[1] + step * protocol.dpos2
    seg = slots.seg[-1]
    doc = slots.doc[-1]
    now = slots.now.max()
    times = np.arange(1, n)
    if protocol.probe is None:
        # the slot that is read for word j holds word j - 1, or opens a blank
        if protocol.begin is not None:
            fed = np.where(closed, protocol.begin, fed)
        further = stay(fed, pos[1:], pos2=pos2[1:], at=now + times, seg=seg, doc=doc)
        rows = start + np.arange(n)
    else:
        read = stay(fed, pos[:-1], pos2=pos2[:-1], at=now + 2 * times - 1, seg=seg, doc=doc)
        masks = np.full(n - 1, protocol.probe)
        at = now + 2 * times
        layout = query if protocol.unseen else probe
        probes = layout(masks, pos[1:], pos2=pos2[1:], at=at, seg=seg, doc=doc)
        # word, probe, word, probe, ...
        order = np.arange(2 * max(n - 1, 0)).reshape(2, -1).T.ravel()
        further = (read + probes).take(order)
        rows = start + 2 * np.arange(n)  # the probes
    asks = [lm(rows, words, tower=tower)]
    return replace(prompt, towers={**prompt.towers, tower: slots + further}, asks=asks)
