"""Given outputs: scores are those of the search, attention is that of the layer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from paper_archs import arch_of
from rounding import assert_near

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.drivers import Watcher
from unitk.decoding.ensemble import Ensemble
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import DataError, NonFiniteError, UsageError
from unitk.tasks.base import Task

SMALL = {"num_layers": 2, "width": 32, "num_heads": 4, "ffn_width": 64, "init_std": 0.15}
TASKS = [
    name for name in registry.names("task") if registry.get("task", name).protocol != Task.protocol
]


def generator(name, vocab, seed=0, **changes):
    cls = registry.get("task", name)
    torch.manual_seed(seed)
    config = replace(registry.get("arch", arch_of(cls))(), **SMALL | changes)
    if config.fan_in_init:
        config = replace(config, init_std=1.0)
    task = cls(cls.Config(), vocab)
    return Generator(config.build(len(task.vocab)).eval(), task)


@pytest.fixture(params=TASKS)
def one(request, toy_vocab):
    return generator(request.param, toy_vocab)


def sources(one, count=7):
    rng = np.random.default_rng(0)
    return [[rng.choice(one.task.words, n) for n in (4, 1 + 5 * i)] for i in range(count)]


def make_end_likely(one, some):
    """Raise the logit of the end to that of the best first word: outputs differ in length."""
    head, logits, likely = one.model.head, [], torch.zeros(len(one.vocab))
    one.model.head = lambda states, name="lm": logits.append(head(states, name)) or logits[-1]
    one.outputs(Sources(some), GenerateConfig(max_len=1, beam=1))
    likely[one.protocol.end] = (logits[0].amax(1) - logits[0][:, one.protocol.end]).mean()
    one.model.head = lambda states, name="lm": head(states, name) + likely


def assert_same(scored, found, expected=1e-5):
    assert scored.hypothesis.ids.tolist() == found.hypothesis.ids.tolist()
    assert scored.text == found.text
    for part in ("score", "log_prob", "token_log_probs"):
        a, b = getattr(scored.hypothesis, part), getattr(found.hypothesis, part)
        assert np.allclose(a, b, rtol=0, atol=expected), part


@pytest.mark.parametrize("search", ["likely", "fairseq", "glm", "unilm"])
def test_scores_are_those_of_the_search(one, search):
    config = GenerateConfig(
        beam=3, nbest=3, max_len=2, lenpen=0.7, search=search, unkpen=2.0, max_tokens=300
    )
    some, done = sources(one), []
    make_end_likely(one, some)
    found = one.outputs(Sources(some), config)
    pairs = [(source, output) for source, n in zip(some, found, strict=True) for output in n]
    lengths = {len(output.hypothesis.ids) for _, output in pairs}
    assert len(pairs) == 21 and min(lengths) < max(lengths) == 3
    given = [output.hypothesis.ids for _, output in pairs]
    scored = one.scores(
        Sources([source for source, _ in pairs]), given, config, watch=Watcher(done.append)
    )
    for (_, output), (again,) in zip(pairs, scored, strict=True):
        assert_same(again, output)
    assert sum(done) == 21 and len(done) > 1
    # the last end need not be given
    ((open_,),) = one.scores(Sources([pairs[0][0]]), [given[0][:-1]], config)
    assert_same(open_, pairs[0][1])


def test_each_symbol_that_ends_a_search_ends_a_given_output(one):
    some, symbols = sources(one), one.vocab.symbols
    [name] = one.vocab.pieces([symbols["mask"]])
    config = GenerateConfig(beam=3, max_len=2, end_symbols=name)
    head, likely = one.model.head, torch.zeros(len(one.vocab))
    likely[symbols["mask"]] = 5.0  # likelier than the usual end
    one.model.head = lambda states, name="lm": head(states, name) + likely
    found = [best for (best,) in one.outputs(Sources(some), config)]
    given = [output.hypothesis.ids for output in found]
    for (again,), output in zip(one.scores(Sources(some), given, config), found, strict=True):
        assert_same(again, output)
    plain = one.scores(Sources(some), given, replace(config, end_symbols=""))
    gains = [
        best.hypothesis.log_prob - own.hypothesis.log_prob
        for best, (own,) in zip(found, plain, strict=True)
    ]
    assert min(gains) > -1e-4 and max(gains) > 0.1


def test_options_of_a_search_alone_concern_no_score(toy_vocab):
    lm = generator("lm", toy_vocab)
    plain = lm.score(["The bade."], ["The babe."], search="unilm", max_len=2)[0]
    lm.defaults = {"beam": 1, "min_len": 9}
    assert_same(lm.score(["The bade."], ["The babe."], search="unilm", max_len=2)[0], plain)
    assert lm.score(["The bade."], ["The babe."], search="exact")


def test_several_blanks(toy_vocab):
    glm = generator("glm_infill", toy_vocab)
    text = "The [MASK] of [MASK]."
    config = GenerateConfig(beam=3, nbest=3, max_len=4, search="glm")
    source = glm.encode_blanks(text)
    for output in glm.outputs(Sources([source]), config)[0]:
        assert_same(glm.scores(Sources([source]), [output.hypothesis.ids], config)[0][0], output)
    with pytest.raises(DataError, match="input 1: 1 targets for 2 blanks"):
        glm.scores(Sources([source]), [np.array([9, 9])], config)


def test_texts_in_python(toy_vocab):
    lm = generator("lm", toy_vocab)
    one, two = lm.score(["The bade.", ["a", "b"]], ["The babe.", ""], lenpen=0)
    assert one.text == "The babe." and two.text == ""
    assert one.hypothesis.score == one.hypothesis.log_prob < 0
    assert two.hypothesis.ids.tolist() == [lm.protocol.end]
    assert_near(
        lm.score(["The bade."], ["The babe."])[0].hypothesis.log_prob, one.hypothesis.log_prob
    )


def test_given_outputs_are_scored_whole_whatever_a_search_would_choose(toy_vocab):
    lm = generator("lm", toy_vocab)
    texts = ["The bade. The babe."], ["The babe. The bade."]
    plain = lm.score(*texts)[0]
    lm.defaults = {"sentences": 1, "sampling": True, "best_of": 3, "max_len": 2, "lenpen": 0.5}
    meant = lm.score(*texts)[0]
    assert meant.text == plain.text == texts[1][0]
    assert meant.hypothesis.log_prob == plain.hypothesis.log_prob < meant.hypothesis.score
    chosen = lm.score(*texts, key_phrases="babe")[0]  # of the source, one sentence is read
    assert_near(
        chosen.hypothesis.log_prob, lm.score(["The babe."], texts[1])[0].hypothesis.log_prob
    )
    for idle in ({"sentences": 2}, {"beam": 3}, {"max_len": 9}):
        with pytest.raises(UsageError, match="has no effect with targets"):
            lm.score(*texts, **idle)


def test_an_ensemble_scores_the_mean(toy_vocab):
    one, other = (generator("lm", toy_vocab, seed) for seed in (0, 1))
    both = Generator(Ensemble([one.model, other.model]), one.task)
    texts = ["The bade."], ["The babe."]
    gains = [g.score(*texts)[0].hypothesis.token_log_probs for g in (one, other, both)]
    assert np.allclose(np.exp(gains[2]), (np.exp(gains[0]) + np.exp(gains[1])) / 2, atol=1e-6)


def test_what_is_too_long(toy_vocab):
    lm = generator("lm", toy_vocab, max_positions=16)
    source, target = [np.full(4, 50), np.full(9, 51)], np.full(8, 52)
    config = GenerateConfig()
    with pytest.raises(DataError, match="input 4 .*target.* 8 tokens.*too long.* 8 for"):
        lm.scores(Sources([source], first=3), [target], config)
    short = [source[0], source[1][:1]]
    ((one,),) = lm.scores(Sources([source], truncate=True), [target], config)
    assert_same(one, lm.scores(Sources([short]), [target], config)[0][0])
    with pytest.raises(DataError, match="target of 30 tokens"):
        lm.scores(Sources([source], truncate=True), [np.full(30, 52)], config)


def test_mistakes_are_refused(toy_vocab):
    mlm = generator("mlm", toy_vocab)
    with pytest.raises(UsageError, match="--score: task mlm.*not write.*word; `unitk evaluate`"):
        mlm.score(["a"], ["b"])
    lm = generator("lm", toy_vocab)
    with pytest.raises(UsageError, match="a target.*each source"):
        lm.score(["a", "b"], ["c"])
    with pytest.raises(DataError, match="input 2: task lm .*nothing"):
        lm.score(["The bade.", " "], ["The.", "The."])
    lm.model.decoder.embed.tokens.weight.data.fill_(torch.nan)
    with pytest.raises(NonFiniteError):
        lm.score(["The bade."], ["The."])


@pytest.fixture(params=["mass", "seq2seq"])
def reader(request, toy_vocab):
    return generator(request.param, toy_vocab, decoder_layers=3)


@torch.no_grad()
def by_hand(reader, source, ids, layer):
    """The attention of one output, step by step from the layer's own projections."""
    from unitk.slots import collate, unroll

    model, seen = reader.model, {}
    part = model.decoder.layers[layer - 1].cross_attention
    handle = part.query.register_forward_hook(lambda _, x, out: seen.update(query=out[0]))
    batch = collate([[unroll(reader.task.prompt(source), reader.protocol, ids)]]).to("cpu")
    condition = model.condition(batch)
    model(batch, condition)
    handle.remove()
    n = sum(map(len, source)) + len(source) - 1  # separators between parts
    key = part.kv(condition.cross[0]).chunk(2, dim=-1)[0]
    tables = []
    for head in range(4):
        some = slice(8 * head, 8 * head + 8)
        tables.append((seen["query"][: len(ids), some] @ key[: n + 2, some].T / 8**0.5).softmax(-1))
    return torch.stack(tables).mean(0)[:-1, 1 : n + 1].numpy()


