"""What a model makes of texts does not depend on what it reads beside them."""

import numpy as np
import pytest
import torch

from tests.conftest import toy_lines
from unitk.decoding.generator import Generator
from unitk.errors import DataError, UsageError
from unitk.families.latent.space.points import LatentSpace
from unitk.models.state import Reading
from unitk.registry import get
from unitk.slots import Example, collate

TASKS = {
    "bilm": "elmo_tiny",
    "mlm": "bert_tiny",
    "lm": "gpt2_tiny",
    "unilm": "unilm_tiny",
    "pmlm": "unilm2_tiny",
    "mass": "mass_tiny",
    "glm_infill": "glm_tiny",
    "seq2seq": "t5_tiny",
    "optimus": "optimus_tiny",
}


@pytest.fixture(params=TASKS)
def generator(request, toy_vocab):
    task = get("task", request.param)
    torch.manual_seed(0)
    config = get("arch", TASKS[request.param])()
    model = config.build(len(toy_vocab), len(toy_vocab)).eval()
    return Generator(model, task(task.Config(), toy_vocab))


def assert_near(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return np.allclose(a, b, rtol=1e-4, atol=1e-5 * max(np.abs(b).max(), 1))


def test_company_changes_nothing(generator):
    texts = toy_lines(12)
    for pool in ("mean", "first", "last"):
        together = generator.embed(texts, pool=pool, layer=1)
        assert assert_near(together, generator.embed(texts, pool=pool, layer=1, max_tokens=1))
        assert assert_near(together[3], generator.embed(texts[3], pool=pool, layer=1)[0])


def test_means_are_of_the_words(generator):
    text = toy_lines(1)[0]
    [states] = generator.embed(text, pool="none")
    ids = generator.task.reading(generator.encode([[text]])[0]).token
    word = ~np.isin(ids, list(generator.vocab.symbols.values()))
    assert len(states) == len(ids)
    assert assert_near(generator.embed(text)[0], states[word].mean(0))
    assert assert_near(generator.embed(text, specials=True)[0], states.mean(0))
    assert assert_near(generator.embed(text, pool="first")[0], states[0])
    assert assert_near(generator.embed(text, pool="last")[0], states[-1])
    assert not generator.embed(["", text])[0].any()


def test_no_texts_have_vectors_of_the_same_width(generator):
    one = generator.embed(toy_lines(1))
    for none in (generator.embed([]), generator.embed([""])[:0]):
        assert (none.shape, none.dtype) == ((0, one.shape[1]), one.dtype)
    assert np.concatenate([one, generator.embed([])]).tobytes() == one.tobytes()
    assert generator.embed([], pool="none") == []


def test_layers_of_packed_rows_are_those_of_single_ones(generator):
    if type(generator.task).__name__ == "BiLM":  # its words are made of their characters
        pytest.skip("tests/models/recurrent/test_elmo.py")
    stack = generator.model.reader
    read = [
        generator.task.reading(source) for source in generator.encode([[t] for t in toy_lines(3)])
    ]
    single, packed = [], []
    with torch.no_grad():
        batch = collate([[Example({"x": slots}) for slots in read]]).to("cpu")
        states = stack.encode(Reading.of(batch, "x", depths=packed))
        assert torch.equal(states, packed[-1]) and len(packed) == 1 + len(stack.layers)
        start = 0
        for slots in read:
            batch, single = collate([[Example({"x": slots})]]).to("cpu"), []
            stack.encode(Reading.of(batch, "x", depths=single))
            for one, row in zip(single, packed, strict=True):
                assert assert_near(one[0, : len(slots)], row[0, start : start + len(slots)])
            start += len(slots)


def test_the_layers_above_do_not_run(generator):
    layers, ran = {*generator.model.reader.layers}, []
    hooks = [layer.register_forward_hook(lambda *_: ran.append(1)) for layer in layers]
    for depth in range(len(generator.model.reader.layers) + 1):
        ran.clear()
        generator.embed(toy_lines(1), layer=depth)
        assert len(ran) == depth
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("arch", ["awd_lstm_tiny", "gpt2_tiny"])
def test_the_vector_of_an_empty_text_is_as_wide_as_that_of_any_other(toy_vocab, arch):
    """The layers of an AWD-LSTM differ in width."""
    task = get("task", "lm")
    model = get("arch", arch)().build(len(toy_vocab)).eval()
    generator = Generator(model, task(task.Config(), toy_vocab))
    [text] = toy_lines(1)
    for layer in range(len(model.reader.layers) + 1):
        [states] = generator.embed(text, layer=layer, pool="none")
        some, none = (generator.embed(texts, layer=layer) for texts in ([text, ""], ["", ""]))
        assert some.shape == none.shape == (2, states.shape[1]) and not some[1].any()
        assert generator.embed([""], layer=layer, pool="none")[0].shape == (0, states.shape[1])


def test_a_latent_is_that_of_the_space(generator):
    texts = toy_lines(4)
    if type(generator.task).__name__ != "Optimus":
        with pytest.raises(UsageError, match="--pool latent: .*has none; optimus_.* have"):
            generator.embed(texts, pool="latent")
        return
    space = LatentSpace(generator.model, generator.task)
    assert assert_near(generator.embed(texts, pool="latent"), space.encode(texts).mean)


def test_mistakes_are_named(generator):
    with pytest.raises(UsageError, match="^--layr: .*mean --layer"):
        generator.embed("a", layr=1)
    with pytest.raises(UsageError, match="--layer must be -3 to 2, got 3"):
        generator.embed("a", layer=3)
    if generator.model.reader.config.max_positions:
        long = " ".join(toy_lines(300))
        with pytest.raises(DataError, match="input 2 .*too long.*--truncate"):
            generator.embed(["a", long])
        assert np.isfinite(generator.embed(["a", long], truncate=True)).all()


def test_one_string_is_one_text(generator):
    if generator.protocol is None:
        return
    text, several = toy_lines(1)[0], {"beam": 1, "max_len": 3}
    assert len(generator.generate(text, **several)) == 1
    [[one]] = generator.generate([""], **several)
    assert one.text == "" and not len(one.hypothesis.ids)
    for call in (generator.generate, generator.infill):
        with pytest.raises(UsageError, match="^--num-beam: .*mean --beam"):
            call(text, num_beam=3)
    with pytest.raises(UsageError, match="^--lenpn: .*mean --lenpen"):
        generator.score(text, text, lenpn=3)
