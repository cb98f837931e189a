"""What goes out to transformers writes and fills there what it does here."""

import pytest
import torch

from tests.conftest import toy_lines
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.weights import prepare
from unitk.interop import hf as there
from unitk.interop.convert import Parts
from unitk.models.archs import tiny
from unitk.registry import get


@pytest.fixture
def exported(kit, tmp_path, toy_vocab):
    """Both of a random model: unitk's generator, and the folder for transformers."""
    hf = pytest.importorskip("transformers")

    def made(arch, task_name, **options):
        kind = get("task", task_name)
        task = kind(kind.Config(**options), toy_vocab)
        torch.manual_seed(3)
        config = get("arch", arch)()
        model = kit.perturbed((tiny(config) if "base" in arch else config).build(len(task.vocab)))
        with torch.no_grad():  # texts end now and then
            step = torch.randn(model.config.width)
            stack = model.decoder
            last = stack.norm if hasattr(stack.norm, "bias") else stack.layers[-1].ffn_norm
            if hasattr(last, "bias"):
                last.bias += 0.4 * step
            stack.embed.tokens.weight[toy_vocab.sep] += 0.4 * step
        there.write(Parts(model, task, {"arch": arch}, {}), tmp_path)
        return hf, Generator(prepare(model, "fp32"), task), tmp_path

    return made


def test_the_defaults_are_those_of_generate():
    config = GenerateConfig()
    assert (there.BEAM, there.MAX_LEN, 1.0) == (config.beam, config.max_len, config.lenpen)


@pytest.mark.parametrize(
    ("arch", "task", "options", "lenpen"),
    [
        ("gpt2_tiny", "lm", {}, 1.0),
        ("bart_tiny", "seq2seq", {}, 1.0),
        ("bart_tiny", "seq2seq", {"opening": "sep"}, 1.0),
        # they count what they are forced to begin with as a word
        ("bart_tiny", "seq2seq", {"opening": "both"}, 0.0),
        ("t5_tiny", "seq2seq", {"opening": "pad"}, 1.0),
    ],
)
def test_they_write_the_same(exported, arch, task, options, lenpen):
    hf, generator, folder = exported(arch, task, **options)
    texts = toy_lines(12)
    beam = 1 if arch == "t5_tiny" else there.BEAM  # its outputs do not end
    ours = generator.generate(texts, lenpen=lenpen, beam=beam)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    several = "lm" if task == "lm" else "seq2seq"
    kind = {"lm": hf.AutoModelForCausalLM, "seq2seq": hf.AutoModelForSeq2SeqLM}[several]
    model = kind.from_pretrained(folder).eval()
    given = tokenizer(texts, return_tensors="pt", padding=True)
    made = model.generate(**given, length_penalty=lenpen, num_beams=beam)
    start = given["input_ids"].shape[1] if task == "lm" else 0
    theirs = tokenizer.batch_decode(made[:, start:], skip_special_tokens=True)
    compared = 0
    for (best,), text in zip(ours, theirs, strict=True):
        # in a search there, what the limit cuts costs otherwise
        if beam == 1 or len(best.hypothesis.ids) <= there.MAX_LEN:
            compared += 1
            assert best.text == text
    assert compared >= 6


@pytest.mark.parametrize("modes", [(), ("a b", "b a", "c d")])  # texts that begin with words[0]
def test_a_ul2_writes_the_same(exported, modes):
    """Words and sentinels, behind the symbols of mode S, which their tokenizer puts there."""
    hf, generator, folder = exported("ul2_tiny", "ul2", modes=modes)
    texts = toy_lines(12)
    ours = generator.generate(texts, beam=1)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    given = tokenizer(texts, return_tensors="pt", padding=True)
    own = generator.task.modes[1].tolist()
    assert all(row[: len(own)] == own for row in given["input_ids"].tolist())
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    made = model.generate(**given, num_beams=1)
    for (best,), theirs in zip(ours, made.tolist(), strict=True):
        ids = best.hypothesis.ids.tolist()[: there.MAX_LEN]
        assert ids == theirs[1 : 1 + len(ids)]


@pytest.mark.parametrize("arch", ["bert_base", "roberta_base", "ernie_base"])
def test_they_fill_the_same(exported, arch):
    hf, generator, folder = exported(arch, "mlm")
    texts = [line.replace(" ", " [MASK] ", 2) for line in toy_lines(6)]
    ours = [best.text for (best,) in generator.infill(texts)]
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModelForMaskedLM.from_pretrained(folder).eval()
    assert model.config.model_type == arch.removesuffix("_base")
    given = tokenizer(texts, return_tensors="pt", padding=True)
    with torch.no_grad():
        logits = model(**given).logits
    logits[..., list(generator.vocab.symbols.values())] = -torch.inf
    ids = given["input_ids"]
    filled = torch.where(ids == tokenizer.mask_token_id, logits.argmax(-1), ids)
    assert tokenizer.batch_decode(filled, skip_special_tokens=True) == ours
