"""Fine-tuning for understanding: what each layout reads, what is learnt, what is predicted."""

import json
import random
import re
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from labelled_corpora import FORMS, record, write_corpora
from rounding import assert_near

import unitk
from tests.conftest import toy_lines
from tests.formats.test_hf_tokenizer import VOCABS, odd_texts
from unitk.data.batching import draw
from unitk.data.corpus.folders import open_corpus
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.decoding.config import PredictConfig
from unitk.decoding.understand.predict import readings
from unitk.errors import CheckpointError, DataError, NonFiniteError, UsageError
from unitk.evaluation.objective import objective, open_setup
from unitk.metrics.labels import tags
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.slots import collate
from unitk.tasks.understanding.base import parse_layout, softmax
from unitk.training.loop import train
from unitk.training.saving.checkpoint import load
from unitk.training.start import parse_train, prepare
from unitk.verbs import evaluate
from unitk.verbs.predict import run as predict_verb
from unitk.vocab.open import open_vocab

ARCHS = {
    **{"mlm": "bert", "lm": "gpt2", "unilm": "unilm", "pmlm": "unilm2", "glm_infill": "glm"},
    **{"seq2seq": "bart", "mass": "mass", "t5": "t5", "optimus": "optimus"},
    "xlnet": "xlnet",
}
"""A layout of each kind, and an architecture that it is for."""

A, B = np.array([40, 41, 42]), np.array([43, 44])


def made(task, layout, vocab, labels=("no", "yes"), **options):
    cls = get("task", task)
    found = cls(cls.Config(layout=layout, **options), vocab)
    found = found.with_trained(labels=labels if task in ("classify", "tag") else ())
    return found


def test_the_slots_that_are_read_are_those_of_the_table(toy_vocab):
    v = toy_vocab
    c, s, m, sop = v.cls, v.sep, v.mask, v.sop
    table = {
        "mlm": ([c, 40, 41, 42, s, 43, 44, s], 0, 5),
        "unilm": ([c, 40, 41, 42, s, 43, 44, s], 0, 5),
        "pmlm": ([c, 40, 41, 42, s, 43, 44, s], 0, 5),
        "optimus": ([c, 40, 41, 42, s, 43, 44, s], 0, 5),
        "lm": ([c, 40, 41, 42, s, 43, 44, s], 7, 5),
        "lm:opening=none": ([40, 41, 42, s, 43, 44, s], 6, 4),
        "lm:opening=none,delimiter=off": ([40, 41, 42, s, 43, 44], 5, 4),
        "glm_infill": ([c, m, 40, 41, 42, s, 43, 44, s, sop], 9, 6),
        "glm_infill:mask_place=last": ([c, 40, 41, 42, s, 43, 44, m, s, sop], 9, 5),
        "xlnet": ([40, 41, 42, s, 43, 44, s, c], 7, 4),
        "seq2seq": ([c, 40, 41, 42, s, 43, 44], 6, 4),
        "seq2seq:opening=both": ([s, c, 40, 41, 42, s, 43, 44], 7, 5),
    }
    table["t5"] = ([v.pad, 40, 41, 42, s, 43, 44], 6, 4)
    alike = {
        **{"mlm": "albert spanbert mdlm bd3lm", "seq2seq": "mass"},
        **{"seq2seq:opening=both": "bart", "t5": "ul2"},
    }
    table |= {name: table[one] for one, names in alike.items() for name in names.split()}
    for layout, (tokens, whole, second) in table.items():
        encoded = made("classify", layout, v).layout.lay_out_parts([A, B])
        slots = encoded.example.towers[encoded.tower]
        assert slots.token.tolist() == tokens, layout
        assert encoded.whole == whole, layout
        assert encoded.parts[1].tolist() == [second, second + 1], layout
        # a decoder's slot is the one that predicts the token
        shown = slots.token if encoded.tower != "dec" else np.append(slots.token[1:], s)
        assert shown[np.concatenate(encoded.parts)].tolist() == [40, 41, 42, 43, 44], layout


def test_a_causal_model_is_asked_for_its_words_beside(toy_vocab):
    example = made("classify", "lm", toy_vocab).classify([A, B], np.array([1]), None)
    own, words = example.asks
    tokens = example.towers["x"].token
    assert (own.head, own.rows.tolist(), own.label.tolist()) == ("class:label", [[7]], [1])
    assert words.name == "lm" and (tokens[words.first + 1] == words.label).all()
    assert words.label.tolist() == [40, 41, 42, toy_vocab.sep, 43, 44, toy_vocab.sep]
    assert made("classify", "lm", toy_vocab).asks == {"lm": 0.5}
    alone = made("classify", "lm", toy_vocab, lm_weight=0.0).lay_out([A, B])
    assert [ask.name for ask in alone.asks] == ["class"]


