"""A text's log-probabilities are those of its task, computed plainly here."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from other_archs import without_zeros
from paper_archs import arch_of
from rounding import assert_near

from tests.conftest import toy_lines
from unitk import registry
from unitk.decoding import likelihood as module
from unitk.decoding.generator import Generator
from unitk.decoding.likelihood import layouts
from unitk.decoding.share import ROW, share
from unitk.errors import DataError, UsageError
from unitk.kernels.weights import prepare_weights
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.slots import Example, collate, lm, probe, query, stay, unroll
from unitk.tasks import mass, mlm, unilm

NONE = np.zeros(0, np.int64)
TASKS = ["lm", "mlm", "unilm", "pmlm", "glm_infill", "mass", "seq2seq", "xlnet"]
ONE_PASS = [name for name in TASKS if name != "mlm"]


def likelihoods(*args, **how):
    return [gains for gains, _ in module.likelihoods(*args, **how)]


@pytest.fixture
def made(toy_vocab):
    def make(name, answers=False, arch="", **options):
        cls = registry.get("task", name)
        task = cls(cls.Config(**options), toy_vocab)
        task = task.with_trained(pairs=answers)
        torch.manual_seed(1)
        config = tiny(registry.get("arch", arch or arch_of(cls))())
        changes = {} if config.fan_in_init else {"init_std": 0.2}
        return replace(config, **changes).build(len(toy_vocab)).eval(), task

    return make


@torch.no_grad()
def table(model, example):
    """The log-probabilities [K, V] of all words at each asked row."""
    batch = collate([[example]]).to("cpu")
    [ask] = batch.asks.values()
    states = model(batch)[0][ask.tower].flatten(0, 1)
    return model.head(states[ask.first]).double().log_softmax(-1).numpy()


def plainly(model, task, before, text):
    """Each token's log-probability, from a layout of its own in the words of the task's page."""
    v, name = task.vocab, registry.name_of("task", type(task))
    found = []
    for i, word in enumerate(text):
        given, hidden = np.append(before, text[:i]), np.append(before, text)
        n = len(before) + 1
        framed = np.concatenate([[v.cls], hidden, [v.sep]])
        zeros = np.zeros_like(framed)
        if task.trained.pairs and name != "mlm":
            example = unroll(task.prompt([before]), task.protocol, [*text[:i], 7])
            example = replace(
                example, asks=[lm(example.asks[0].first[-1:], [7], tower=example.decoded)]
            )
        elif name == "lm":
            tokens = np.append(v.cls, given)
            steps = np.arange(len(tokens))
            example = Example({"x": stay(tokens, steps, at=steps)}, [lm(steps[-1:], [7])])
        elif name == "mlm":
            example = mlm.layout(framed, zeros, np.array([n + i]), np.array([v.mask]))
        elif name == "unilm":
            tokens = np.concatenate([[v.cls], given, [v.mask]])
            example = unilm.layout(unilm.LEFT, tokens, 0, np.array([len(tokens) - 1]), [v.mask])
        elif name == "pmlm":
            place, steps = n + np.arange(len(text)), 1 + np.arange(i)
            x = stay(np.concatenate([[v.cls], before, [v.sep]]), [*range(n), n + len(text)])
            x += stay(np.full(len(text), v.mask), place)
            x += stay(text[:i], place[:i], at=steps) + probe([task.p], place[[i]], at=i + 1)
            example = Example({"x": x}, [lm(np.array([len(x) - 1]), [7])])
        elif name == "xlnet":
            x = stay(np.append(v.sep, before), range(n))
            x += stay(text[:i], n + np.arange(i), at=1 + np.arange(i))
            x += query([task.asking], [n + i], at=i)
            example = Example({"x": x}, [lm(np.array([len(x) - 1]), [7])])
        elif name == "mass":
            masks = np.full(len(text), v.mask)
            example = mass.layout(framed, n + np.arange(len(text)), masks, np.zeros(len(text), int))
            example = replace(example, asks=[lm(np.array([i]), [7], tower="dec")])
        elif name == "glm_infill":
            part_a = np.concatenate([[v.cls], before, [v.mask, v.sep]])
            fed = np.append(v.sop, text[:i])
            steps = 1 + np.arange(i + 1)
            x = stay(part_a, np.arange(len(part_a))) + stay(fed, n, pos2=steps, at=steps)
            example = Example({"x": x}, [lm(np.array([len(x) - 1]), [7])])
        else:
            source = np.concatenate([[v.cls], before, [v.sep]])
            fed = np.append(v.cls, text[:i])
            steps = np.arange(i + 1)
            towers = {
                "enc": stay(source, np.arange(len(source))),
                "dec": stay(fed, steps, at=steps),
            }
            example = Example(towers, [lm(steps[-1:], [7], tower="dec")])
        found.append(table(model, example)[0, word])
    return found


@pytest.mark.parametrize("name", TASKS)
def test_a_text_without_tokens_has_no_log_probabilities(made, name):
    model, task = made(name)
    words = task.words[[3, 1, 4]]
    [alone] = likelihoods(model, task, [(NONE, words)])
    found = likelihoods(model, task, [(NONE, NONE), (NONE, words), (words, NONE)])
    assert [len(gains) for gains in found] == [0, len(alone), 0]
    assert_near(found[1], alone)


def some_texts(task, count=9):
    """Texts of which several begin alike, one twice, one a beginning of another."""
    rng = np.random.default_rng(0)
    texts = [rng.choice(task.words, 1 + i) for i in range(count)]
    texts += [np.append(texts[5][:3], texts[6][:2]), texts[5][:4], texts[5], texts[3][:1]]
    return [texts[i] for i in rng.permutation(len(texts))]


@pytest.mark.every(4)
@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize("words", [0, 3])
@pytest.mark.parametrize("name", TASKS)
def test_each_token_has_its_tasks_log_probability(made, name, words, answers):
    model, task = made(name, answers)
    before = np.random.default_rng(4).choice(task.words, words)
    texts = some_texts(task)
    found = likelihoods(model, task, [(before, text) for text in texts], max_tokens=200)
    for text, own in zip(texts, found, strict=True):
        assert own.dtype == np.float32
        assert_near(own, np.array(plainly(model, task, before, text)))


@pytest.mark.parametrize("words", [0, 3])
def test_a_shifted_token_is_read_at_the_slot_before(made, words):
    model, task = made("mlm", shift=True)
    before = task.words[:words]
    text = np.random.default_rng(0).choice(task.words, 6)
    [found] = likelihoods(model, task, [(before, text)])
    framed = np.concatenate([[task.vocab.cls], before, text, [task.vocab.sep]])
    for i, word in enumerate(text):
        place = np.array([1 + words + i])
        example = mlm.layout(framed, 0 * framed, place, np.array([task.vocab.mask]), True)
        assert example.asks[0].first == place - 1
        assert_near(found[i], table(model, example)[0, word])


def test_glm_reads_what_comes_before_in_one_direction(made):
    """A text's probability after others is that of all after the first one, less that of theirs."""
    model, task = made("glm_infill", unidirectional=True)
    first, before, text = np.split(task.words[:9], [1, 5])
    every, own = likelihoods(
        model, task, [(first, np.append(before, text)), (np.append(first, before), text)]
    )
    assert_near(torch.tensor(own), torch.tensor(every[len(before) :]))
    v = task.vocab
    x = task.likelihood(np.append(first, before), text).towers["x"]
    assert x.token[:5].tolist() == [v.cls, *first, v.mask, v.sep, v.sop]
    assert x.token[5:].tolist() == [*before, *text[:-1]]
    # one token or none is read as by the other way
    model, other = made("glm_infill")
    for few in (first, first[:0]):
        [one], [two] = (likelihoods(model, each, [(few, text)]) for each in (task, other))
        assert one.tolist() == two.tolist()


