"""How fast unitk decodes, side by side with transformers, CTranslate2 and fairseq.

    python recipes/benchmarks/decode.py [--cases encdec-128,lm-256] [--device cuda] [--batch 32]

Random weights of the shapes of BART-base, GPT-2 small, GLM-base and UniLM-base; beam search for an
exact number of words, the end symbol being the last. All systems hold the same weights and read the
same sources; they run in turns. Ratios are of the least processor time (on CUDA: time), which says
the same on a busy machine, to transformers in the same precision and to CTranslate2 in fp32, or
int8 beside int8, and to fairseq, which is measured with BART in fp32 on CPU. How many outputs are
those of transformers in fp32 is printed, and with --search fairseq those of fairseq, which counts
the end symbol's probability. Nobody else has GLM and UniLM: GPT-2 of that size is listed, too,
with outputs of its own. Memory is what a run adds to the weights at its peak. What is not installed
is left out: `pip install transformers ctranslate2`, and `make fairseq` in a clone.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path

import fairseq_peer
import numpy as np
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.decode import generate
from unitk.formats.hf.tables.bart import BART
from unitk.formats.hf.tables.gpt import GPT2
from unitk.kernels.products import keep_memory
from unitk.kernels.weights import prepare_weights
from unitk.models import archs
from unitk.models.model import Model
from unitk.slots import Example, Ids, Protocol, probe, stay

WORDS, END, MASK, BEGIN = 50257, 2, 50255, 50256
PAD = 1
KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    """So many sources of so many words, of which `new` are written, the end symbol counted."""

    arch: str
    rows: int
    source: int
    new: int


CASES = {
    "encdec-128": Case("bart_base", 8, 128, 64),
    "encdec-400": Case("bart_base", 8, 400, 64),
    "short-1": Case("bart_base", 1, 32, 32),
    "short-64": Case("bart_base", 64, 32, 32),
    "cnn-128": Case("bart_large", 32, 128, 128),
    "lm-256": Case("gpt2_small", 4, 256, 32),
    "glm-256": Case("glm_base", 4, 256, 32),
    "unilm-256": Case("unilm_base", 4, 256, 32),
}
TWINS = ("bart_base", "gpt2_small")
"""What transformers and CTranslate2 have as well."""
THEIRS = "unitk --search fairseq"
Run = Callable[[], list[list[int]]]
"""Decodes all sources of a case: the words written, end symbol last."""
Key = tuple[str, str]
"""A system, and the precision of its weights."""


@dataclass(frozen=True)
class Taken:
    """What a run took."""

    seconds: float
    processor: float
    """Seconds of processor time: those of a machine that nobody else uses."""
    megabytes: float
    """Added at the peak."""
    written: list[list[int]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(name for name in CASES if name != "cnn-128"))
    parser.add_argument("--precision", default="fp32,bf16,int8")
    parser.add_argument("--beam", default="5", help="hypotheses, or several such as 1,4")
    parser.add_argument("--batch", default="", help="sources at a time, instead of the case's own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    args = parser.parse_args()
    beams = args.beam
    torch.set_num_threads(args.threads)
    print(machine(args))
    if not fairseq_peer.installed():
        print(fairseq_peer.LACKING)
    for name in args.cases.split(","):
        sizes = [int(n) for n in args.batch.split(",") if n] or [CASES[name].rows]
        for rows, beam in product(sizes, map(int, beams.split(","))):
            args.beam = beam
            with tempfile.TemporaryDirectory() as folder:
                measure(name, replace(CASES[name], rows=rows), args, Path(folder))


def measure(name: str, case: Case, args: argparse.Namespace, folder: Path) -> None:
    """One table: every system in every precision, in turns."""
    print(f"\n{name}: {case.rows} x {case.source} source, {case.new} new, beam {args.beam}")
    runs = prepare(case, args, folder)
    taken: dict[Key, list[Taken]] = {}
    for key, run in runs.items():
        with left_out(*key):
            taken[key] = [timed(run, args.device)]
    compare_outputs(case, {key: first.written for key, [first] in taken.items()})
    for _ in range(args.rounds - 1):
        for key, some in taken.items():
            some.append(timed(runs[key], args.device))
    print_table(taken, args.device)


def prepare(case: Case, args: argparse.Namespace, folder: Path) -> dict[Key, Run]:
    """Every system in every precision that runs here, with the same weights and sources."""
    model = build(case)
    sources = np.random.default_rng(0).integers(5, MASK, (case.rows, case.source))
    runs: dict[Key, Run] = {}
    for precision in args.precision.split(","):
        for system in (ours, transformers, ctranslate2, fairseq_peer.system):
            with left_out(system.__name__, precision):
                for label, run in system(case, model, sources, precision, args, folder):
                    runs[label, precision] = run
    return runs


def compare_outputs(case: Case, written: dict[Key, list[list[int]]]) -> None:
    """Print how many outputs are those of the peer that searches alike, in fp32."""
    if case.arch not in TWINS:
        return
    for (label, precision), outputs in written.items():
        peer = "fairseq" if label == THEIRS else "transformers"
        if label == "fairseq" or (peer, "fp32") not in written:
            continue
        pairs = zip(outputs, written[peer, "fp32"], strict=True)
        same = sum(one[: case.new - 1] == other[:-1] for one, other in pairs)
        print(f"{label}, {precision}: {same} of {case.rows} outputs are those of {peer} in fp32")


def print_table(taken: dict[Key, list[Taken]], device: str) -> None:
    """The times of all systems, their ratios to those of peers, and the memory."""
    cost = "seconds" if device == "cuda" else "processor"
    least = {key: min(getattr(one, cost) for one in some) for key, some in taken.items()}
    peers = ("x transformers", "x CTranslate2", "x fairseq")
    columns = ("seconds", "median", "processor s", *peers, "peak MB")
    print("| | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for (label, precision), some in taken.items():
        own = least[label, precision]
        compared = (
            ("transformers", precision),
            ("CTranslate2", "int8" if precision == "int8" else "fp32"),
            ("fairseq", "fp32"),
        )
        seconds = [one.seconds for one in some]
        cells = (
            f"{min(seconds):.2f}",
            f"{np.median(seconds):.2f}",
            f"{min(one.processor for one in some):.2f}",
            *(f"{least[peer] / own:.2f}" if peer in least else "-" for peer in compared),
            f"{max(one.megabytes for one in some):,.0f}",
        )
        print(f"| {label}, {precision} | {' | '.join(cells)} |", flush=True)


@contextmanager
def left_out(label: str, precision: str) -> Iterator[None]:
    """Without what does not run here: a library is missing, or the memory is too small."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        print(f"{label}, {precision} is left out: {str(error).splitlines()[0]}", flush=True)