@pytest.mark.parametrize("layout", ["lm", "mlm", "seq2seq"])
@pytest.mark.parametrize("task", ["regress", "classify"])
def test_a_pair_in_both_orders_has_no_first_text(toy_vocab, task, layout):
    one, both = (made(task, layout, toy_vocab, both_orders=on) for on in (False, True))
    torch.manual_seed(0)
    config = tiny(get("arch", f"{ARCHS[layout]}_tiny")())
    model = type(config)(**{**vars(config), "heads": both.heads}).build(len(toy_vocab)).eval()

    def read(*examples):
        batch = collate([[example] for example in examples]).to("cpu")
        return batch, next(iter(batch.asks.values()))

    with torch.no_grad():
        swapped = model.output(*read(both.lay_out([A, B]), both.lay_out([B, A])))
        assert_near(swapped[0], swapped[1])
        batch, ask = read(one.lay_out([A, B]), one.lay_out([B, A]))
        states = model(batch)[0][ask.tower].flatten(0, 1)[ask.first]
        head = model.heads[f"{both.head}:label"]
        assert_near(swapped[0], head.out(torch.tanh(head.dense(states.sum(0)))).squeeze())
        assert (model.output(batch, ask).diff(dim=0).abs() > 1e-4).all()
    wanted = [ask.label.tolist() for x in ([A, B], [B, A]) for ask in one.lay_out(x).asks[1:]]
    assert [ask.label.tolist() for ask in both.lay_out([A, B]).asks[1:]] == wanted
    with pytest.raises(UsageError, match="--task.both-orders reads.*text.* 1"):
        both.lay_out([A])


def test_words_are_tagged_at_their_first_tokens(toy_vocab):
    example = made("tag", "mlm", toy_vocab).classify([A, B, A], np.array([0, 1, 0]), None)
    [ask] = example.asks
    assert example.towers["x"].token[ask.first].tolist() == [40, 43, 40]
    assert example.towers["x"].token.tolist().count(toy_vocab.sep) == 1


def test_a_word_without_tokens_has_a_tag_of_its_own(toy_vocab):
    example = made("tag", "mlm", toy_vocab).lay_out([A, A[:0], B, A[:0]])
    [ask] = example.asks
    unk = toy_vocab.unk
    assert example.towers["x"].token[ask.first].tolist() == [40, unk, 43, unk]
    assert example.towers["x"].token.tolist().count(unk) == 2


def test_borders_are_places_among_all_slots(toy_vocab):
    task = made("span", "mlm", toy_vocab)
    example = task.answer([A, B], np.array([0, 2]), None)
    [ask] = example.asks
    assert example.towers["x"].token[ask.label[0]].tolist() == [43, 44]
    assert ask.rows.tolist() == [list(range(8))]
    assert task.answer([A, B], np.array([-1, -1]), None).asks[0].label.tolist() == [[0, 0]]


def test_the_likeliest_answer_is_that_of_brute_force(toy_vocab):
    rng, task = np.random.default_rng(0), made("span", "mlm", toy_vocab, max_answer=3)
    passage = np.arange(40, 50)
    for _ in range(50):
        output = rng.normal(size=(1, 2, 15)).astype("f") * 2
        first, last = softmax(output[0])
        every = {(0, 0): first[0] * last[0]} | {
            (5 + i, 5 + j): first[5 + i] * last[5 + j]
            for i in range(10)
            for j in range(i, min(i + 3, 10))
        }
        none = every.pop((0, 0))
        (i, j), best = max(every.items(), key=lambda one: one[1])
        for threshold in (-np.inf, -1.0, 0.0, 1.0, np.inf):
            said = task.decide([A, passage], output, threshold)
            lacks = np.log(none / best) > threshold
            assert said["span"] == ([-1, -1] if lacks else [i - 5, j - 4])
            assert said["probability"] == pytest.approx(none if lacks else best, rel=1e-5)
    assert task.decide([A, passage[:0]], output[..., :5], 0.0)["span"] == [-1, -1]


def test_probabilities_are_a_softmax(toy_vocab):
    logits = np.log(np.array([[1, 3]], "f"))
    said = made("classify", "mlm", toy_vocab).prediction([A], logits)
    assert said["label"] == "yes" and said["probability"] == pytest.approx(0.75)
    assert said["probabilities"] == pytest.approx({"no": 0.25, "yes": 0.75})
    said = made("choice", "mlm", toy_vocab).prediction([A, B, B], logits)
    assert said["probabilities"] == pytest.approx({0: 0.25, 1: 0.75})
    words = np.log(np.array([[1, 3], [7, 1]], "f"))
    said = made("tag", "mlm", toy_vocab).prediction([A, B], words)
    assert said["tags"] == ["yes", "no"] and said["probabilities"] == pytest.approx([0.75, 0.875])


def test_each_choice_is_a_doc_of_its_own(toy_vocab):
    task = made("choice", "mlm", toy_vocab)
    example = task.classify([A, B, A], np.array([1]), None)
    x, [ask] = example.towers["x"], example.asks
    assert x.doc.tolist() == [0] * 8 + [1] * 9 and ask.rows.tolist() == [[0, 8]]
    task = task.with_trained(position_limit=7)
    short = task.lay_out([A, B, A]).towers["x"]
    assert int(short.pos.max()) == 6 and short.token.tolist().count(42) == 1


@pytest.mark.parametrize("layout", ["mlm", "lm", "glm_infill", "xlnet"])
def test_text_and_choice_fit_the_positions_whatever_their_lengths(toy_vocab, layout):
    """The choice loses tokens only if one of the text is left."""
    task = made("choice", layout, toy_vocab)
    for limit, text, choice in product((9, 12), (1, 4, 30), (1, 4, 30)):
        fitted = task.with_trained(position_limit=limit)
        words, more = np.full(text, 40), np.full(choice, 41)
        x = fitted.lay_out([words, more]).towers["x"]
        assert int(x.pos.max()) < limit
        left = [int((x.token == word).sum()) for word in (40, 41)]
        whole = task.lay_out([words, more]).towers["x"].pos.max() < limit
        assert left == [text, choice] if whole else left[0] == 1 or left[1] == choice


