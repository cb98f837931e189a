"""What goes out to transformers writes and fills there what it does here."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import unitk
from tests.conftest import toy_lines
from unitk.decoding.config import GenerateConfig, make_config
from unitk.decoding.files.defaults import read_defaults
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, UnitkError
from unitk.formats.hf import folder as there
from unitk.formats.hf import generation as hf_generation
from unitk.kernels.weights import prepare_weights
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded


@pytest.fixture
def exported(kit, tmp_path, toy_vocab):
    """Both of a random model: unitk's generator, and the folder for transformers."""
    hf = pytest.importorskip("transformers")

    def made(arch, task_name, decoding=None, answers=True, **options):
        kind = get("task", task_name)
        task = kind(kind.Config(**options), toy_vocab)
        task = task.with_trained(pairs=answers)
        torch.manual_seed(3)
        config = get("arch", arch)()
        if not arch.endswith("_tiny"):
            config = tiny(replace(config, num_kv_heads=min(config.num_kv_heads, 2)))
        model = kit.perturbed(config.build(len(task.vocab)))
        with torch.no_grad():  # texts end now and then
            step = torch.randn(model.config.width)
            stack = model.decoder
            last = stack.norm if hasattr(stack.norm, "bias") else stack.layers[-1].ffn_norm
            if (bias := dict(last.named_parameters()).get("bias")) is not None:
                bias += 0.4 * step
            rows(model)[toy_vocab.sep] += 0.4 * step
        if task_name != "mlm" and (bias is None or model.config.head_transform):
            aim_at_end(model, task, stack)
        there.write(Loaded(model, task, {"arch": arch}, {}, decoding or {}), tmp_path)
        return hf, Generator(prepare_weights(model, "fp32"), task, decoding), tmp_path

    return made


def rows(model):
    """The output matrix."""
    weights = dict(model.named_parameters())
    return weights.get("heads.lm.weight", weights["embed.tokens.weight"])


@torch.no_grad()
def aim_at_end(model, task, stack):
    """Turn the end's row to what the decoder's states have in common, as there is no bias."""
    seen = []
    before = model.heads["lm"].transform if model.config.head_transform else stack.norm
    hook = before.register_forward_hook(lambda *given: seen.append(given[2].flatten(0, -2)))
    Generator(model.eval(), task).score(toy_lines(6), toy_lines(6))
    hook.remove()
    mean = torch.cat(seen).mean(0)
    row = rows(model)[task.vocab.sep]
    row += row.norm() * mean / mean.norm()


def test_the_defaults_are_those_of_generate():
    config = GenerateConfig()
    ours = {"beam": hf_generation.BEAM, "max_len": hf_generation.MAX_LEN, **hf_generation.PLAIN}
    assert ours == {name: getattr(config, name) for name in ours}


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("arch", "task", "options", "lenpen"),
    [
        ("gpt2_tiny", "lm", {}, 1.0),
        ("qwen3_tiny", "lm", {}, 1.0),
        ("llama_tiny", "lm", {}, 1.0),
        ("mistral_7b", "lm", {}, 1.0),
        ("smollm3_3b", "lm", {}, 1.0),
        ("ernie4_5_0.3b", "lm", {}, 1.0),
        ("glm4_9b", "lm", {"opening": "gmask"}, 1.0),
        ("glm4_9b_0414", "lm", {"opening": "gmask"}, 1.0),
        ("phi3_3.8b", "lm", {}, 1.0),
        ("stablelm_2_1.6b", "lm", {}, 1.0),
        ("starcoder2_3b", "lm", {}, 1.0),
        ("olmo2_1b", "lm", {}, 1.0),
        ("gemma3_tiny", "lm", {}, 1.0),
        ("pythia_tiny", "lm", {}, 1.0),
        ("opt_tiny", "lm", {}, 1.0),
        ("gpt_neo_tiny", "lm", {}, 1.0),
        ("modernbert_tiny", "lm", {}, 1.0),
        ("bart_tiny", "seq2seq", {}, 1.0),
        ("bart_tiny", "seq2seq", {"opening": "sep"}, 1.0),
        ("bart_tiny", "seq2seq", {"opening": "both"}, 1.0),
        ("bert2bert_tiny", "seq2seq", {}, 1.0),
        ("pegasus_tiny", "seq2seq", {"opening": "pad"}, 1.0),
        ("marian_tiny", "seq2seq", {"opening": "pad"}, 1.0),
        ("t5_tiny", "seq2seq", {"opening": "pad"}, 1.0),
        ("t5_v1_1_small", "seq2seq", {"opening": "pad"}, 1.0),
        ("t5gemma_tiny", "seq2seq", {}, 1.0),
        ("t5gemma_tiny", "seq2seq", {"opening": "both"}, 1.0),
    ],
)
def test_they_write_the_same(exported, arch, task, options, lenpen):
    hf, generator, folder = exported(arch, task, **options)
    texts = toy_lines(12)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    several = "lm" if task == "lm" else "seq2seq"
    kind = {"lm": hf.AutoModelForCausalLM, "seq2seq": hf.AutoModelForSeq2SeqLM}[several]
    model = kind.from_pretrained(folder).eval()
    given = tokenizer(texts, return_tensors="pt", padding=True)
    start = given["input_ids"].shape[1] if task == "lm" else 0
    for beam in (1, hf_generation.BEAM)[: 1 if arch == "t5_tiny" else 2]:  # its outputs do not end
        ours = generator.generate(texts, lenpen=lenpen, beam=beam)
        made = model.generate(**given, length_penalty=lenpen, num_beams=beam)
        theirs = tokenizer.batch_decode(made[:, start:], skip_special_tokens=True)
        compared = 0
        for (best,), text in zip(ours, theirs, strict=True):
            # in a search there, what the limit cuts costs otherwise
            if beam == 1 or len(best.hypothesis.ids) <= hf_generation.MAX_LEN:
                compared += 1
                assert best.text == text
        assert compared >= 6


