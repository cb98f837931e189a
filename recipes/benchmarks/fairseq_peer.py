"""fairseq beside unitk: its beam search for `decode.py`, its trainer for `peers.py`.

Where it is not installed this says so; `make fairseq` installs it. It computes in fp32 only: on a
CPU its `--fp16` asks for CUDA and its `--bf16` for a TPU.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unitk.formats.fairseq import SEQ2SEQ
from unitk.models.archs import preset
from unitk.slots import Ids

Run = Callable[[], list[list[int]]]
LACKING = "fairseq is not installed: pip install 'unitk[fairseq]', or make fairseq in a clone"


def installed() -> bool:
    """Whether fairseq can be imported."""
    return find_spec("fairseq") is not None


def decodes(case: Any, precision: str, args: argparse.Namespace) -> bool:
    """Whether fairseq takes part in a case of `decode.py`."""
    return case.arch == "bart_base" and (precision, args.device) == ("fp32", "cpu") and installed()


def system(
    case: Any, model: Any, sources: Ids, precision: str, args: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, Run]]:
    """Model and beam search of `fairseq-generate`, with unitk's weights, for `decode.py`."""
    if decodes(case, precision, args):
        logging.disable(logging.INFO)  # fairseq tells everybody's
        weights = {name: p.detach() for name, p in model.named_parameters()}
        words = dictionary(len(weights["embed.tokens.weight"]))
        yield "fairseq", beam_search(weights, sources, words, case.new, args.beam)


def beam_search(
    weights: dict[str, torch.Tensor], sources: Ids, words: Any, new: int, beam: int
) -> Run:
    """What decodes sources with BART-base to `new` words each."""
    from fairseq.models.bart import BARTModel
    from fairseq.models.bart.model import bart_base_architecture
    from fairseq.sequence_generator import SequenceGenerator

    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    options = argparse.Namespace(
        task="translation", max_source_positions=1024, max_target_positions=1024
    )
    bart_base_architecture(options)
    model = BARTModel.build_model(options, task)
    model.load_state_dict(SEQ2SEQ.to_stored(weights, preset("bart_base"), copies=True), strict=True)
    model.eval()
    model.prepare_for_inference_(argparse.Namespace(generation=argparse.Namespace(beam=beam)))
    search = SequenceGenerator([model], words, beam_size=beam, max_len_b=new - 1, min_len=new - 1)
    ids = torch.from_numpy(sources)
    lengths = torch.full((len(ids),), ids.shape[1])
    sample = {"net_input": {"src_tokens": ids, "src_lengths": lengths}}

    def run() -> list[list[int]]:
        with torch.no_grad():
            return [best["tokens"].tolist() for best, *_ in search.generate([model], sample)]

    return run


def dictionary(size: int) -> Any:
    """A dictionary of so many symbols."""
    from fairseq.data import Dictionary

    words = Dictionary()
    for index in range(len(words), size):
        words.add_symbol(f"w{index}")
    return words


def masked_lm(
    shape: Sequence[int], rows: int, data: Sequence[Ids], vocab_size: int, steps: int
) -> tuple[float, int]:
    """Processor seconds and tokens of the fastest step of fairseq's trainer, but for the first.

    RoBERTa of so many layers, width and heads learns the task `masked_lm` as in `fairseq-train`.
    """
    from fairseq import options, tasks
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    layers, width, heads = shape
    with tempfile.TemporaryDirectory() as folder:
        words = dictionary(vocab_size - 1)  # the task adds one for masks
        words.save(f"{folder}/dict.txt")
        builder = MMapIndexedDatasetBuilder(f"{folder}/train.bin", dtype=np.uint16)
        for text in data:
            known = np.minimum(text, len(words) - 1)  # the id after them is the mask's
            builder.add_item(torch.from_numpy(np.append(known, words.eos())))
        builder.finalize(f"{folder}/train.idx")
        line = (
            f"{folder} --cpu --task masked_lm --criterion masked_lm --arch roberta_base"
            f" --encoder-layers {layers} --encoder-embed-dim {width}"
            f" --encoder-ffn-embed-dim {4 * width} --encoder-attention-heads {heads}"
            " --attention-dropout 0 --optimizer adam --lr 1e-4 --weight-decay 0.01 --clip-norm 1"
            f" --tokens-per-sample 512 --sample-break-mode eos --batch-size {rows}"
            " --required-batch-size-multiple 1 --num-workers 0"
        )
        parser = options.get_training_parser()
        config = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, line.split()))
        task = tasks.setup_task(config.task)
        task.load_dataset("train")
        model, criterion = task.build_model(config.model), task.build_criterion(config.criterion)
        trainer = Trainer(config, task, model, criterion)
        batches = trainer.get_train_iterator(epoch=1).next_epoch_itr()
        took = []
        for _ in range(steps):
            began = time.process_time()
            batch = next(batches)
            trainer.train_step([batch])
            around = 2 * batch["nsentences"]  # symbols, which are no tokens of the texts
            took.append((time.process_time() - began, int(batch["ntokens"]) - around))
    return max(took[1:], key=lambda step: step[1] / step[0])