def test_a_causal_model_is_asked_for_the_words_of_every_choice(toy_vocab):
    example = made("choice", "lm", toy_vocab).classify([A, B, A], np.array([1]), None)
    pairs = [made("classify", "lm", toy_vocab).lay_out([A, choice]) for choice in (B, A)]
    x, [own, *words] = example.towers["x"], example.asks
    assert x.token[own.rows[0]].tolist() == [toy_vocab.sep] * 2
    each = [pair.asks[1].label.tolist() for pair in pairs]
    assert [ask.label.tolist() for ask in words] == each and words[0].name == words[1].name
    assert all((x.token[ask.first + 1] == ask.label).all() for ask in words)


def test_class_weights_are_those_of_torch(toy_vocab):
    task = made("classify", "mlm", toy_vocab, class_weights=(1.0, 3.0))
    torch.manual_seed(0)
    config = tiny(get("arch", "bert_tiny")())
    model = type(config)(**{**vars(config), "heads": task.heads}).build(len(toy_vocab)).eval()
    labels = [0, 1, 1]
    batch = collate([[task.classify([A, B], np.array([y]), None)] for y in labels]).to("cpu")
    from unitk.criterions.cross_entropy import CrossEntropy

    loss = CrossEntropy()(model, batch, 0, None)
    [ask] = batch.asks.values()
    output, right = model.output(batch, ask), torch.tensor(labels)
    wanted = F.cross_entropy(output, right, torch.tensor([1.0, 3.0]))
    assert_near(loss.sums["class"] / batch.count["class"], wanted)
    share = ((output.argmax(1) == right) * torch.tensor([1.0, 3.0, 3.0])).sum() / 7
    assert_near(loss.parts["class/correct"] / batch.count["class"], share)
    with pytest.raises(UsageError, match="class-weights needs 2 .*no, yes"):
        made("classify", "mlm", toy_vocab, class_weights=(1.0,)).classify([A], np.array([0]), None)


def test_a_layout_that_is_none_is_refused():
    with pytest.raises(UsageError, match="--task.layout.*'mlmm'.*did you mean.*mlm"):
        parse_layout("mlmm")
    with pytest.raises(UsageError, match="'openin=sep' .*option=value.*task lm.*opening"):
        parse_layout("lm:openin=sep")
    with pytest.raises(UsageError, match="--task.layout lm: --opening must be"):
        parse_layout("lm:opening=maybe")
    with pytest.raises(UsageError, match="needs another objective.*classify"):
        parse_layout("classify")


BLANKS = ("", "  ", "\u00a0\n", "\t ")


@pytest.mark.every(2)
@pytest.mark.parametrize("name", VOCABS)
def test_an_answer_is_the_characters_of_its_passage(name, tmp_path):
    """Any tokens of any passage, with any blanks around it."""
    task, rng = made("span", "mlm", VOCABS[name](tmp_path)), random.Random(0)
    for text in filter(str.strip, odd_texts(200)):
        passage = rng.choice(BLANKS) + text + rng.choice(BLANKS)
        size = len(task.vocab.encode(text.strip()))
        for first in range(size):
            last = rng.randrange(first, size) + 1
            said = task.in_words(["who?", passage], {"span": [first, last], "probability": 0.5})
            answer = said["answer"]
            assert passage[said["start"] : said["end"]] == answer == answer.strip()
            assert answer or said["start"] == said["end"] == -1
        if size:
            said = task.in_words(["who?", passage], {"span": [0, size], "probability": 0.5})
            assert len(said["answer"].split()) <= len(text.split())
            if task.vocab.decode(task.vocab.encode(text)) == text:
                assert said["answer"] == text.strip()
    said = task.in_words(["who?", "Oslo"], {"span": [-1, -1], "probability": 0.5})
    assert said == {"answer": "", "probability": 0.5, "start": -1, "end": -1}


def test_an_uncased_model_answers_with_accents_and_unknown_characters(tmp_path):
    words = "[UNK] [PAD] [CLS] [SEP] [MASK] be ##yon ##ce sang in and".split()
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    task = made("span", "mlm", open_vocab(tmp_path / "vocab.txt"))
    passage = "\u00a0 Beyoncé sang in Zürich and Beyoncé  sang."
    spans = {(0, 3): "Beyoncé", (5, 6): "Zürich", (7, 11): "Beyoncé  sang", (4, 6): "in Zürich"}
    for span, answer in spans.items():
        said = task.in_words(["who?", passage], {"span": [*span], "probability": 0.5})
        assert said["answer"] == answer and said["end"] == said["start"] + len(answer)
        # of what occurs there twice, the right one
        assert said["start"] == (passage.rindex if span == (7, 11) else passage.index)(answer)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory, toy_vocab):
    return write_corpora(tmp_path_factory.mktemp("labelled"), toy_vocab)


def run(folder, task, layout, save, steps, more=""):
    words = f"--task {task} --data {folder / FORMS[task]} --save-dir {save} --precision fp32"
    words += f" --max-steps {steps} --lr 2e-3 --batch-texts 32 --valid-every {steps} {more}"
    layout = f" --task.layout {layout} --arch {ARCHS[layout]}_tiny" if layout else ""
    train(prepare(parse_train((words + layout).split())))
    lines = (save / "log.jsonl").read_text().splitlines()
    return json.loads(lines[-1])