@pytest.mark.parametrize("beam", [1, 3])
def test_several_ends_end_the_same_texts(exported, beam):
    """A chat model's list of ends, in and out again; the words that end there are none."""
    hf, generator, folder = exported("gpt2_tiny", "lm", {"max_len": 20})
    weights = load_file(folder / "model.safetensors")
    weights["transformer.wte.weight"][generator.task.vocab.sep] *= 0.25  # its own end is rare
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    texts = toy_lines(12)
    alone = unitk.load(folder, format="hf").generate(texts, beam=beam)
    plain = [best.hypothesis.ids for (best,) in alone]
    words = Counter(word for ids in plain for word in ids[:-1].tolist())
    ends = [word for word, _ in words.most_common(2)]
    file = folder / hf_generation.FILE
    given = json.loads(file.read_text())
    file.write_text(json.dumps(given | {"eos_token_id": [*ends, given["eos_token_id"]]}))
    came = unitk.load(folder, format="hf")
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
    asked = tokenizer(texts, return_tensors="pt", padding=True)
    made = model.generate(**asked, num_beams=beam)[:, asked["input_ids"].shape[1] :]
    compared = sooner = 0
    outputs = came.generate(texts, beam=beam)
    for (best,), ids, longer in zip(outputs, made.tolist(), plain, strict=True):
        stop = next((at for at, word in enumerate(ids) if word in [*ends, came.vocab.sep]), None)
        if stop is not None:  # in a search there, what the limit cuts costs otherwise
            compared += 1
            sooner += len(best.hypothesis.ids) < len(longer)
            assert best.text == tokenizer.decode(ids[:stop], skip_special_tokens=True)
    assert compared >= 6 and sooner >= 3


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize(
    ("arch", "task", "options"),
    [
        ("gpt2_tiny", "lm", {}),
        ("gpt2_tiny", "lm", {"opening": "none", "delimiter": "off"}),
        ("t5_tiny", "seq2seq", {}),
        ("ul2_tiny", "ul2", {"modes": ("a b", "b a", "c d")}),
        ("mass_tiny", "mass", {}),
        ("xlnet_base", "xlnet", {"pairs": False}),
        ("unilm_tiny", "unilm", {"nsp": False}),
    ],
)
def test_what_goes_out_comes_back_to_the_same_prompts(exported, arch, task, options, answers):
    """Nothing but unitk's own entry says what a prompt begins and ends with."""
    _, generator, folder = exported(arch, task, answers=answers, **options)
    back = unitk.load(folder, format="hf").task
    assert (back.name, back.config, back.trained.pairs) == (task, generator.task.config, answers)
    source = [np.array([20, 21, 22])]
    towers = generator.task.prompt(source).towers
    for name, found in back.prompt(source).towers.items():
        assert (found.table == towers[name].table).all()
    plain = "seq2seq" if "dec" in towers else "lm"
    assert unitk.load(folder, format="hf", task=plain).task.name == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "lmm"}, "there is no task 'lmm'"),
        ({"task": 3}, "config.json: task must be a string"),
        ({"options": {"opening": "left"}}, "opening must be"),
        ({"options": {"opening": 1}}, "config.json: opening must be a string"),
        ({"options": {"gate": "on"}}, r"--task.gate .* task lm has no such option"),
        ({"answers": "yes"}, "config.json: answers must be true or false"),
    ],
)
def test_an_altered_entry_of_unitk_is_named(exported, change, message):
    *_, folder = exported("gpt2_tiny", "lm")
    about = json.loads((folder / "config.json").read_text())
    about["unitk"] |= change
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(UnitkError, match=message):
        unitk.load(folder, format="hf")


