"""How fast texts are judged and labelled, side by side with transformers, on one thread of a CPU.

    python recipes/benchmarks/read.py [--cases pairs,labels] [--texts 128] [--rounds 3]

`pairs`: log-probabilities of minimal pairs as BLiMP has them, two sentences of 6 to 14 words of
which one differs, by GPT-2 small (`unitk evaluate --pairs`). `labels`: classes of texts of 8 to 64
words by BERT base (`unitk predict`). Both sides have the same random weights for pairs, which must
give the same sums, and weights of the same shapes for labels. transformers reads batches of 64
padded texts, sorted by length. Both run in turns; the least processor time of each counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import decode
import numpy as np
import torch

from unitk.decoding.config import PredictConfig
from unitk.decoding.likelihood import likelihoods
from unitk.decoding.understand.predict import predict
from unitk.kernels.products import keep_memory
from unitk.kernels.weights import prepare_weights
from unitk.models import archs
from unitk.registry import get
from unitk.slots import Ids
from unitk.vocab.words import word_vocab

BATCH = 64
Run = Callable[[], np.ndarray]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="pairs,labels")
    parser.add_argument("--texts", type=int, default=128, help="pairs, or texts")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.cases.split(","):
        ours, theirs = {"pairs": pairs, "labels": labels}[name](args.texts)
        turns = [[seconds(ours), seconds(theirs)] for _ in range(args.rounds + 1)]
        own, peer = np.min(turns[1:], axis=0)  # without the first turn of each
        print(
            f"{name}: unitk {args.texts / own:.1f} a second, transformers "
            f"{args.texts / peer:.1f}, ratio {peer / own:.2f}",
            flush=True,
        )


def seconds(run: Run) -> float:
    """Processor seconds of a run."""
    start = time.process_time()
    run()
    return time.process_time() - start


def padded(texts: list[Ids]) -> list[tuple[list[int], torch.Tensor, torch.Tensor]]:
    """Batches of texts of similar length: their numbers, ids and which are no pads."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    batches = []
    for at in range(0, len(order), BATCH):
        some = order[at : at + BATCH]
        ids_of_texts = [torch.from_numpy(texts[i]) for i in some]
        ids = torch.nn.utils.rnn.pad_sequence(ids_of_texts, batch_first=True)
        size = torch.tensor([[len(text)] for text in ids_of_texts])
        batches.append((some, ids, torch.arange(ids.shape[1]) < size))
    return batches


def pairs(count: int) -> tuple[Run, Run]:
    """Sums of the log-probabilities of sentences, two for each pair."""
    case = replace(decode.CASES["lm-256"], rows=1)
    model = decode.build(case)
    peer_model = decode.reference(case, model)
    task = get("task", "lm")(get("task", "lm").Config(), word_vocab("a b c"))
    task = task.with_trained(pairs=False)  # it learned from texts
    first = task.prompt([np.empty(0, np.int64)]).towers["x"].token
    rng, texts = np.random.default_rng(0), list[Ids]()
    for _ in range(count):
        good = rng.integers(100, 50_000, rng.integers(6, 15))
        bad = good.copy()
        bad[rng.integers(1, len(good))] = 99
        texts += [good, bad]
    keep_memory()
    ready = prepare_weights(model, "fp32")

    def ours() -> np.ndarray:
        found = likelihoods(ready, task, [(text[:0], text) for text in texts])
        return np.array([gains.sum() for gains, _ in found])

    opened = [np.concatenate([first, text]) for text in texts]

    @torch.inference_mode()
    def peer() -> np.ndarray:
        found = np.zeros(len(texts))
        for numbers, ids, real in padded(opened):
            logits = peer_model(input_ids=ids, attention_mask=real.long()).logits[:, :-1]
            gains = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0] * real[:, 1:]
            found[numbers] = gains[:, len(first) - 1 :].sum(1).numpy()
        return found

    assert np.allclose(ours(), peer(), rtol=1e-4)
    return ours, peer


def labels(count: int) -> tuple[Run, Run]:
    """Classes of texts."""
    import transformers as hf

    task = get("task", "classify")(get("task", "classify").Config(), word_vocab("a b c"))
    task = task.with_trained(labels=("no", "yes"))
    config = replace(archs.preset("bert_base"), heads=task.heads)
    size = 30_522
    keep_memory()
    ready = prepare_weights(config.build(size).eval(), "fp32")
    peer_model = hf.BertForSequenceClassification(hf.BertConfig(vocab_size=size)).eval()
    rng = np.random.default_rng(0)
    texts = [rng.integers(100, size, rng.integers(8, 65)) for _ in range(count)]

    def ours() -> np.ndarray:
        predictions = predict(ready, task, [[text] for text in texts], PredictConfig())
        return np.array([prediction["label"] for prediction in predictions])

    # what is around a text there is around it here
    around = [np.concatenate([[2], text, [3]]) for text in texts]

    @torch.inference_mode()
    def peer() -> np.ndarray:
        found = np.zeros(len(texts), int)
        for numbers, ids, real in padded(around):
            found[numbers] = peer_model(input_ids=ids, attention_mask=real.long()).logits.argmax(1)
        return found

    return ours, peer


if __name__ == "__main__":
    main()