def said_of(save, form, some):
    """What a run predicts of records, and their labels."""
    texts, wanted = [], []
    for i in some:
        one = record(form, i)
        rest = one.get("b", [])
        first = one["a"] if isinstance(one["a"], list) else [one["a"]]
        texts.append([*first, *([rest] if isinstance(rest, str) else rest)])
        wanted.append(one["y"])
    found = unitk.load(save).predict(texts)
    if form == "span":
        spans = [text[1][y[0] : y[1]] if y else "" for text, y in zip(texts, wanted, strict=True)]
        return [one["answer"] for one in found], spans
    key = {"class": "label", "number": "value", "tags": "tags", "choice": "label"}[form]
    return [one[key] for one in found], wanted


def assert_learned(labelled, tmp_path, task, layout, *tries):
    """Learns all of it in one of so many updates; the fewest are tried first."""
    for steps in tries:
        save = tmp_path / str(steps)
        run(labelled, task, layout, save, steps)
        found, wanted = said_of(save, FORMS[task], range(40))
        if task == "regress":  # numbers that are near enough
            pairs = zip(found, wanted, strict=True)
            found = [y if abs(x - y) < 0.25 else x for x, y in pairs]
        if found == wanted:
            return
    assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize("layout", ARCHS)
@pytest.mark.parametrize("task", FORMS)
def test_what_can_be_learnt_is_learnt_whole(labelled, tmp_path, task, layout):
    assert_learned(labelled, tmp_path, task, layout, 150, 800)


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["mlm", "glm_infill"])
def test_classes_are_learnt(labelled, tmp_path, layout):
    assert_learned(labelled, tmp_path, "classify", layout, 80, 200)


def test_a_checkpoint_tells_the_layout(labelled, tmp_path, toy_data, capsys):
    words = f"--task lm --task.opening none --arch gpt2_tiny --data {toy_data / 'text'}"
    words += f" --save-dir {tmp_path / 'lm'} --max-steps 2 --lr 1e-3 --max-tokens 300"
    train(prepare(parse_train(words.split())))
    start = prepare(
        parse_train(
            f"--task classify --init-from {tmp_path / 'lm'} --data {labelled / 'class'}"
            f" --save-dir {tmp_path / 'run'} --max-steps 2 --lr 1e-3 --batch-texts 8".split()
        )
    )
    values = start.parsed.settings.texts
    assert values["task.layout"] == "lm:opening=none"
    assert values["arch.heads"] == "class:label:2"
    train(start)
    [said] = unitk.load(tmp_path / "run").predict("so it is")
    assert said["label"] in ("no", "yes") and 0.5 <= said["probability"] <= 1
    # the weights are those of the language model
    one, other = (
        torch.nn.utils.parameters_to_vector(
            unitk.load(tmp_path / name).model.decoder.layers.parameters()
        )
        for name in ("lm", "run")
    )
    assert (one - other).abs().max() < 5e-3


@pytest.mark.parametrize("task", FORMS)
def test_texts_are_predicted_together_as_each_alone(labelled, tmp_path, task):
    """Also texts of other lengths, numbers of words and numbers of choices."""
    run(labelled, task, "mlm", tmp_path, 1)
    generator = unitk.load(tmp_path)
    words = toy_lines(9)
    texts = {
        "choice": [[words[i], *words[: i + 1]] for i in range(5)],
        "span": [["where?", " ".join(words[: i + 1])] for i in range(5)],
        "tag": [words[i].split() for i in range(5)],
    }.get(task, [[line] for line in words])
    options = {} if task in ("regress", "span") else {"probabilities": True}
    together = generator.predict(texts, **options)
    for text, found in zip(texts, together, strict=True):
        [alone] = generator.predict([text], **options)
        assert found.keys() == alone.keys()
        for key, value in found.items():
            near = key in ("probability", "probabilities", "value")
            assert value == (pytest.approx(alone[key], rel=1e-4) if near else alone[key]), text
        if task == "choice":
            assert [*found["probabilities"]] == [*range(len(text) - 1)]


@pytest.mark.parametrize("task", FORMS)
def test_probabilities_are_given_where_they_are_asked_for(labelled, tmp_path, task, caplog):
    run(labelled, task, "mlm", tmp_path, 1)
    generator, one = unitk.load(tmp_path), record(FORMS[task], 7)
    rest = one.get("b", [])
    first = one["a"] if task == "tag" else [one["a"]]
    text = [*first, *([rest] if isinstance(rest, str) else rest)]
    [plain] = generator.predict([text])
    assert "probabilities" not in plain
    assert "of parts" not in caplog.text
    generator.predict([[*text, "so"]])  # tags and choices may have any number
    assert ("of parts (" in caplog.text) == (task not in ("tag", "choice"))
    if task == "choice":
        with pytest.raises(DataError, match="input 2 .*choices"):
            generator.predict([text, text[0]])
    if task in ("regress", "span"):
        with pytest.raises(UsageError, match=f"probabilities .*no effect.* {task} has no"):
            generator.predict([text], probabilities=True)
        return
    [said] = generator.predict([text], probabilities=True)
    each = said.pop("probabilities")
    assert said == plain
    if task == "tag":
        assert len(each) == len(said["tags"]) and all(0.5 <= one <= 1 for one in each)
        return
    assert sum(each.values()) == pytest.approx(1)
    assert max(each, key=each.get) == said["label"]
    assert each[said["label"]] == said["probability"]


def test_both_orders_need_pairs(labelled, tmp_path):
    words = f"--task classify --task.layout lm --arch gpt2_tiny --data {labelled / 'class'}"
    words += f" --task.both-orders on --save-dir {tmp_path / 'run'} --max-steps 2 --lr 1e-3"
    with pytest.raises(UsageError, match=r"classify reads texts.* 2 parts, but.*text,other"):
        prepare(parse_train(words.split()))