@pytest.mark.parametrize("modes", [(), ("a b", "b a", "c d")])  # texts that begin with words[0]
def test_a_ul2_writes_the_same(exported, modes):
    """Words and sentinels, after the symbols of mode S, which their tokenizer puts there."""
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
        ids = best.hypothesis.ids.tolist()[: hf_generation.MAX_LEN]
        assert ids == theirs[1 : 1 + len(ids)]


CNN = {"num_beams": 4, "early_stopping": True, "max_length": 14, "min_length": 5}
CNN |= {"no_repeat_ngram_size": 3, "use_cache": True}
CNN_HERE = {"beam": 4, "search": "fairseq", "no_repeat_ngram_size": 3}
"""What BART-large-cnn's file holds, for texts of fewer words."""


@pytest.mark.parametrize(
    ("arch", "options", "given", "read"),
    [
        (
            *("bart_tiny", {"opening": "both"}, {**CNN, "length_penalty": 2.0}),
            {**CNN_HERE, "lenpen": 2.0, "max_len": 11, "min_len": 3},
        ),
        (
            *("t5_tiny", {"opening": "pad"}, {**CNN, "length_penalty": 2.0}),
            {**CNN_HERE, "lenpen": 2.0, "max_len": 12, "min_len": 4},
        ),
        (
            *("t5_tiny", {"opening": "pad"}, {"num_beams": 3, "early_stopping": "never"}),
            {"beam": 3, "search": "exact"},
        ),
        ("t5_tiny", {"opening": "pad"}, {"max_new_tokens": 9}, {"beam": 1, "max_len": 8}),
    ],
)
def test_their_options_of_decoding_come_in(exported, arch, options, given, read):
    """What both write by default is the same."""
    hf, generator, folder = exported(arch, "seq2seq", **options)
    there = json.loads((folder / hf_generation.FILE).read_text())
    kept = {name: one for name, one in there.items() if name.endswith(("_id", "_ids"))}
    hf.GenerationConfig(**kept, **given).save_pretrained(folder)
    texts = toy_lines(12)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    ids = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
    theirs = tokenizer.batch_decode(ids, skip_special_tokens=True)
    came = unitk.load(folder, format="hf")
    assert came.defaults == read
    limit, compared = read.get("max_len", 18), 0  # 20 there, with both symbols
    for (best,), text in zip(came.generate(texts), theirs, strict=True):
        # in a search there, what the limit cuts costs otherwise
        if read["beam"] == 1 or len(best.hypothesis.ids) <= limit:
            compared += 1
            assert best.text == text
    assert compared >= 6


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("arch", "task", "options", "decoding"),
    [
        *[
            (arch, "seq2seq", {"opening": opening}, {"max_len": 12, "min_len": 2, **decoding})
            for decoding in (
                {"beam": 3, "search": "exact", "lenpen": 0.5, "no_repeat_ngram_size": 2},
                {"beam": 4, "search": "fairseq", "lenpen": 2.0},
                {"beam": 1, "no_repeat_ngram_size": 2},
            )
            for arch, opening in (("bart_tiny", "sep"), ("t5_tiny", "pad"))
        ],
        ("bart_tiny", "seq2seq", {"opening": "both"}, {"beam": 2, "lenpen": 0.5, "max_len": 9}),
        ("gpt2_tiny", "lm", {"opening": "sep"}, {"beam": 3, "min_len": 3, "max_len": 10}),
    ],
)
def test_the_options_of_a_checkpoint_go_out(exported, arch, task, options, decoding):
    """transformers writes by default what the checkpoint is meant to write; they come back, too."""
    hf, generator, folder = exported(arch, task, decoding, **options)
    texts = toy_lines(12)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    kind = hf.AutoModelForCausalLM if task == "lm" else hf.AutoModelForSeq2SeqLM
    given = tokenizer(texts, return_tensors="pt", padding=True)
    made = kind.from_pretrained(folder).eval().generate(**given)
    start = given["input_ids"].shape[1] if task == "lm" else 0
    theirs = tokenizer.batch_decode(made[:, start:], skip_special_tokens=True)
    compared = 0
    for (best,), text in zip(generator.generate(texts), theirs, strict=True):
        if decoding["beam"] == 1 or len(best.hypothesis.ids) <= decoding["max_len"]:
            compared += 1
            assert best.text == text
    assert compared >= 6
    sources = generator.sources([[text] for text in texts])
    found = generator.outputs(Sources(sources), config := GenerateConfig(**decoding))
    written = [best.hypothesis.ids for [best] in found]
    for [best], [one] in zip(
        found, generator.scores(Sources(sources), written, config), strict=True
    ):
        assert one.hypothesis.score == pytest.approx(best.hypothesis.score, rel=1e-4, abs=1e-6)
    came = unitk.load(folder, format="hf")
    assert came.defaults == decoding and came.task.config.opening == options["opening"]


