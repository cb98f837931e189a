"""What transformers computes with the weights of unitk, model type by model type.

    python recipes/benchmarks/exchange.py
    python recipes/benchmarks/exchange.py qwen3 t5gemma --texts 3

A small random model of each type leaves (`--to hf`), transformers opens it, and unitk reads it
again (`--from hf`). A difference is the largest one, as a share of the largest value. A row:

    out, in   logits of unitk's model, and of the one that came back, against transformers'
    states    of every layer, as `unitk embed` gives them
    bits      whether all tensors of what came back are those of the file
    greedy, beam   texts of which the output, or all five of a beam, has the same 9 words
    classes   logits of a classifier of three labels that transformers made
    ids       texts of which AutoTokenizer makes the same ids
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

import unitk
from unitk import registry
from unitk.api.text_model import TextModel
from unitk.decoding.config import GenerateConfig, make_config
from unitk.decoding.texts.sources import Sources
from unitk.formats.hf.families import GEMMA_TEXTS, MODEL_TYPE, TEXTS, Family, families
from unitk.formats.hf.folder import write
from unitk.formats.hf.generation import opening
from unitk.models.archs import tiny
from unitk.slots import collate
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.open import open_vocab

WORDS = 9
CLASSES = {"mlm": "MaskedLM", "lm": "CausalLM", "xlnet": "CausalLM", "seq2seq": "Seq2SeqLM"}
WITHOUT = {"gpt_bert", "granite", "ltgbert", "mbart"}
"""Types that have no class in the package, that leave as another type, or need languages."""
COLUMNS = ("out", "in", "states", "bits", "greedy", "beam", "classes", "ids")
SAYINGS = (
    "The cat sat on the mat.",
    "A small model can be trained on one core.",
    "Water boils at 100 degrees, doesn't it?",
    "Naïve cafés serve crème brûlée – 25 % off!",
    "Rivers carry what the rain has washed away.",
    "He said: \u201cnever again\u201d.",
)


def main() -> None:
    """Print a row for each model type."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("types", nargs="*", help="model types of unitk list model_type; all")
    parser.add_argument("--texts", type=int, default=len(SAYINGS), help="texts, at most 6")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}\n")
    print("| type | " + " | ".join(COLUMNS) + " |\n" + "| --- " * (len(COLUMNS) + 1) + "|")
    for name in args.types or sorted(families().keys() - WITHOUT):
        with tempfile.TemporaryDirectory() as folder:
            row = compare(name, Path(folder), SAYINGS[: args.texts])
        print(f"| `{name}` | " + " | ".join(row.get(key, "") for key in COLUMNS) + " |", flush=True)


def compare(name: str, folder: Path, texts: tuple[str, ...]) -> dict[str, str]:
    """The row of a model type."""
    family = registry.get(MODEL_TYPE, name)
    loaded, there = model_of(family), folder / "there"
    there.mkdir()
    write(loaded, there)
    kind = getattr(transformers, f"AutoModelFor{CLASSES[family.task]}")
    original = kind.from_pretrained(there).eval()
    own, imported = TextModel(loaded), unitk.load_module(there, format="hf")
    with torch.no_grad():
        expected = logits_of(original, own, texts)
        results = {"out": largest(said(own, texts), expected)}
        results["in"] = largest(said(imported, texts), expected)
        results["states"] = states(original, there, texts)
        stored, tensors = load_file(there / "model.safetensors"), imported.tensors()
        whole = all(
            key in stored and torch.equal(stored[key], tensor) for key, tensor in tensors.items()
        )
        results["bits"] = "equal" if whole else "differ"
        if family.task in ("lm", "seq2seq"):
            for column, beam in (("greedy", 1), ("beam", 5)):
                results[column] = written(original, there, texts, beam)
        if family.heads.keys() & {TEXTS, GEMMA_TEXTS}:
            results["classes"] = classes(there, folder / "classes", texts)
    # AutoTokenizer takes the own one of a type that has one, whatever the folder says
    opened = "PreTrainedTokenizerFast" if family.tokenizer else "AutoTokenizer"
    tokenizer, strings = getattr(transformers, opened).from_pretrained(there), [*texts, *odd(200)]
    encode = loaded.task.vocab.encode
    same = [
        tokenizer(string, add_special_tokens=False).input_ids == encode(string)
        for string in strings
    ]
    return results | {"ids": f"{sum(same)} of {len(same)}"}