def test_a_run_has_no_heads_of_the_task_that_it_starts_from(labelled, tmp_path):
    """But a run that goes on keeps those that it has."""
    run(labelled, "classify", "mlm", tmp_path / "one", 1)
    words = f"--task tag --data {labelled / 'tags'} --max-steps 1 --lr 1e-3 --batch-texts 8"
    words += f" --init-from {tmp_path / 'one'} --save-dir {tmp_path / 'two'}"
    train(prepare(parse_train(words.split())))
    model = unitk.load(tmp_path / "two").model
    assert [name for name in model.heads if ":" in name] == ["tag:label"]
    config = tmp_path / "two" / "config.yaml"
    config.write_text(re.sub("(arch.heads: )", r"\1class:other:2,", config.read_text()))
    # one that a run of an earlier version has
    with pytest.raises(UsageError, match="class:other:2,.* resume .*: it cannot"):
        prepare(parse_train(f"--resume --max-steps 2 --save-dir {tmp_path / 'two'}".split()))


@pytest.mark.parametrize("task", ["classify", "span"])
def test_evaluate_says_where_predict_reads_more_of_a_text(labelled, tmp_path, capsys, task):
    """Windows of a passage are read by both."""
    run(labelled, task, "mlm", tmp_path / "run", 1, "--max-source-len 16")
    given = ["--checkpoint", str(tmp_path / "run"), "--data", str(labelled / FORMS[task] / "valid")]
    capsys.readouterr()
    evaluate.run(given)
    assert ("`unitk predict`" in capsys.readouterr().err) == (task == "classify")


def test_a_head_goes_with_its_labels(labelled, tmp_path):
    """Other labels begin anew over the same pooler; the same in another order are put in it."""
    from unitk.training.saving.checkpoint import load, load_weights

    run(labelled, "classify", "mlm", tmp_path / "run", 2)
    there = load(tmp_path / "run").model.heads["class:label"]
    found = {}
    for labels in (("no", "yes"), ("yes", "no"), ("bad", "good")):
        fresh = load(tmp_path / "run")
        head = fresh.model.heads["class:label"]
        torch.nn.init.zeros_(head.out.weight)
        [folder] = (tmp_path / "run" / "checkpoints").glob("step-2")
        load_weights(
            fresh.model, folder, averages=True, task=fresh.task.with_trained(labels=labels)
        )
        assert torch.equal(head.dense.weight, there.dense.weight)
        found[labels] = head.out.weight
    assert torch.equal(found["no", "yes"], there.out.weight)
    assert torch.equal(found["yes", "no"], there.out.weight.flip(0))
    assert (found["bad", "good"] == 0).all()


def test_a_batch_predicts_what_its_texts_do(labelled, tmp_path):
    run(labelled, "span", "mlm", tmp_path / "run", 3)
    generator = unitk.load(tmp_path / "run")
    texts = [[record("span", i)[key] for key in "ab"] for i in range(12)]
    together = generator.predict(texts)
    for text, found in zip(texts, together, strict=True):
        [alone] = generator.predict([text])
        assert alone["answer"] == found["answer"]
        assert found["start"] == (text[1].index(found["answer"]) if found["answer"] else -1)
        assert alone["probability"] == pytest.approx(found["probability"], rel=1e-4)


def test_places_are_counted_in_the_passage_as_its_file_has_it(labelled, tmp_path, capsys):
    """Lines, records, fields, and texts of the command line, read in windows or whole."""
    from unitk.verbs import predict

    run(labelled, "span", "mlm", tmp_path / "run", 1, "--max-source-len 20")
    passages = [blanks + record("span", i)["b"] * (1 + i) for i, blanks in enumerate(BLANKS[:3])]
    passages[2] = passages[2].replace("\n", "\u3000")  # a line of text has none
    texts = [["where?", passage] for passage in passages]
    (tmp_path / "in.txt").write_text("".join("\t".join(text) + "\r\n" for text in texts))
    records = [{"source": text, "q": text[0], "p": text[1]} for text in texts]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    fields = ["--input", str(tmp_path / "in.jsonl"), "--source-field", "q,p"]
    asked = [{"context": text[1], "qas": [{"question": text[0]}]} for text in texts]
    (tmp_path / "in.json").write_text(json.dumps({"data": [{"paragraphs": asked}]}))
    wanted = unitk.load(tmp_path / "run").predict(texts, null_threshold=1e9)
    for words in (
        ["--input", str(tmp_path / "in.txt")],
        ["--input", str(tmp_path / "in.json")],
        fields[:2],
        fields,
        ["\t".join(text) for text in texts],
    ):
        checkpoint = ["--checkpoint", str(tmp_path / "run"), "--null-threshold", "1e9"]
        predict.run([*checkpoint, *words])
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        for number, (one, text, said) in enumerate(zip(found, texts, wanted, strict=True)):
            odds = pytest.approx(said["probability"], rel=1e-4)
            assert one == {"id": number, "source": text, **said, "probability": odds}
            assert said["answer"] == text[1][said["start"] : said["end"]] != ""


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["--arch.max-positions 64", "--max-source-len 20"])
def test_long_passages_are_read_in_windows(labelled, tmp_path, limit):
    run(labelled, "span", "mlm", tmp_path / "run", 300, limit)
    generator = unitk.load(tmp_path / "run")
    words = " ".join(record("span", 2)["b"].split() * 20)
    position_limit = min(generator.model.config.position_limit, generator.task.trained.max_source)
    assert position_limit <= 64 and len(generator.vocab.encode(words)) > 2 * position_limit
    for place in (0.05, 0.5, 0.95):
        cut = words.rfind(" ", 0, int(len(words) * place))
        text = f"{words[:cut]} lala{words[cut:]}"
        [said] = generator.predict([["where?", text]])
        assert said["answer"] == "lala"


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["mlm", "glm_infill"])
@pytest.mark.parametrize("limit", ["--arch.max-positions 24", "--max-source-len 20"])
def test_predictions_read_the_windows_of_training(labelled, tmp_path, layout, limit):
    run(labelled, "span", layout, tmp_path / "run", 1, limit)
    words = f"--task span --task.layout {layout} --arch {ARCHS[layout]}_tiny {limit}"
    words += f" --data {labelled / 'span'} --save-dir {tmp_path / 'x'} --max-steps 1 --lr 1e-3"
    data = prepare(parse_train(words.split())).data
    task, corpus = load(tmp_path / "run").task, open_corpus(labelled / "span" / "train")
    task = task.with_trained(position_limit=data.task.trained.position_limit)
    wanted = [
        task.lay_out(parts).towers["x"].token.tolist()
        for i in range(len(corpus))
        for _, parts in readings([task], corpus.record(i)[0], "input", PredictConfig())
    ]
    assert len(wanted) > len(corpus)
    found = [draw(data.train, 1, 0, i).towers["x"].token for i in range(len(wanted))]
    assert [one.tolist() for one in found] == wanted
    assert len(data.train.bounds(0)) == len(wanted)