def build(case: Case) -> Model:
    """Random weights that are not near their start, so that outputs are far from each other."""
    torch.manual_seed(0)
    config = archs.preset(case.arch)
    model = config.build(WORDS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def lay_out(case: Case, sources: Sequence[Ids]) -> tuple[Protocol, list[Example]]:
    """What unitk reads of sources, which may have several lengths, and how it writes."""
    rows = [(ids, np.arange(len(ids)), len(ids)) for ids in sources]
    banned = (MASK, BEGIN)
    if case.arch.startswith("bart"):
        first = stay([END], [0])
        return Protocol(end=END), [Example({"enc": stay(i, n), "dec": first}) for i, n, _ in rows]
    if case.arch.startswith("gpt2"):
        return Protocol(end=END), [Example({"x": stay(ids, n, at=n)}) for ids, n, _ in rows]
    if case.arch.startswith("glm"):
        return Protocol(end=END, dpos=0, dpos2=1, begin=BEGIN, banned=banned), [
            Example({"x": stay(ids, n) + stay([BEGIN], [size], pos2=1, at=1)})
            for ids, n, size in rows
        ]
    return Protocol(end=END, probe=MASK, banned=banned), [
        Example({"x": stay(ids, n, seg=4) + probe([MASK], [size], at=1, seg=5)})
        for ids, n, size in rows
    ]


def ours(
    case: Case, model: Model, sources: Ids, precision: str, args: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, Run]]:
    """unitk, by the same two calls as `unitk generate`."""
    if precision == "int8" and args.device != "cpu":
        return
    protocol, prompts = lay_out(case, sources)
    config = GenerateConfig(
        beam=args.beam,
        min_len=case.new - 1,
        max_len=case.new - 1,
        max_tokens=10**9,
        search="unilm",  # the end symbol comes last, for nothing
    )
    ways = {"unitk": config}
    if args.device == "cuda":
        ways["unitk, not recorded"] = replace(config, capture="off")
    if fairseq_peer.decodes(case, precision, args):
        ways[THEIRS] = replace(config, search="fairseq")
    keep_memory()
    ready = prepare_weights(deepcopy(model).to(args.device), precision)

    def run(config: GenerateConfig) -> list[list[int]]:
        return [best.ids.tolist() for best, *_ in generate(ready, prompts, protocol, config)]

    for label, way in ways.items():
        yield label, partial(run, way)


def transformers(
    case: Case, model: Model, sources: Ids, precision: str, args: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, Run]]:
    """transformers' `generate`; on CUDA with a static cache as well."""
    if not installed("transformers") or precision not in KINDS:
        return
    import transformers as hf

    hf.logging.set_verbosity_error()
    peer_model = reference(case, model).to(args.device, KINDS[precision])

    before = 1 if case.arch.startswith("bart") else case.source
    given_ids = torch.from_numpy(sources).to(args.device)
    options = {
        "attention_mask": torch.ones_like(given_ids),
        "num_beams": args.beam,
        "min_new_tokens": case.new - 1,
        "max_new_tokens": case.new,
        "do_sample": False,
        "forced_eos_token_id": END,  # for nothing
    }

    def run(**more: str) -> list[list[int]]:
        with torch.inference_mode():
            out = peer_model.generate(given_ids, **options, **more)
        return out[:, before:].tolist()

    yield "transformers", run
    if args.device == "cuda":
        yield "transformers, static", lambda: run(cache_implementation="static")


