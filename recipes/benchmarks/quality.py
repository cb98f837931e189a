"""The processor time that unitk needs for the loss of two short scripts, on the same text.

    python recipes/benchmarks/quality.py [--data train --valid valid] [--updates 240]

`script` is a modern model of 4 layers of 256: RMS norm, rotary positions, norms of queries and
keys, squared ReLU, outputs that begin at zero, and torch's Muon. `gpt` is a GPT-2 of that size with
AdamW and a cosine, as short training loops have it. unitk trains with its defaults; every
`--unitk "--lr 6e-3"` is a further row with these options. All read windows of 256 tokens with the
same vocabulary, 16 in an update, in bf16 on one thread, and take turns of 20 updates. After each
turn the loss of the same held-out windows is computed, whose time does not count. Printed are nats
a byte, and how much sooner, in processor time, each row has the last loss of the others.
"""

from __future__ import annotations

import argparse
import math
import shlex
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from train import SAMPLE

from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.decoding.forced import ask_all_tokens, logits
from unitk.training.loop import Trainer
from unitk.training.start import parse_train, prepare
from unitk.vocab.open import open_vocab

WINDOW = 256


class Attention(nn.Module):
    """Causal attention of 4 heads; with `modern`, rotary and with norms of queries and keys."""

    def __init__(self, width: int, modern: bool) -> None:
        super().__init__()
        self.into, self.out = (nn.Linear(width, n * width, bias=not modern) for n in (3, 1))
        self.modern = modern
        if modern:
            nn.init.zeros_(self.out.weight)
        rate = 10_000 ** (-torch.arange(0, 32) / 32)
        turn = torch.arange(WINDOW)[:, None] * rate
        self.register_buffer("cos", turn.cos())
        self.register_buffer("sin", turn.sin())

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(x).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
        if self.modern:
            q, k = (self.turned(F.rms_norm(one, (64,))) for one in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def turned(self, x: Tensor) -> Tensor:
        first, other = x.chunk(2, -1)
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        return torch.cat([first * cos + other * sin, other * cos - first * sin], -1).to(x.dtype)


class Squared(nn.ReLU):
    """The square of ReLU (So et al. 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).square()


def feed_forward(width: int, modern: bool) -> nn.Sequential:
    """Two maps with four times the width between them."""
    into, out = (nn.Linear(*sizes, bias=not modern) for sizes in ((width, 1024), (1024, width)))
    return nn.Sequential(into, Squared() if modern else nn.GELU("tanh"), out)


class Net(nn.Module):
    """A causal model of 4 layers, with tied embeddings."""

    def __init__(self, size: int, modern: bool, width: int = 256) -> None:
        super().__init__()
        self.embed, self.modern, self.width = nn.Embedding(size, width), modern, width
        nn.init.normal_(self.embed.weight, std=0.02)
        self.places = None if modern else nn.Embedding(WINDOW, width)
        self.mix = nn.ModuleList(Attention(width, modern) for _ in range(4))
        self.ffn = nn.ModuleList(feed_forward(width, modern) for _ in range(4))
        norm = nn.Identity if modern else nn.LayerNorm
        self.norms = nn.ModuleList(norm(width) for _ in range(9))
        if modern:
            for ffn in self.ffn:
                nn.init.zeros_(ffn[2].weight)
        else:
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    deep = name.endswith(("out.weight", "2.weight"))
                    nn.init.normal_(weight, std=0.02 / (math.sqrt(8) if deep else 1))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        if self.places is not None:
            x = x + self.places.weight[: ids.shape[1]]
        norms = (self.normal(norm) for norm in self.norms)
        for mix, ffn in zip(self.mix, self.ffn, strict=True):
            x = x + mix(next(norms)(x))
            x = x + ffn(next(norms)(x))
        return F.linear(next(norms)(x), self.embed.weight)

    def normal(self, norm: nn.Module) -> Callable[[Tensor], Tensor]:
        return (lambda x: F.rms_norm(x, (self.width,))) if self.modern else norm


@dataclass
class Row:
    """One way to train: its updates, how its loss is computed, and what was measured."""

    name: str
    advance: Callable[[int], None]
    loss: Callable[[], float]
    seconds: list[float] = field(default_factory=lambda: [0.0])
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.losses.append(self.loss())

    def turn(self, windows: int) -> None:
        began = time.process_time()
        self.advance(windows)
        self.seconds.append(time.process_time() - began + self.seconds[-1])
        self.losses.append(self.loss())

    def reaches(self, loss: float) -> float:
        """Processor seconds to a loss, interpolated between turns; NaN if it is never reached."""
        turns = zip(pairwise(self.seconds), pairwise(self.losses), strict=True)
        for (before, after), (high, low) in turns:
            if low <= loss < high:
                return before + (after - before) * (high - loss) / (high - low)
        return math.nan


def peer(modern: bool, size: int, train: Tensor, valid: Tensor, args: argparse.Namespace) -> Row:
    """A script's model, optimizer and loop."""
    updates, texts = args.updates, args.texts
    torch.manual_seed(1)
    net, drawn = Net(size, modern), torch.Generator().manual_seed(1)
    if modern:
        matrices = [p for name, p in net.named_parameters() if "embed" not in name]
        optimizers = [
            torch.optim.Muon(matrices, lr=4e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([net.embed.weight], lr=4e-3, betas=(0.9, 0.95), weight_decay=0.0),
        ]
    else:
        decayed = [p for p in net.parameters() if p.dim() == 2]
        plain = [p for p in net.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        optimizers = [torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.95))]
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    done = 0

    def share(step: int) -> float:
        warm = min(1.0, (step + 1) / (0.06 * updates))
        rest = step / updates
        return warm * ((1 - rest) if modern else 0.1 + 0.45 * (1 + math.cos(math.pi * rest)))

    def advance(windows: int) -> None:
        nonlocal done
        for _ in range(windows // texts):
            first = torch.randint(len(train) - WINDOW - 1, (texts,), generator=drawn)
            ids = torch.stack([train[at : at + WINDOW + 1] for at in first.tolist()])
            with torch.autocast("cpu", torch.bfloat16):
                words = net(ids[:, :-1])
            F.cross_entropy(words.float().flatten(0, 1), ids[:, 1:].flatten()).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            for optimizer, own in zip(optimizers, rates, strict=True):
                for group, rate in zip(optimizer.param_groups, own, strict=True):
                    group["lr"] = rate * share(done)
                optimizer.step()
                optimizer.zero_grad()
            done += 1

    @torch.inference_mode()
    def loss() -> float:
        return sum(
            F.cross_entropy(
                net(some[:, :-1]).flatten(0, 1), some[:, 1:].flatten(), reduction="sum"
            ).item()
            for some in valid.split(16)
        )

    return Row("script" if modern else "gpt", advance, loss)


def ours(flags: str, data: Path, folder: Path, valid: Tensor, args: argparse.Namespace) -> Row:
    """unitk's own training, by its defaults and some flags."""
    own = shlex.split(flags)
    size = args.texts * WINDOW
    if "--batch-tokens" in own:
        size = int(own[own.index("--batch-tokens") + 1])
    words = (
        f"--data={data} --task=lm --task.opening=none --task.ends=off --blocks=stream --valid=none"
        f" --block-size={WINDOW} --max-tokens={size} --seed=1"
        f" --max-steps={args.updates * args.texts * WINDOW // size}"
        f" --device=cpu --precision=bf16 --save-dir={folder}"
    )
    trainer = Trainer(prepare(parse_train([*words.split(), *own])))
    trainer.model.train()
    updates = trainer.updates()

    def advance(windows: int) -> None:
        for _ in range(windows * WINDOW // size):
            trainer.update(next(updates)[0])
            trainer.progress.step += 1  # which the rates depend on
        trainer.finish_updates()

    def loss() -> float:
        trainer.model.eval()
        total = 0.0
        for some in valid.split(16):
            examples = [ask_all_tokens(trainer.data.task, ids[:-1].numpy(), None) for ids in some]
            tables = logits(trainer.model, examples, WINDOW * 16)
            for table, ids in zip(tables, some, strict=True):
                total += F.cross_entropy(torch.from_numpy(table), ids[1:], reduction="sum").item()
        trainer.model.train()
        return total

    return Row(f"unitk {flags}".strip(), advance, loss)


def corpora(folder: Path) -> tuple[Path, Path]:
    """The bundled documents, as corpora for training and validation."""
    files = {part: SAMPLE / f"openstax.{part}.jsonl.gz" for part in ("train", "valid")}
    preprocess(
        Options(
            input=(str(files["train"]),),
            valid=(str(files["valid"]),),
            sentences="punct",
            dest=folder / "corpus",
            vocab_size=8000,
        )
    )
    return folder / "corpus" / "train", folder / "corpus" / "valid"


def ids_of(path: Path) -> Tensor:
    """All tokens of a corpus, in its order."""
    corpus = Corpus(path)
    return torch.from_numpy(corpus.tokens(0, corpus.counts.tokens).astype(np.int64))


def main() -> None:
    """Train in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="corpus instead of the bundled sample")
    parser.add_argument("--valid", type=Path, help="its held-out corpus")
    parser.add_argument("--updates", type=int, default=240)
    parser.add_argument("--texts", type=int, default=16, help="windows of an update")
    parser.add_argument("--turn", type=int, default=20, help="updates of a turn")
    parser.add_argument("--windows", type=int, default=96, help="held-out windows")
    parser.add_argument("--unitk", action="append", default=[], help="flags of a further row")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, held = (args.data, args.valid) if args.data else corpora(folder)
        train, text, vocab = ids_of(data), ids_of(held), open_vocab(data)
        valid = text[: len(text) // (WINDOW + 1) * (WINDOW + 1)].view(-1, WINDOW + 1)[
            : args.windows
        ]
        size = len(vocab)
        # what the first token of a window says is not predicted
        bytes_ = sum(len(vocab.decode(ids[1:].tolist()).encode()) for ids in valid)
        rows = [peer(modern, size, train, valid, args) for modern in (True, False)]
        for number, flags in enumerate(["", *args.unitk]):
            rows.append(ours(flags, data, folder / f"run{number}", valid, args))
        for _ in range(args.updates // args.turn):
            for row in rows:
                row.turn(args.turn * args.texts)
            print(
                ", ".join(f"{row.name} {row.losses[-1] / bytes_:.4f}" for row in rows), flush=True
            )
    report(rows, bytes_)


def report(rows: list[Row], bytes_: int) -> None:
    """Print nats a byte, seconds, and how much sooner each row has the last loss of the others."""
    quarters = [(len(rows[0].losses) - 1) * part // 4 for part in (1, 2, 3, 4)]
    others = " | ".join(f"times as fast as `{row.name}`" for row in rows)
    print(f"\n| nats a byte after | 1/4 | 1/2 | 3/4 | end | processor s | {others} |")
    print("| --- " * (6 + len(rows)) + "|")
    for row in rows:
        losses = " | ".join(f"{row.losses[at] / bytes_:.3f}" for at in quarters)
        shares = [other.seconds[-1] / row.reaches(other.losses[-1]) for other in rows]
        times = " | ".join("-" if math.isnan(share) else f"{share:.2f}" for share in shares)
        print(f"| `{row.name}` | {losses} | {row.seconds[-1]:.0f} | {times} |")
    print(f"\ntorch {torch.__version__}, one thread, seed 1")


if __name__ == "__main__":
    main()