def test_choices_of_validation_are_read_whole_though_all_of_training_are_shorter(
    labelled, tmp_path
):
    train, valid = (tmp_path / f"{name}.jsonl" for name in ("train", "valid"))
    for path, (text, *choices) in (train, ["la", "la", "so"]), (valid, toy_lines(3)):
        path.write_text(json.dumps({"a": text, "b": choices, "y": 0}))
    preprocess(
        Options(
            input=(str(train),),
            valid=(str(valid),),
            dest=tmp_path / "data",
            vocab=labelled / "vocab",
            workers=1,
            source_field=("a", "b"),
            label_field="y",
            labels="choice",
        )
    )
    words = f"--task choice --task.layout mlm --arch bert_tiny --data {tmp_path / 'data'}"
    words += f" --save-dir {tmp_path / 'run'} --max-steps 1 --lr 1e-3"
    data = prepare(parse_train(words.split())).data
    parts, _ = open_corpus(tmp_path / "data" / "valid").record(0)
    found = draw(data.valid["valid"], 0, 0, 0).towers["x"].token
    assert found.tolist() == data.task.lay_out(parts).towers["x"].token.tolist()


def test_mistakes_are_told_in_a_line(labelled, tmp_path):
    words = f"--task tag --data {labelled / 'class'} --max-steps 2 --lr 1e-3"
    with pytest.raises(UsageError, match="tag learns.*tags.*class"):
        prepare(parse_train(f"{words} --save-dir {tmp_path / 'other'}".split()))
    run(labelled, "classify", "mlm", tmp_path / "run", 2)
    generator = unitk.load(tmp_path / "run")
    long = "so it is " * 400
    with pytest.raises(DataError, match=r"input 2 .*too long.* \d+.*--truncate shortens"):
        generator.predict(["so", long])
    assert len(generator.predict([long], truncate=True)) == 1
    with pytest.raises(UsageError, match="--null-threshold .*no effect: task classify"):
        generator.predict(["so"], null_threshold=1.0)
    with pytest.raises(UsageError, match="task classify.*not generate"):
        generator.generate("so")
    assert generator.predict([""])[0]["label"] in generator.task.labels
    with torch.no_grad():
        generator.model.decoder.layers[0].attention_norm.weight.fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="outputs .*not finite.*predicted"):
        generator.predict(["so"])


@pytest.mark.every(2)
@pytest.mark.parametrize("task", ["classify", "regress", "tag"])
def test_an_ensemble_is_the_mean_though_each_model_reads_in_its_own_order(
    labelled, tmp_path, task, capsys
):
    """A forward and a backward model (ULMFiT), whose texts have other slots."""
    from unitk.verbs import predict

    own = ["--task.layout lm --arch gpt2_tiny", "--task.layout lm:backward=on --arch awd_lstm_tiny"]
    if task == "classify":
        own[1] += " --task.pooling concat"
    for number, words in enumerate(own):
        run(labelled, task, None, tmp_path / str(number), 4, words)
    paths = [tmp_path / "0", tmp_path / "1"]
    texts = [record(FORMS[task], i)["a"] for i in range(12)]
    one, other, both = (unitk.load(some).predict(texts) for some in (*paths, paths))
    twice = unitk.load([paths[1]] * 2).predict(texts)
    if task == "tag":  # what a model is sure of is not said of tags
        assert [y["tags"] for y in twice] == [y["tags"] for y in other]
        return
    key = {"classify": "probability", "regress": "value"}[task]

    def value(said):  # of two classes the probability of the one tells that of the other
        return 1 - said[key] if said.get("label") == "no" else said[key]

    for first, second, mean, same in zip(one, other, both, twice, strict=True):
        assert value(mean) == pytest.approx((value(first) + value(second)) / 2, rel=1e-4, abs=1e-5)
        assert value(same) == pytest.approx(value(second), rel=1e-4, abs=1e-5)
    assert any(
        value(x) != pytest.approx(value(y), rel=1e-3) for x, y in zip(one, other, strict=True)
    )
    predict.run(["--checkpoint", str(paths[0]), "--checkpoint", str(paths[1]), texts[0]])
    assert json.loads(capsys.readouterr().out)[key] == pytest.approx(both[0][key], rel=1e-6)


