"""THU-ERNIE: the docstring's table, the law of what is read, links of corpora and linkers."""

import entity_files
import numpy as np
import pytest

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.thu_ernie.task import THUERNIE, layout
from unitk.slots import collate
from unitk.tasks.base import frame_parts
from unitk.tasks.mlm import MLM
from unitk.tasks.mlm import layout as masked


def made(vocab, folder=None, **config):
    given = entity_files.write_entities(folder, vocab) if folder else {}
    return THUERNIE(THUERNIE.Config(**{**given, **config}), vocab)


def linked(task, count, rng):
    """Names of the task's entities, each linked, with other words between them."""
    names = rng.choice([one for one in task.find.entities if len(one) == 1], count)
    links = [(2 * i, 2 * i + 1, task.find.entities[tuple(name)]) for i, name in enumerate(names)]
    ids = np.stack([names[:, 0], np.resize(other(task), count)], 1).ravel()
    return Text([ids], np.zeros(1, int)), links


def other(task):
    """Words that are no names."""
    return np.setdiff1d(task.words[task.vocab.starts[task.words]], task.find.first)


def test_layout_is_the_table(ids, labels):
    tokens, seg = frame_parts([ids("a b c d e f g")], *ids("C S"))
    example = masked(tokens, seg, np.array([2]), ids("M"))
    entity, read = np.array([0, 0, 1, 0, 0, 4, 0, 2, 0]), np.array([0, 0, 1, 0, 0, 0, 0, 3, 0])
    found = layout(example, entity, read)
    x, (_, dea) = found.towers["x"], found.asks
    assert x.token.tolist() == ids("C a M c d e f g S").tolist() and not x.now.any()
    assert found.inputs["x.entity"].tolist() == read.tolist()
    assert labels(found, "mlm") == [-1, -1, *ids("b"), *[-1] * 6]
    assert (dea.head, dea.among[dea.label].tolist()) == ("candidates:entity", [1, 4, 2])
    assert dea.rows.tolist() == [[2], [5], [7]]
    assert len(layout(example, 0 * entity, 0 * read).asks) == 1  # a text without names


def test_without_entities_it_is_bert(toy_vocab, some_text):
    given = {"nsp": True, "mask_ratio": 0.3}
    one, two = made(toy_vocab, **given), MLM(MLM.Config(**given), toy_vocab)
    for n in (1, 5, 60):
        text = some_text(toy_vocab, n, np.random.default_rng(n))
        a, b = (task.pretrain(text, np.random.default_rng(1)) for task in (one, two))
        assert (a.towers["x"].table == b.towers["x"].table).all() and not a.inputs
        assert [ask.label.tolist() for ask in a.asks] == [ask.label.tolist() for ask in b.asks]
    assert (one.heads, one.table_heads, one.files) == (two.heads, (), {})


def test_entities_are_read_by_the_law(toy_vocab, tmp_path):
    """Of the entities, 5 % are another one, 15 % none; what is asked for is always their own."""
    task, rng = made(toy_vocab, tmp_path), np.random.default_rng(0)
    own, read = [], []
    for _ in range(60):
        text, links = linked(task, 60, rng)
        example = task.pretrain(text, rng)
        dea = example.asks[-1]
        wanted = [task.numbers[name] for _, _, name in links]
        assert dea.among[dea.label].tolist() == wanted
        assert (dea.rows[:, 0] == 1 + 2 * np.arange(60)).all()  # the first token, after C
        beside = example.inputs["x.entity"]
        assert not np.delete(beside, dea.rows[:, 0]).any()
        own += wanted
        read += beside[dea.rows[:, 0]].tolist()
    own, read = np.array(own), np.array(read)
    wrong = (read > 0) & (read != own)
    assert np.mean(read == 0) == pytest.approx(0.15, abs=0.02)
    assert wrong.mean() == pytest.approx(0.05, abs=0.012)
    assert read.max() <= len(task.numbers) and len({*read[wrong]}) > len(task.numbers) / 2


def test_a_single_entity_has_no_other(toy_vocab, tmp_path):
    task = made(toy_vocab, tmp_path, random_none_keep=(1, 0, 0))
    task = task.with_attributes(numbers={"Q0": 1})
    assert task.add_noise(np.array([0, 1, 0]), np.random.default_rng(0)).tolist() == [0, 1, 0]