@pytest.mark.parametrize("name", TASKS)
def test_sums_are_of_float32_whatever_the_model_is(made, name):
    model, task = made(name)
    texts = [(NONE, text) for text in some_texts(task)]
    exact = likelihoods(model, task, texts)
    found = likelihoods(prepare_weights(model, "bf16"), task, texts)
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == np.float32
        assert np.abs(one - other).max() < 0.5


def test_long_texts_that_begin_alike_are_read_once(made):
    """Beyond the slots of a tree, too; whoever waits is told after each batch."""
    model, task = made("lm")
    rng = np.random.default_rng(6)
    start = rng.choice(task.words, ROW + 20)
    texts = [(NONE, np.append(start, rng.choice(task.words, 3))) for _ in range(5)]
    [tree] = share([layouts(task, *text)[0] for text in texts])
    assert len(tree.index) == 5 and len(tree.example.towers["x"]) < ROW + 50
    seen = list[int]()
    together = likelihoods(model, task, texts, report=seen.append)
    for text, own in zip(texts, together, strict=True):
        assert_near(own, likelihoods(model, task, [text])[0])
    assert len(seen) > 1 and sum(seen) == len(texts)


@pytest.mark.parametrize("arch", ["t5_tiny", "bart_tiny"])
def test_relative_positions_are_shared_too(made, arch):
    model, task = made("seq2seq", arch=arch)
    texts = some_texts(task)
    found = likelihoods(model, task, [(NONE, text) for text in texts])
    for text, own in zip(texts, found, strict=True):
        assert_near(own, np.array(plainly(model, task, NONE, text)))