@pytest.mark.slow
def test_the_best_validation_of_tags_is_that_of_the_largest_f1(labelled, toy_vocab, tmp_path):
    for name in ("train", "valid"):
        lines = (labelled / f"tags.{name}.jsonl").read_text().splitlines()
        marked = (json.loads(line.replace('"L"', '"B-L"')) for line in lines)
        # the last two words are one span
        kinds = ({**one, "y": [*one["y"][:-2], "B-M", "I-M"]} for one in marked)
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, kinds)))
    preprocess(
        Options(
            input=(str(tmp_path / "train.jsonl"),),
            valid=(str(tmp_path / "valid.jsonl"),),
            dest=tmp_path / "tags",
            vocab=labelled / "vocab",
            workers=1,
            source_field=("a",),
            label_field="y",
            labels="tags",
        )
    )
    save = tmp_path / "run"
    words = f"--task tag --task.layout mlm --arch bert_tiny --data {tmp_path / 'tags'}"
    words += f" --save-dir {save} --precision fp32 --max-steps 24 --lr 5e-3 --batch-texts 32"
    words += " --valid-every 8 --save-every 8 --best-metric valid/spans/f1"
    at = train(prepare(parse_train(words.split())))
    events = map(json.loads, (save / "log.jsonl").read_text().splitlines())
    each = {e["step"]: e["valid/spans/f1"] for e in events if e["kind"] == "valid"}
    assert at.best == max(each.values()) > 0 and each[at.best_step] == at.best
    asked = [json.loads(line) for line in (tmp_path / "valid.jsonl").read_text().splitlines()]
    said = unitk.load(save).predict([one["a"] for one in asked])
    scores = tags([one["tags"] for one in said], [one["y"] for one in asked])
    assert 100 * at.best == pytest.approx(scores.figures["f1"], rel=1e-6)
    figures = unitk.evaluate(checkpoint=save, data=tmp_path / "tags")
    assert figures["spans/f1"] == pytest.approx(at.best, rel=1e-6)


def test_tags_that_mark_no_spans_have_no_f1(toy_vocab):
    task = made("tag", "mlm", toy_vocab, labels=("NOUN", "O", "VERB"))
    assert task.measure(None, None) == ({}, {})
    assert "f1" not in tags([["NOUN"]], [["VERB"]]).figures  # nor in `unitk score`


def test_what_predicts_something_else_is_not_joined(labelled, tmp_path):
    for task in ("classify", "regress"):
        run(labelled, task, "mlm", tmp_path / task, 1)
    with pytest.raises(CheckpointError, match="regress .*in one .*: their.*differ"):
        unitk.load([tmp_path / "classify", tmp_path / "regress"])
    vocab = unitk.load(tmp_path / "regress").task.vocab
    one, other = (made(task, "mlm", vocab) for task in ("classify", "regress"))
    assert one.alike(one) and not one.alike(other) and not other.alike(one)


def test_ensembles_find_answers_in_the_same_slots_only(toy_vocab):
    """What one model says of a slot would be averaged with what another says of another word."""
    first = made("span", "mlm", toy_vocab)
    for layout in ("mlm", "mlm:mask_ratio=0.3", "unilm", "pmlm"):
        assert first.alike(made("span", layout, toy_vocab)), layout
    for layout in ("lm", "lm:opening=none", "xlnet", "glm_infill", "seq2seq"):
        assert not first.alike(made("span", layout, toy_vocab)), layout
    assert not first.alike(made("span", "mlm", toy_vocab, separators=2))


@pytest.mark.every(2)
@pytest.mark.parametrize("task", ["choice", "classify"])
def test_an_ensemble_truncates_texts_to_the_positions_of_all_its_layouts(labelled, tmp_path, task):
    """The second one lays out a symbol more."""
    paths = [tmp_path / "0", tmp_path / "1"]
    for path, more in zip(paths, ("", "--task.separators 2"), strict=True):
        run(labelled, task, "mlm", path, 1, f"--arch.max-positions 32 {more}")
    words = " ".join(toy_lines(5))
    assert len(unitk.load(paths[0]).encode([[words]])[0][0]) > 64
    texts = [[words[:n], "the sun", "a cat"][: 3 if task == "choice" else 2] for n in range(60, 90)]
    each = [unitk.load(path).predict(texts, truncate=True) for path in paths]
    for path, alone in zip(paths, each, strict=True):
        twice = unitk.load([path] * 2).predict(texts, truncate=True)
        assert [one["label"] for one in twice] == [one["label"] for one in alone]
        assert_near([one["probability"] for one in twice], [one["probability"] for one in alone])
    orders = [unitk.load(some).predict(texts, truncate=True) for some in (paths, paths[::-1])]
    assert_near(*([one["probability"] for one in order] for order in orders))