def test_attention_is_that_of_the_layer(reader):
    some = sources(reader)
    for layer, number in ((0, 3), (2, 2)):
        config = GenerateConfig(beam=2, nbest=2, max_len=6, max_tokens=400)
        found = reader.outputs(Sources(some), config, layer=layer)
        for source, outputs in zip(some, found, strict=True):
            for output in outputs:
                expected = by_hand(reader, source, output.hypothesis.ids, number)
                expected[:, len(source[0])] = 0  # the separator is no word
                assert np.allclose(output.attention, expected, atol=1e-6)
    plain = reader.outputs(Sources(some), config)
    assert [o.text for n in plain for o in n] == [o.text for n in found for o in n]
    scored = reader.scores(Sources(some), [n[0].hypothesis.ids for n in found], config, layer=2)
    for (one,), (best, _) in zip(scored, found, strict=True):
        assert np.allclose(one.attention, best.attention, atol=1e-6)


def test_alignments_in_python(reader):
    texts, options = ["The bade of a babe.", ["Ba", "Be bo"], ""], {"max_len": 5, "beam": 2}
    found = reader.generate(texts, nbest=2, alignment_layer=2, **options)
    tables = [
        reader.outputs(
            Sources(reader.encode([["The bade of a babe."]])),
            GenerateConfig(nbest=2, **options),
            layer=2,
        )[0]
    ]
    for one, other in zip(found[0], tables[0], strict=True):
        assert (one.attention == other.attention).all()
        assert reader.vocab.decode(one.source.tolist()) == "The bade of a babe."
    ids = reader.encode([["Ba", "Be bo"]])[0]
    assert found[1][0].source.tolist() == [*ids[0], reader.vocab.sep, *ids[1]]
    assert found[2][0].attention is None and found[2][0].source is None
    best = found[0][0]
    [scored] = reader.score([texts[0]], [best.text], alignment_layer=2)
    if reader.encode([[best.text]])[0][0].tolist() == best.hypothesis.ids[:-1].tolist():
        assert np.allclose(scored.attention, best.attention, atol=1e-6)
    assert scored.attention.shape[1] == len(scored.source)
    assert reader.score([texts[0]], ["The"])[0].attention is None


def test_attention_of_an_ensemble_is_the_mean(toy_vocab):
    one, other = (generator("seq2seq", toy_vocab, seed) for seed in (0, 1))
    both = Generator(Ensemble([one.model, other.model]), one.task)
    some, config = sources(one, 2), GenerateConfig(max_len=4, beam=2)
    ids = [output[0].hypothesis.ids for output in both.outputs(Sources(some), config)]
    tables = [
        g.scores(Sources(some), ids, config, layer=1)[1][0].attention for g in (one, other, both)
    ]
    assert np.allclose(tables[2], (tables[0] + tables[1]) / 2, atol=1e-6)


def test_where_there_is_no_cross_attention(toy_vocab, reader):
    config = GenerateConfig(max_len=3)
    for name in ("lm", "glm_infill", "optimus"):
        one = generator(name, toy_vocab)
        with pytest.raises(UsageError, match="--print-alignment: .*architecture"):
            one.outputs(Sources(sources(one, 1)), config, layer=0)
    with pytest.raises(UsageError, match="--alignment-layer must be 0 to 3, got 4"):
        reader.outputs(Sources(sources(reader, 1)), config, layer=4)