@pytest.mark.parametrize("name", TASKS)
def test_the_last_token_is_one_of_all(made, name):
    """The probabilities of all words in its place sum to 1, and it changes nothing before it."""
    model, task = made(name)
    start = np.random.default_rng(2).choice(task.words, 3)
    texts = [
        (NONE, np.append(start, word)) for word in range(len(task.vocab)) if word in task.words
    ]
    found = np.array(likelihoods(model, task, texts))
    example = layouts(task, *texts[0])[-1]
    rest = np.setdiff1d(np.arange(len(task.vocab)), task.words)
    others = np.exp(table(model, example)[-1, rest]).sum()
    assert_near(np.exp(found[:, -1].astype(float)).sum() + others, 1.0)
    if name in ONE_PASS:
        assert_near(found[:, :-1], np.broadcast_to(found[:1, :-1], found[:, :-1].shape))


def test_equal_texts_are_equal_to_the_last_bit(made):
    model, task = made("lm")
    texts = some_texts(task, 30)
    found = likelihoods(model, task, [(NONE, text) for text in [*texts, *texts[::-1]]])
    for one, other in zip(found, found[::-1], strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_shifted_model_is_read_one_slot_before(made):
    """BabyLM's back end mntp: token i is hidden, and read at token i - 1."""
    model, task = made("mlm", arch="gpt2_tiny", shift=True)
    v, text = task.vocab, task.words[[5, 40, 7]]
    [found] = likelihoods(model, task, [(NONE, text)])
    framed = np.concatenate([[v.cls], text, [v.sep]])
    for i, word in enumerate(text):
        hidden = np.where(np.arange(5) == i + 1, v.mask, framed)
        x = stay(hidden, np.arange(5))
        assert_near(found[i], table(model, Example({"x": x}, [lm(np.array([i]), [7])]))[0, word])


def test_whole_words_hide_the_later_pieces_of_a_word(made):
    model, task = made("mlm")
    v = task.vocab
    begins = task.words[v.starts[task.words]]
    inside = task.words[~v.starts[task.words]]
    text = np.array([begins[0], inside[0], inside[1], begins[1], inside[2]])
    [found] = likelihoods(model, task, [(NONE, text)], whole_words=True)
    framed = np.concatenate([[v.cls], text, [v.sep]])
    for i, hidden in enumerate([[0, 1, 2], [1, 2], [2], [3, 4], [4]]):
        places = 1 + np.array(hidden)
        example = mlm.layout(framed, 0 * framed, places, np.full(len(places), v.mask))
        assert_near(found[i], table(model, example)[0, text[i]])


def test_a_long_text_has_its_copies_in_several_rows(made):
    model, task = made("mlm")
    text = np.random.default_rng(0).choice(task.words, 150)
    examples = layouts(task, NONE, text)
    assert len(examples) == 150 and {len(one.towers["x"]) for one in examples} == {152}
    assert len(layouts(task, NONE, text[:6])) == 1
    [found] = likelihoods(model, task, [(NONE, text)])
    assert_near(found[[0, 149]], np.array(plainly(model, task, NONE, text))[[0, 149]])


@pytest.mark.parametrize(
    "arch",
    ["bert_tiny", "gpt2_tiny", "unilm2_tiny", "modern_tiny", "gemma3_tiny", "pythia_tiny"],
)
@torch.no_grad()
def test_the_last_layer_makes_only_what_is_asked(made, arch):
    model, task = made("mlm", arch=arch)
    without_zeros(model)
    text = np.random.default_rng(0).choice(task.words, 14)
    rows = [[*layouts(task, NONE, some)] for some in (text, text[:5], text[3:11])]
    batch = collate(rows).to("cpu")
    [ask] = batch.asks.values()
    whole, part = (
        model(one)[0]["x"].flatten(0, 1) for one in (batch, replace(batch, only_asked=True))
    )
    assert_near(part[ask.first].numpy(), whole[ask.first].numpy())
    made_at = part.any(-1).view(len(rows), -1)
    # a row with fewer asks has the states of others, too
    asked = torch.zeros(made_at.numel(), dtype=bool).index_fill(0, ask.first, True).view_as(made_at)
    assert (made_at >= asked).all() and (made_at.sum(1) == asked.sum(1).max()).all()


def test_what_nothing_opens_has_no_first_label(made):
    model, task = made("lm", opening="none")
    text = np.random.default_rng(0).choice(task.words, 5)
    [found] = likelihoods(model, task, [(NONE, text)])
    [after] = likelihoods(model, task, [(text[:1], text[1:])])
    assert len(found) == 4
    assert_near(found, after)


def test_a_common_beginning_is_computed_once(made):
    _, task = made("lm")
    words = task.words[:6]
    texts = [words[:3], words[:4], np.append(words[:3], words[5])]
    [tree] = share([task.likelihood(NONE, text) for text in texts])
    slots = tree.example.towers["x"]
    assert slots.token.tolist() == [task.vocab.cls, *words[:3]]
    assert len(tree.example.asks[0].label) == 5
    rows, label = tree.example.asks[0].first, tree.example.asks[0].label
    assert [label[i].tolist() for i in tree.index] == [text.tolist() for text in texts]
    assert [rows[i].tolist() for i in tree.index] == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]


