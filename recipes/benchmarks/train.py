"""How fast unitk trains on this machine, and how fast examples are built.

    python recipes/benchmarks/train.py [--arch glm_base] [--precision bf16] [--threads 1,2]

The data is a corpus folder (--data), or else the bundled sample, preprocessed into a temporary
folder. For each number of threads and each precision the same updates are made, in turns, and the
best of the rounds is printed: real slots a second (pads not counted), text tokens a second, both
also for each second of processor time (which says the same on a busy machine), and the floating
point operations that the model needs, as a share of what one large matrix product reaches there;
how long building the batches takes beside that, on another thread; and the mean loss. Before that,
how fast the examples of every objective are built.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from unitk import registry
from unitk.data.batching import Update, draw_all, make_batch
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.training.loop import Trainer
from unitk.training.measures import Means
from unitk.training.start import parse_train, prepare

OBJECTIVES = "mlm,lm,unilm,pmlm,glm_infill,mass,optimus"
SAMPLE = Path(__file__).parents[1] / "quickstart/data/openstax-ccby"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="corpus folder instead of the bundled sample")
    parser.add_argument("--task", default="glm_infill")
    parser.add_argument("--arch", default="glm_small")
    parser.add_argument("--block-size", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=8192, help="slots of an update")
    parser.add_argument("--precision", default="fp32,bf16")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--updates", type=int, default=4, help="measured at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1, help="updates before those measured")
    parser.add_argument("--flags", default="", help="further flags of unitk train, in quotes")
    parser.add_argument("--build", default=OBJECTIVES, help="tasks whose examples are built, or ''")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = args.data or sample(Path(folder))
        for task in filter(None, args.build.split(",")):
            arch = registry.get("task", task).arch
            other = argparse.Namespace(**{**vars(args), "task": task, "arch": arch})
            build_examples(trainer(other, data, Path(folder), "fp32"))
        train(args, data, Path(folder))


def sample(folder: Path) -> Path:
    """The bundled documents as a corpus."""
    files = (str(SAMPLE / "openstax.train.jsonl.gz"),)
    preprocess(Options(input=files, sentences="punct", dest=folder / "corpus", vocab_size=8000))
    return folder / "corpus"


def trainer(args: argparse.Namespace, data: Path, folder: Path, precision: str) -> Trainer:
    """What `unitk train` would train with."""
    words = (
        f"--data={data} --task={args.task} --arch={args.arch} --valid=none --max-steps=1000"
        f" --block-size={args.block_size} --max-tokens={args.max_tokens} --device={args.device}"
        f" --precision={precision} --save-dir={folder / 'run'}"
    )
    flags = shlex.split(args.flags)
    built = Trainer(prepare(parse_train([*words.split(), *flags])))
    built.model.train()
    return built


def build_examples(trainer: Trainer) -> None:
    """Examples and batches a second of one thread, drawn as in an epoch; the best of five turns."""
    source, config = trainer.data.train, trainer.config
    bounds = source.bounds(0)
    order = np.random.default_rng(0).permutation(len(bounds))[:2000]
    size = max(1, config.max_tokens // config.block_size)
    turns, real, slots = [], 0, 0
    for _ in range(5):
        drawing = batching = 0.0
        for some in np.array_split(order, -(-len(order) // size)):
            start = time.process_time()
            examples = draw_all(source, config.seed, 0, some)
            drawn = time.process_time()
            batch = make_batch(examples)
            real, slots = real + batch.num_real, slots + batch.num_slots
            drawing, batching = drawing + drawn - start, batching + time.process_time() - start
        turns.append((drawing, batching))
    drawing, batching = map(min, zip(*turns, strict=True))
    tokens, count = source.items.lengths[order].sum(), len(order)
    print(
        f"{trainer.start.parsed.settings['task'].text}: examples of {tokens / count:.0f} tokens:"
        f" {count / drawing:,.0f}/s, with batches {count / batching:,.0f}/s or"
        f" {tokens / batching:,.0f} tokens/s; {1 - real / slots:.1%} of the slots are pads",
        flush=True,
    )


def train(args: argparse.Namespace, data: Path, folder: Path) -> None:
    """The same updates in every precision and with every number of threads, in turns."""
    ways = [(int(t), p) for t in args.threads.split(",") for p in args.precision.split(",")]
    trainers = {precision: trainer(args, data, folder, precision) for _, precision in ways}
    first_trainer = next(iter(trainers.values()))
    size = sum(parameter.numel() for parameter in first_trainer.model.parameters())
    print(
        f"{args.task}, {args.arch}: {size / 1e6:.1f} M parameters, on {first_trainer.device.type}"
    )
    began = time.process_time()
    laid = list(islice(first_trainer.updates(), args.warm + args.updates))
    building = (time.process_time() - began) / len(laid) * args.updates
    warm, updates = (
        [first_trainer[0] for first_trainer in part]
        for part in (laid[: args.warm], laid[args.warm :])
    )
    tokens, slots = (
        sum(n for _, n, _ in laid[args.warm :]),
        sum(b.num_real for u in updates for b in u.batches),
    )
    work = sum(operations(first_trainer, update) for update in updates)
    best: dict[tuple[int, str], tuple[float, float]] = {}
    for _ in range(args.rounds):
        for way in ways:
            threads, precision = way
            torch.set_num_threads(threads)
            timed(trainers[precision], warm)
            trainers[precision].means = Means()
            took = timed(trainers[precision], updates)
            best[way] = min(best.get(way, took), took)
    titles = f"{'slots/s':>9} {'tokens/s':>9} {'tokens/processor s':>19} {'of matmul':>10}"
    print(f"{'':<18} {titles} {'data':>6} {'updates/s':>9} {'loss':>7}")
    for (threads, precision), (seconds, processor) in best.items():
        torch.set_num_threads(threads)
        loss = trainers[precision].means.values("train", {})["train/loss"]
        share = work / seconds / matmul_speed(first_trainer.device, precision)
        name, data_share = f"{threads} threads, {precision}", building / seconds
        print(
            f"{name:<18} {slots / seconds:9,.0f} {tokens / seconds:9,.0f}"
            f" {tokens / processor:19,.0f} {share:10.0%} {data_share:6.1%}"
            f" {args.updates / seconds:9.1f} {loss:7.4f}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if first_trainer.device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 1e9
    print(f"peak memory {peak:.2f} GB, torch {torch.__version__}")


def timed(trainer: Trainer, updates: Sequence[Update]) -> tuple[float, float]:
    """Seconds, and seconds of processor time, that some updates take, to the end of the last."""
    trainer.finish_updates()
    start, busy = time.perf_counter(), time.process_time()
    for update in updates:
        trainer.update(update)
    trainer.finish_updates()
    return time.perf_counter() - start, time.process_time() - busy


def operations(trainer: Trainer, update: Update) -> float:
    """Floating point operations of the matrix products, forward and backward, pads included."""
    arch = trainer.model.config
    total = 0.0
    for batch in update.batches:
        table = batch.towers["x"]
        slots, width = table.shape[1] * table.shape[2], table.shape[2]
        layer = 4 * arch.width**2 + 2 * arch.width * arch.ffn_width
        total += 6 * slots * arch.num_layers * (layer + 2 * width * arch.width)
        rows = sum(len(ask.rows) for ask in batch.asks.values())
        total += 6 * rows * len(trainer.data.vocab) * arch.width
    return total


def matmul_speed(device: torch.device, precision: str) -> float:
    """Operations a second of one large matrix product."""
    n = 8192 if device.type == "cuda" else 1536
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a = torch.randn(n, n, device=device, dtype=kind)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        a @ a
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best


if __name__ == "__main__":
    main()
