"""Outputs equal those of transformers for the same weights under the same rules."""

import numpy as np
import pytest
import torch

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraints, WordRules
from unitk.decoding.decode import generate
from unitk.formats.hf.tables.bart import BART
from unitk.formats.hf.tables.gpt import GPT2
from unitk.formats.hf.tables.t5 import T5
from unitk.models import archs
from unitk.slots import Example, Protocol, stay

V, PAD, END, MOST = 60, 1, 2, 24
SETTINGS = {"vocab_size": V, "eos_token_id": END, "bos_token_id": 0, "pad_token_id": PAD}
BAD = ((7,), (8, 9), (10, 10))


@pytest.fixture(scope="module", params=["bart", "t5", "gpt2"])
def twins(request):
    """Their model, ours, and a function that makes our prompt; both like to end."""
    hf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if request.param == "bart":
        sizes = dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
        sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
        sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 256)
        config = hf.BartConfig(**SETTINGS, **sizes, d_model=64, forced_eos_token_id=None)
        config.decoder_start_token_id = END
        theirs, ours, layout = (
            hf.BartForConditionalGeneration(config),
            archs.preset("bart_tiny"),
            BART,
        )
    elif request.param == "t5":
        sizes = {"d_model": 64, "d_kv": 24, "d_ff": 256, "num_layers": 2, "num_heads": 4}
        config = hf.T5Config(**SETTINGS, **sizes, decoder_start_token_id=END)
        theirs, ours, layout = hf.T5ForConditionalGeneration(config), archs.preset("t5_tiny"), T5
    else:
        config = hf.GPT2Config(**SETTINGS, n_embd=64, n_layer=2, n_head=4)
        theirs, ours, layout = hf.GPT2LMHeadModel(config), archs.preset("gpt2_tiny"), GPT2
    ours = ours.build(V).eval()
    theirs.eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    shapes = {name: parameter.shape for name, parameter in ours.named_parameters()}
    state = layout.from_stored(dict(theirs.named_parameters()), shapes, ours.config, "reference")
    ours.load_state_dict(state, strict=False)

    likely = torch.zeros(V)
    likely[END] = 4.0 if request.param == "bart" else 6.0
    theirs.get_output_embeddings().register_forward_hook(lambda *given: given[2] + likely)
    head = ours.head
    ours.head = lambda states: head(states) + likely

    def prompt(words):
        order = np.arange(len(words))
        if request.param == "gpt2":
            return Example({"x": stay(words, order, at=order)})
        return Example({"enc": stay(words, order), "dec": stay([END], [0])})

    return theirs, ours, prompt


def outputs(theirs, words, beam, **options):
    """Words with the end, and score, of their outputs; None where the limit cut one."""
    ids = torch.from_numpy(words)[None]
    more = {"return_dict_in_generate": True, "output_scores": True, "num_return_sequences": beam}
    made = theirs.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        num_beams=beam,
        do_sample=False,
        max_new_tokens=MOST,
        **more,
        **options,
    )
    start = 1 if theirs.config.is_encoder_decoder else len(words)
    rows = [row[start:].tolist() for row in made.sequences]
    if not all(END in row for row in rows):
        return None
    scores = made.sequences_scores.tolist() if beam > 1 else [None]
    return [(row[: row.index(END) + 1], s) for row, s in zip(rows, scores, strict=True)]


@pytest.mark.every(6)
@pytest.mark.parametrize("lenpen", [0.0, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("beam", [1, 3, 5])
def test_searches(twins, beam, lenpen):
    theirs, ours, prompt = twins
    rng = np.random.default_rng(beam)
    inputs = [rng.integers(5, V, size=n) for n in (3, 9, 5, 12, 7, 4)]
    rules = {"min_len": 2}
    if theirs.config.is_encoder_decoder:  # of a decoder alone, they look at the prompt as well
        rules["no_repeat_ngram_size"] = 2
    known = {"no_repeat_ngram_size": rules.get("no_repeat_ngram_size"), "min_new_tokens": 2}
    compared = 0
    for search, early in {"likely": False, "exact": "never"}.items():
        if beam == 1 and search == "exact":
            continue
        config = GenerateConfig(
            beam=beam, nbest=beam, max_len=MOST - 1, lenpen=lenpen, search=search, **rules
        )
        constraints = Constraints(Constraints.plain(config, 6).by_input, WordRules(bad=BAD))
        prompts = [prompt(words) for words in inputs]
        found = generate(ours, prompts, Protocol(end=END), config, constraints=constraints)
        known["bad_words_ids"] = [list(phrase) for phrase in BAD]
        beams = {"length_penalty": lenpen, "early_stopping": early} if beam > 1 else {}
        for words, some in zip(inputs, found, strict=True):
            expected = outputs(theirs, words, beam, **known, **beams)
            if expected is None:
                continue
            compared += 1
            assert [one.ids.tolist() for one in some] == [ids for ids, _ in expected]
            if beam > 1:
                scores = [one.score for one in some]
                assert scores == pytest.approx([score for _, score in expected], abs=1e-4)
    assert compared >= 4