def test_the_command_line_predicts_and_resumes(labelled, tmp_path, capsys, monkeypatch):
    from unitk.api import answering as answers
    from unitk.decoding.generator import Generator
    from unitk.verbs import predict

    run(labelled, "classify", "mlm", tmp_path / "run", 10)
    page = (tmp_path / "run" / "README.md").read_text()
    assert "unitk predict --checkpoint" in page and "unitk generate" not in page
    texts = [record("class", i)["a"] for i in range(30)]
    (tmp_path / "in.txt").write_text("".join(text + "\n" for text in texts))
    words = ["--checkpoint", str(tmp_path / "run"), "--input", str(tmp_path / "in.txt")]
    wanted = unitk.load(tmp_path / "run").predict(texts)
    predict.run([*words, "--output-format", "text"])
    assert capsys.readouterr().out.split() == [one["label"] for one in wanted]
    monkeypatch.setattr(answers, "TOGETHER", 8)
    predict.run([*words, "--output", str(tmp_path / "whole.jsonl")])
    whole = (tmp_path / "whole.jsonl").read_text()
    assert [json.loads(line)["label"] for line in whole.splitlines()] == [
        one["label"] for one in wanted
    ]
    own, firsts = Generator.predictions, []

    def stopped(self, some, config, first, report):
        firsts.append(first)
        if len(firsts) == 3:
            raise KeyboardInterrupt
        return own(self, some, config, first, report)

    monkeypatch.setattr(Generator, "predictions", stopped)
    words += ["--output", str(tmp_path / "out.jsonl")]
    with pytest.raises(KeyboardInterrupt):
        predict.run(words)
    assert not (tmp_path / "out.jsonl").exists()
    (tmp_path / "in.txt").write_text("other\n" * 30)
    with pytest.raises(UsageError, match="begun with --input .*in.txt .*, not .*in.txt"):
        predict.run([*words, "--resume"])
    with pytest.raises(UsageError, match="is .*file.*; `-` .*standard"):
        predict.run([*words[:-1], str(tmp_path)])
    (tmp_path / "in.txt").write_text("".join(text + "\n" for text in texts))
    predict.run([*words, "--resume"])
    predict.run([*words, "--resume"])  # finished: nothing is predicted again
    assert firsts == [0, 8, 16, 16, 24]
    assert (tmp_path / "out.jsonl").read_text() == whole


def test_questions_of_a_squad_json_are_asked_of_their_passages(tmp_path):
    from unitk.api.answering import inputs_of
    from unitk.options import config
    from unitk.verbs import predict

    answers = [[{"text": "cat", "answer_start": 8}], []]
    asked = [{"question": "q?", "answers": one, "is_impossible": not one} for one in answers]
    tree = {"data": [{"paragraphs": [{"context": "It is a cat.", "qas": asked}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(tree))
    words = ["--checkpoint", "x", "--input", str(tmp_path / "dev.json")]
    parsed = config.parse("predict", predict.Options, words, positional="texts")
    found = inputs_of(parsed, questions=True)
    assert [one.parts for one in found] == [["q?", "It is a cat."]] * 2


@pytest.mark.parametrize("task", sorted({*FORMS} - {"choice"}))
def test_an_empty_line_has_a_prediction_that_is_scored(labelled, tmp_path, task):
    run(labelled, task, "mlm", tmp_path / "run", 1)
    (tmp_path / "texts").write_text("so it is\n\nso\n")
    form = FORMS[task]
    labels = {"class": ["yes", "no", "no"], "number": [1.0, 2.0, 3.0], "span": ["so", "", "so"]}
    labels["tags"] = [["O", "O", "O"], [], ["O"]]
    wanted = (json.dumps({"label": label}) + "\n" for label in labels[form])
    (tmp_path / "wanted.jsonl").write_text("".join(wanted))
    for output_format, name in (("jsonl", "out.jsonl"), ("text", "out.txt")):
        how = {"output": tmp_path / name, "output_format": output_format}
        words = [f"--{key.replace('_', '-')}={value}" for key, value in how.items()]
        inputs = ["--checkpoint", str(tmp_path / "run"), "--input", str(tmp_path / "texts")]
        predict_verb([*inputs, *words])
        assert len((tmp_path / name).read_text().splitlines()) == 3
        scores = unitk.score(
            metric=form, hypotheses=tmp_path / name, references=tmp_path / "wanted.jsonl"
        )
        assert form in scores
    [found] = unitk.load(tmp_path / "run").predict([""])
    assert found["tags"] == [] if task == "tag" else found


def test_a_line_without_choices_is_named(labelled, tmp_path):
    run(labelled, "choice", "mlm", tmp_path, 1)
    with pytest.raises(DataError, match="input 2 .*choices"):
        unitk.load(tmp_path).predict([["so", "it", "is"], [""]])


def test_the_bar_of_predict_ends_at_the_number_of_texts(labelled, tmp_path):
    """A long passage is read in windows."""
    run(labelled, "span", "mlm", tmp_path, 1)
    generator = unitk.load(tmp_path)
    texts = [["where?", " ".join(toy_lines(300))], ["", ""], ["who?", "so"]]
    done = []
    generator.predictions(texts, PredictConfig(max_tokens=400), report=done.append)
    assert sum(done) == len(texts) and len(done) > 3


@pytest.mark.parametrize("task", FORMS)
def test_the_bar_of_evaluate_ends_at_the_number_of_texts(labelled, tmp_path, task):
    """Also where the choices of a text are docs of their own."""
    run(labelled, task, "mlm", tmp_path, 1)
    setup = open_setup(tmp_path, labelled / FORMS[task] / "valid", torch.device("cpu"))
    done = []
    objective(setup, 400, done.append)
    assert sum(done) == setup.num_texts