@pytest.mark.parametrize("opening", ["cls", "sep", "both"])
@pytest.mark.parametrize("config", [{}, {"forced_bos_token_id": None}])
def test_a_bart_begins_outputs_as_there(exported, config, opening):
    """Where no second symbol is forced, the model writes the one with which texts begin."""
    *_, folder = exported("bart_tiny", "seq2seq", opening=opening)
    file = folder / hf_generation.FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    came = unitk.load(folder, format="hf").task
    assert came.config.opening == opening
    assert hf_generation.opening(came) == {"cls": [2], "sep": [3], "both": [3, 2]}[opening]
    for name in ("tokenizer.json", hf_generation.FILE):
        (folder / name).unlink()
    there = json.loads((folder / "config.json").read_text())
    alone = hf_generation.bart_opening(there, folder)
    assert alone == ("cls" if opening == "cls" else "both")


def test_sampling_goes_out_and_what_transformers_lacks_is_named(exported, caplog):
    draws = {"sampling": True, "temperature": 0.7, "sampling_topp": 0.9, "max_len": 7}
    *_, folder = exported("gpt2_tiny", "lm", draws, opening="sep")
    found = json.loads((folder / hf_generation.FILE).read_text())
    wanted = {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": 0, "max_new_tokens": 8}
    assert found | wanted == found and "num_beams" not in found and not caplog.text
    assert unitk.load(folder, format="hf").defaults == draws
    more = {"search": "unilm", "unkpen": 2.0, "max_len": "1.5x", "no_repeat_ngram_size": 2}
    *_, folder = exported("gpt2_tiny", "lm", more, opening="sep")
    assert unitk.load(folder, format="hf").defaults == more  # unitk reads all of them again
    told = "transformers lacks: --search, --unkpen, --max-len, --no-repeat-ngram-size"
    assert told in caplog.text


@pytest.mark.parametrize(
    ("given", "found", "left"),
    [
        ({}, {"beam": 1}, []),
        ({"num_beams": 2, "early_stopping": False, "length_penalty": 1.0}, {"beam": 2}, []),
        (
            {"do_sample": True, "top_p": 0.9, "length_penalty": 2.0},
            {"sampling": True, "sampling_topk": 50, "sampling_topp": 0.9},
            [],
        ),
        (
            {"do_sample": True, "top_k": 0, "min_p": 0.1},
            {"sampling": True, "sampling_minp": 0.1},
            [],
        ),
        ({"temperature": 0.5, "top_k": 9}, {"beam": 1}, []),  # no effect without do_sample
        ({"do_sample": True, "num_beams": 3}, {"beam": 3}, ["do_sample"]),
        (
            {"num_beams": 3, "early_stopping": True, "num_return_sequences": 2},
            {"beam": 3, "nbest": 2},
            ["early_stopping"],
        ),
        ({"num_return_sequences": 2}, {"beam": 1}, ["num_return_sequences"]),
        ({"repetition_penalty": 1.2, "typical_p": 1.0}, {"beam": 1}, ["repetition_penalty"]),
        (
            {"bad_words_ids": [[9]], "eos_token_id": 0},
            {"beam": 1},
            ["bad_words_ids", "eos_token_id"],
        ),
        ({"decoder_start_token_id": 9}, {"beam": 1}, ["decoder_start_token_id"]),
        ({"forced_bos_token_id": 9}, {"beam": 1}, ["forced_bos_token_id"]),
        ({"max_length": 9, "min_length": 12}, {"beam": 1, "max_len": 8}, ["min_length"]),
        ({"max_length": 9, "max_new_tokens": 4, "min_length": 0}, {"beam": 1, "max_len": 4}, []),
        # what a chat model's file may hold: several ends
        ({"eos_token_id": [3]}, {"beam": 1}, []),
        ({"eos_token_id": [1, 3]}, {"beam": 1, "end_symbols": "[UNK]"}, []),
        ({"eos_token_id": [9, 1]}, {"beam": 1}, ["eos_token_id"]),
        ({"forced_eos_token_id": [3]}, {"beam": 1}, []),
        ({"forced_eos_token_id": 9}, {"beam": 1}, ["forced_eos_token_id"]),
        ({"pad_token_id": 9, "bos_token_id": 9}, {"beam": 1}, []),
        ({"suppress_tokens": [5], "begin_suppress_tokens": []}, {"beam": 1}, ["suppress_tokens"]),
        ({"forced_decoder_ids": [[1, 5]]}, {"beam": 1}, ["forced_decoder_ids"]),
        ({"stop_strings": ["x"]}, {"beam": 1}, ["stop_strings"]),
        ({"min_new_tokens": 9, "max_new_tokens": 4}, {"beam": 1, "max_len": 4}, ["min_new_tokens"]),
        ({"max_new_tokens": 1}, {"beam": 1, "max_len": 1}, []),
        ({"cache_implementation": "hybrid", "use_cache": True}, {"beam": 1}, []),
        ({"num_beams": 4, "num_beam_groups": 2}, {"beam": 4}, ["num_beam_groups"]),
        # transformers ends nothing then
        ({"eos_token_id": None}, {"beam": 1}, ["eos_token_id null"]),
        # true turns a rule on, and 1 does not always turn it off
        *(
            ({name: True, "output_scores": True}, {"beam": 1}, [name])
            for name in ("token_healing", "renormalize_logits", "remove_invalid_values")
        ),
        ({"token_healing": False, "repetition_penalty": 1}, {"beam": 1}, []),
        ({"encoder_no_repeat_ngram_size": 1}, {"beam": 1}, ["encoder_no_repeat_ngram_size"]),
    ],
)
def test_settings_of_generation(toy_vocab, tmp_path, given, found, left):
    file = tmp_path / hf_generation.FILE
    file.write_text(json.dumps({**given, "eos_token_id": given.get("eos_token_id", 3)}))
    task = get("task", "seq2seq")
    task = task(task.Config(opening="pad"), toy_vocab)
    assert hf_generation.read_generation(file, task) == (found, left)
    make_config(GenerateConfig, found)


def test_only_a_file_of_generation_has_no_end_by_default(toy_vocab, tmp_path):
    """A config.json that lacks one has the end of its class."""
    task = get("task", "seq2seq")
    task = task(task.Config(opening="pad"), toy_vocab)
    for name, left in {hf_generation.FILE: ["eos_token_id null"], "config.json": []}.items():
        (tmp_path / name).write_text('{"num_beams": 2}')
        assert hf_generation.read_generation(tmp_path / name, task)[1] == left


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_beams": 0}, "beam"),
        ({"do_sample": True, "temperature": 0.0}, "temperature"),
        ({"do_sample": True, "top_p": 0}, "topp"),
        ({"do_sample": True, "min_p": 2.0}, "minp"),
        ({"do_sample": True, "top_k": 50.5}, "top_k must be a whole number, got 50.5"),
        ({"eos_token_id": [3, 10**6]}, "eos_token_id 1000000 is not in the vocabulary"),
        ({"eos_token_id": [3, "</s>"]}, "eos_token_id must be a whole number, got '</s>'"),
        ({"do_sample": "yes"}, "do_sample must be true or false, got 'yes'"),
        ({"max_new_tokens": -5}, "max_new_tokens cannot be -5"),
        ({"max_length": 0}, "max_length cannot be 0"),
        ({"min_length": -1}, "min_length cannot be -1"),
        ({"num_beams": 2, "length_penalty": 99.0}, "lenpen"),
    ],
)
def test_values_that_mean_nothing_are_refused(toy_vocab, tmp_path, given, message):
    """Before anything is written, by the name of the file."""
    file = tmp_path / hf_generation.FILE
    file.write_text(json.dumps(given))
    task = get("task", "seq2seq")
    task = task(task.Config(opening="pad"), toy_vocab)
    with pytest.raises(CheckpointError, match=f"generation_config.json: .*{message}") as error:
        hf_generation.read_generation(file, task)
    assert "\n" not in str(error.value)