def model_of(family: Family) -> Loaded:
    """A small model with weights far from those at the start."""
    arch = family.presets[0]
    config = registry.get("arch", arch)()
    config = tiny(replace(config, num_kv_heads=min(config.num_kv_heads, 2)))
    names = {field.name for field in fields(config)}
    if "generator_divisor" in names:  # ELECTRA, without the other
        config = replace(config, generator_divisor=0)
    vocab = open_vocab(Path(unitk.__file__).parent / "pretrained" / "unitk-base-en" / "vocab")
    kind = registry.get("task", family.task)
    task = kind(make_config(kind.Config, family.options), vocab)
    task = task.with_trained(pairs=family.task == "seq2seq")
    torch.manual_seed(0)
    model = config.build(len(vocab)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return Loaded(model, task, {"arch": arch}, {})


def target(texts: tuple[str, ...], model: Any) -> tuple[str, ...] | None:
    """What a decoder beside an encoder writes; None of one tower."""
    return texts[::-1] if len(model.model.towers) > 1 else None


def said(model: Any, texts: tuple[str, ...]) -> list[Tensor]:
    """The logits of unitk."""
    return model.logits(texts, target(texts, model))  # type: ignore[no-any-return]


def logits_of(original: Any, model: Any, texts: tuple[str, ...]) -> list[Tensor]:
    """Those of transformers, at the slots that unitk is asked at."""
    logits = []
    for example in model._lay_out(texts, target(texts, model)):
        inputs_of = inputs(original, example.towers.get("enc", example.towers.get("x")))
        if "dec" in example.towers:
            inputs_of["decoder_input_ids"] = torch.from_numpy(example.towers["dec"].token)[None]
        out = original(**inputs_of).logits[0]
        logits.append(out[example.asks[0].rows[:, 0]])
    return logits


def inputs(original: Any, slots: Any) -> dict[str, Tensor]:
    """What a model of transformers reads where unitk reads these slots."""
    tensors = {"input_ids": torch.from_numpy(slots.token)[None]}
    if original.config.model_type == "xlnet":  # whose last symbol is a segment of its own
        tensors["token_type_ids"] = torch.from_numpy(slots.seg)[None]
    return tensors


def largest(results: list[Tensor], expected: list[Tensor]) -> str:
    """The largest difference, as a share of the largest value."""
    pairs = list(zip(results, expected, strict=True))
    apart = max(float((a[..., : b.shape[-1]] - b).abs().max()) for a, b in pairs)
    return f"{apart / max(float(b.abs().max()) for _, b in pairs):.0e}"


def states(original: Any, folder: Path, texts: tuple[str, ...]) -> str:
    """Of all layers, and those that a head reads."""
    imported = unitk.load(folder, format="hf")
    model = original.get_encoder() if original.config.is_encoder_decoder else original.base_model
    layers = [0, 1, 2, -1]
    vectors = [imported.embed(texts, layer=number, pool="none") for number in layers]
    results, expected = [], []
    for number, text in enumerate(texts):
        read = imported.task.reading([np.array(imported.task.vocab.encode(text))])
        out = model(**inputs(original, read), output_hidden_states=True)
        results += [torch.as_tensor(layer[number]) for layer in vectors]
        expected += [
            states_of_layer[0] for states_of_layer in (*out.hidden_states, out.last_hidden_state)
        ]
    return largest(results, expected)


def written(original: Any, folder: Path, texts: tuple[str, ...], beam: int) -> str:
    """Of how many texts all outputs that a beam keeps are the same."""
    imported = unitk.load(folder, format="hf")
    sources = [[np.array(imported.task.vocab.encode(text))] for text in texts]
    config = GenerateConfig(beam=beam, nbest=beam, max_len=WORDS, min_len=WORDS)
    start, same = opening(imported.task), 0
    limit = WORDS + len(start or [0]) - 1
    more = {"max_new_tokens": limit, "min_new_tokens": limit, "forced_eos_token_id": None}
    for source, every in zip(sources, imported.outputs(Sources(sources), config), strict=True):
        towers = imported.task.prompt(source).towers
        ids = torch.from_numpy(towers["enc" if start else "x"].token)[None]
        generated = original.generate(ids, num_beams=beam, num_return_sequences=beam, **more)
        # all that the beam keeps: unitk ranks them with the end, which costs nothing there
        kept = {tuple(output.hypothesis.ids.tolist()[:WORDS]) for output in every}
        same += kept == {tuple(ids_of_output[-WORDS:]) for ids_of_output in generated.tolist()}
    return f"{same} of {len(texts)}"


def classes(folder: Path, other: Path, texts: tuple[str, ...]) -> str:
    """Logits of a classifier that transformers made, with this tokenizer."""
    about = transformers.AutoConfig.from_pretrained(folder, num_labels=3)
    del about.unitk
    torch.manual_seed(1)
    original = transformers.AutoModelForSequenceClassification.from_config(about).eval()
    for parameter in original.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    original.save_pretrained(other)
    for file in folder.glob("*token*"):
        shutil.copy(file, other)
    imported = unitk.load(other, format="hf")
    results, expected = [], []
    for text in texts:
        words = np.array(imported.task.vocab.encode(text))
        example = imported.task.classify([words], np.zeros(1, np.int64), None)
        batch = collate([[example]]).to("cpu")
        results.append(imported.model.output(batch, next(iter(batch.asks.values()))))
        expected.append(original(**inputs(original, next(iter(example.towers.values())))).logits)
    return largest(results, expected)


def odd(count: int) -> list[str]:
    """Strings of letters, digits, signs and blanks of many scripts."""
    rng = random.Random(1)
    signs = "aBcé ñü  ß12.,;!?'\u2019()-_/\\\n\tжЯ漢字かな한글 العربية🙂\u00a0½"
    return ["".join(rng.choices(signs, k=rng.randint(1, 30))) for _ in range(count)]


if __name__ == "__main__":
    main()