def test_both_parts_of_a_pair_have_their_entities(toy_vocab, tmp_path):
    task = made(toy_vocab, tmp_path, random_none_keep=(0, 0, 1))
    first, second = [one[0] for one in task.find.entities if len(one) == 1][:2]
    word = other(task)[0]
    text = Text([np.array([word, first]), np.array([second])], np.array([0, 2]), flag=1)
    example = task.pretrain(text, np.random.default_rng(0))
    wanted = [task.numbers[task.find.entities[one,]] for one in (first, second)]
    assert example.inputs["x.entity"].tolist() == [0, 0, wanted[0], 0, wanted[1], 0]
    assert [ask.name for ask in example.asks] == ["mlm", "nsp", "dea"]
    # fine-tuning reads the same, and changes nothing
    assert task.lay_out_parts(text.parts).example.inputs["x.entity"].tolist() == [
        *example.inputs["x.entity"]
    ]
    prompt = task.prompt([np.array([first, toy_vocab.mask])])
    assert prompt.inputs["x.entity"].tolist() == [0, wanted[0], 0, 0]


def test_links_of_a_corpus_are_read_instead_of_the_linkers(toy_vocab, tmp_path):
    task = made(toy_vocab, tmp_path, random_none_keep=(0, 0, 1))
    task = task.with_trained(labels=("Q1", "Q999", "Q2"))
    text, _ = linked(task, 3, np.random.default_rng(0))
    links = np.array([[1, 3, 2], [4, 5, 1], [5, 6, 0]])
    example = task.link(text.parts, links, np.random.default_rng(0))
    # Q999 has no vector, and is not linked
    assert example.inputs["x.entity"].tolist() == [0, 0, 3, 0, 0, 0, 2, 0]
    assert example.asks[-1].among.tolist() == [2, 3] and example.asks[-1].label.tolist() == [1, 0]
    no = made(toy_vocab)
    with pytest.raises(UsageError, match="their vectors.* --task.entities FILE"):
        no.link(text.parts, links, np.random.default_rng(0))


def test_candidates_of_a_batch_are_those_of_its_texts(toy_vocab, tmp_path):
    task, rng = made(toy_vocab, tmp_path), np.random.default_rng(0)
    each = [task.pretrain(linked(task, n, rng)[0], rng) for n in (3, 5, 1)]
    ask = collate([each[:2], each[2:]]).asks["dea"]
    own = np.concatenate([one.asks[-1].among[one.asks[-1].label] for one in each])
    assert ask.among.tolist() == sorted({*own}) and (ask.among[ask.label] == own).all()


def test_linkers_are_replaceable(toy_vocab, tmp_path, monkeypatch):
    class First:
        def __init__(self, path, vocab):
            assert path == "" and vocab is toy_vocab

        def __call__(self, ids):
            return [(0, 1, "Q3")]

    monkeypatch.setitem(registry._entries["linker"], "first", First)
    task = made(toy_vocab, tmp_path, linker="first", forms="")
    assert task.lay_out_parts([np.array([40, 41])]).example.inputs["x.entity"].tolist() == [
        0,
        4,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forms": "names.tsv"}, "--task.forms has no effect without --task.entities FILE"),
        ({"linker": "other"}, "--task.linker has no effect without --task.entities FILE"),
        ({"random_none_keep": (0, 0, 0)}, "--task.random-none-keep needs a weight above 0"),
    ],
)
def test_options_that_do_not_fit_are_refused(toy_vocab, options, message):
    with pytest.raises(UsageError) as error:
        made(toy_vocab, **options)
    assert message in str(error.value)


def test_texts_without_links_need_a_linker_in_pre_training(toy_vocab, tmp_path, some_text):
    """Fine-tuning and predictions read them as BERT does, without entities."""
    task, bert = made(toy_vocab, tmp_path, forms=""), MLM(MLM.Config(), toy_vocab)
    text = some_text(toy_vocab, 4, np.random.default_rng(0))
    for one in (task.lay_out_parts(text.parts).example, task.prompt([np.array([toy_vocab.mask])])):
        assert not one.inputs
    assert (
        task.lay_out_parts(text.parts).example.towers["x"].table
        == bert.lay_out_parts(text.parts).example.towers["x"].table
    ).all()
    with pytest.raises(UsageError, match="--task.linker forms needs.*names: --task.forms"):
        task.pretrain(text, np.random.default_rng(0))
    with pytest.raises(UsageError, match="--task.linker: .*no linker 'form'"):
        made(toy_vocab, tmp_path, linker="form").pretrain(text, np.random.default_rng(0))