def test_settings_of_older_files_are_in_config_json(exported):
    """BART's, of 2020, without a generation_config.json; what both write by default is the same."""
    hf, generator, folder = exported("bart_tiny", "seq2seq", opening="sep")
    (folder / hf_generation.FILE).unlink()
    file = folder / "config.json"
    plain = json.loads(file.read_text())
    assert unitk.load(folder, format="hf").defaults == {}  # nothing is said of a search
    ids = {key: value for key, value in plain.items() if key.endswith("_id")} | {"num_beams": 3}
    more = {"early_stopping": True, "max_length": 12, "no_repeat_ngram_size": 3}
    file.write_text(json.dumps(plain | ids | more))
    came = unitk.load(folder, format="hf")
    here = {"beam": 3, "search": "fairseq", "max_len": 10, "no_repeat_ngram_size": 3}
    assert came.defaults == here
    texts = toy_lines(6)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    made = model.generate(**tokenizer(texts, return_tensors="pt", padding=True))
    theirs = tokenizer.batch_decode(made, skip_special_tokens=True)
    ours = [best for (best,) in came.generate(texts)]
    ended = [len(best.hypothesis.ids) <= 10 for best in ours]  # a forced end costs nothing there
    assert any(ended)
    pairs = zip(ours, theirs, ended, strict=True)
    assert all(best.text == text for best, text, whole in pairs if whole)