def reference(case: Case, model: Model) -> torch.nn.Module:
    """transformers' model with the same weights, or of the same size where it has no such model."""
    import transformers as hf

    same = {"bos_token_id": END, "eos_token_id": END, "pad_token_id": PAD}
    if case.arch.startswith("bart"):
        config = hf.BartConfig(
            vocab_size=WORDS,
            encoder_layers=model.config.num_layers,
            decoder_layers=model.config.num_layers,
            d_model=model.config.width,
            encoder_attention_heads=model.config.num_heads,
            decoder_attention_heads=model.config.num_heads,
            encoder_ffn_dim=model.config.ffn_width,
            decoder_ffn_dim=model.config.ffn_width,
            decoder_start_token_id=END,
            **same,
        )
        peer_model, layout = hf.BartForConditionalGeneration(config), BART
    else:
        peer_model, layout = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=WORDS, **same)), GPT2
    if case.arch in TWINS:
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        state = layout.to_stored(parameters, model.config, copies=True)
        assert not peer_model.load_state_dict(state, strict=False).unexpected_keys
    return peer_model.eval()


def ctranslate2(
    case: Case, model: Model, sources: Ids, precision: str, args: argparse.Namespace, folder: Path
) -> Iterator[tuple[str, Run]]:
    """CTranslate2's beam search, converted from transformers' model."""
    if not installed("ctranslate2") or not installed("transformers"):
        return
    import ctranslate2 as ct2

    kind = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}[precision]
    if kind not in ct2.get_supported_compute_types(args.device):
        return
    converted(case, model, folder / "ct2")
    tokens = [[str(i) for i in ids] for ids in sources]
    settings = {"device": args.device, "compute_type": kind, "intra_threads": args.threads}
    if case.arch.startswith("bart"):
        translator = ct2.Translator(str(folder / "ct2"), **settings)

        def run() -> list[list[int]]:
            results = translator.translate_batch(
                tokens,
                beam_size=args.beam,
                min_decoding_length=case.new,
                max_decoding_length=case.new,
            )
            return [[int(word) for word in result.hypotheses[0]] for result in results]
    else:
        generator = ct2.Generator(str(folder / "ct2"), **settings)

        def run() -> list[list[int]]:
            results = generator.generate_batch(
                tokens,
                beam_size=args.beam,
                min_length=case.new,
                max_length=case.new,
                include_prompt_in_result=False,
            )
            return [[int(word) for word in result.sequences[0]] for result in results]

    yield "CTranslate2", run


def converted(case: Case, model: Model, folder: Path) -> None:
    """Write CTranslate2's model, once."""
    if folder.exists():
        return
    from ctranslate2.converters import transformers as loaders

    peer_model = reference(case, model)
    words = ["<s>", "<pad>", "</s>", "<unk>", *(str(i) for i in range(4, WORDS))]
    if case.arch.startswith("bart"):
        peer_model.config.normalize_before = peer_model.config.add_final_layer_norm = False
        peer_model.config.normalize_embedding = True
        spec = loaders.BartLoader().get_model_spec(peer_model)
        spec.register_source_vocabulary(words)
        spec.register_target_vocabulary(words)
        spec.config.decoder_start_token = "</s>"
    else:
        spec = loaders.GPT2Loader().get_model_spec(peer_model)
        spec.register_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))


def timed(run: Run, device: str) -> Taken:
    """Time and memory of a run."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    else:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed is given back,
        Path("/proc/self/clear_refs").write_text("5")  # and the peak begins here
        before = resident("VmRSS")
    start, busy = time.perf_counter(), time.process_time()
    written = run()  # the words come to the host: nothing is under way any more
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else resident("VmHWM")
    return Taken(seconds, processor, (peak - before) / 1e6, written)


def resident(field: str) -> int:
    """Bytes in memory, at present or at the peak."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) * 1024


def installed(name: str) -> str:
    """The version of a package, if it is there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def machine(args: argparse.Namespace) -> str:
    """What ran where."""
    names: Sequence[str] = ("torch", "transformers", "ctranslate2", "fairseq")
    versions = ", ".join(f"{name} {installed(name)}" for name in names if installed(name))
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    where = cpu[1] if cpu else platform.processor()
    if args.device == "cuda":
        where = torch.cuda.get_device_name()
    where += f", {args.threads} threads, load {os.getloadavg()[0]:.1f}"
    return f"{where}; Python {platform.python_version()}, {versions}"


if __name__ == "__main__":
    main()