def test_the_tree_is_that_of_the_page(made):
    _, task = made("lm")
    a, b, c, d, e, f = task.words[:6]
    [tree] = share(
        [task.likelihood(NONE, np.array(text)) for text in ([a, b, c, f], [a, b, d, e, f])]
    )
    slots = tree.example.towers["x"]
    assert slots.token.tolist() == [task.vocab.cls, a, b, c, d, e]
    assert slots.pos.tolist() == [0, 1, 2, 3, 3, 4]
    assert slots.born.tolist() == slots.now.tolist() == [0, 1, 2, 3, 4, 5]
    assert slots.dies[1:].tolist() == [5, 5, 3, 5, 5]


def test_what_differs_in_the_prompt_is_not_shared(made):
    _, task = made("glm_infill")
    text, one, other = task.words[:2], task.words[2:3], task.words[3:4]
    assert len(share([task.likelihood(before, text) for before in (one, one, other)])) == 2


def test_a_generator_answers_for_texts(made, toy_vocab):
    model, task = made("lm")
    texts = toy_lines(4)
    generator = Generator(prepare_weights(model, "fp32"), task)
    found = generator.likelihood(texts)
    assert [len(one) for one in found] == [len(toy_vocab.encode(text)) for text in texts]
    [first], [rest] = generator.likelihood(texts[0]), generator.likelihood([texts[1]], [texts[0]])
    assert_near(first, found[0])
    both = likelihoods(model, task, [(NONE, np.append(*generator.encode([texts[:2]])[0]))])
    assert_near(np.append(first, rest), both[0])
    with pytest.raises(UsageError, match="one .*each text"):
        generator.likelihood(texts, ["a"])


def test_what_cannot_be_judged_is_refused(made):
    model, task = made("lm")
    long = np.full(2000, task.words[0])
    with pytest.raises(DataError, match="input 2 .*too long.* 976 .*model's positions"):
        likelihoods(model, task, [(NONE, long[:3]), (NONE, long)])
    [cut] = likelihoods(model, task, [(long, long[:3])], truncate=True)
    assert_near(cut, likelihoods(model, task, [(long[:1021], long[:3])])[0])
    with pytest.raises(UsageError, match="has no effect: task lm.*tokens"):
        likelihoods(model, task, [(NONE, long[:3])], whole_words=True)
    model, task = made("optimus")
    with pytest.raises(UsageError, match="bounds the likelihood"):
        likelihoods(model, task, [(NONE, long[:3])])


def test_a_recurrent_network_gives_texts_that_begin_alike_the_same_as_alone(toy_vocab):
    torch.manual_seed(0)
    model = replace(get("arch", "awd_lstm_tiny")(), init_range=0.5).build(len(toy_vocab)).eval()
    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    task, words = task.with_trained(pairs=False), task.words[:6]
    texts = [(NONE, words[:3]), (NONE, words[:4]), (words[:2], words[2:]), (NONE, words[3:])]
    together = likelihoods(model, task, texts)
    for text, found in zip(texts, together, strict=True):
        assert_near(found, likelihoods(model, task, [text])[0])
        assert_near(found, judged(model, task.likelihood(*text)))


def judged(model, example):
    batch = collate([[example]]).to("cpu")
    with torch.no_grad():
        return model.log_probs(batch, batch.asks["lm"])