def test_convert_keeps_the_options_both_ways(exported, kit, caplog):
    decoding = {"beam": 3, "lenpen": 2.0, "max_len": 12, "min_len": 2, "no_repeat_ngram_size": 3}
    *_, folder = exported("t5_tiny", "seq2seq", decoding, opening="pad")
    there = json.loads((folder / hf_generation.FILE).read_text())
    more = there | {"repetition_penalty": 1.5, "guidance_scale": 2}
    (folder / hf_generation.FILE).write_text(json.dumps(more))
    ours = kit.to_unitk("hf", folder, folder / "ours")
    told = "no option says exactly the same as repetition_penalty, guidance_scale"
    assert told in caplog.text and "generation_config.json" in caplog.text
    assert read_defaults(ours) == decoding == unitk.load(ours).defaults
    back = kit.from_unitk(ours, "hf", folder / "back")
    assert json.loads((back / hf_generation.FILE).read_text()) == there


def test_a_decoder_alone_has_no_lengths_of_the_prompt(toy_vocab, tmp_path):
    file = tmp_path / hf_generation.FILE
    given = {"max_length": 50, "min_length": 5, "no_repeat_ngram_size": 2, "eos_token_id": 3}
    file.write_text(json.dumps(given))
    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    lost = ["max_length", "min_length", "no_repeat_ngram_size"]
    assert hf_generation.read_generation(file, task) == ({"beam": 1}, lost)
    file.write_text(json.dumps({"num_beams": "many"}))
    with pytest.raises(CheckpointError, match="generation_config.json: num_beams must be.*got"):
        hf_generation.read_generation(file, task)


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
