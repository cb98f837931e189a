"""Cloze questions: patterns as the papers have them, answers in blanks, what is learnt."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_corpora import record, write_corpora
from rounding import assert_near

import unitk
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.texts.sources import Sources
from unitk.errors import DataError, UsageError
from unitk.families.cloze.patterns import read_pattern
from unitk.masks import dense
from unitk.models.archs import tiny
from unitk.options.settings import Origin, Settings
from unitk.registry import get
from unitk.slots import collate
from unitk.training.loop import train
from unitk.training.saving.state import layout_in
from unitk.training.start import parse_train, prepare

OWN = """# what the texts of tests/labelled_corpora.py say
fields: [a]
answers:
  "no": {}
  "yes": {}
patterns:
  - "{{a}} The [M]"
  - text: "The [M] {{a}}"
    answers: {{"no": na ba, "yes": ba na ba}}
"""
CHOICES = 'fields: [a, choices]\nanswers: "{choice}"\npatterns: ["{a} [M]"]\n'


def shown(name, number, *parts):
    """A pattern with its blank, and its answers."""
    pattern = read_pattern(name, number)
    return "[M]".join(pattern.render(parts)), [*pattern.candidates(parts)]


P, Q = "A cat sat. It slept", "did the cat sleep"
H, T = "The cat slept.", "A cat sat."
RENDERED = [
    ("boolq", 0, (P, Q), f"{P} Question: {Q}? Answer: [M].", "No Yes"),
    ("boolq", 3, (P, Q), f"{P} Based on the previous passage, {Q}? [M].", "false true"),
    ("boolq", 4, (P, Q), f"Based on the following passage {Q}? [M]. {P}", "No Yes"),
    ("cb", 0, (T, H), '"The cat slept" ? [M], "A cat sat."', "No Yes Maybe"),
    ("cb", 1, (T, H), "The cat slept? [M], A cat sat.", "No Yes Maybe"),
    ("cb", 2, (T, H), '"The cat slept" ? [M]. "A cat sat."', "No Yes Maybe"),
    ("cb", 3, (T, H), "The cat slept? [M]. A cat sat.", "No Yes Maybe"),
    (  # alone of these it keeps the final punctuation
        *("cb", 4, (T, H)),
        "A cat sat. question: The cat slept. true, false or neither? answer: [M]",
        "false true neither",
    ),
    ("rte", 1, (T, H), "The cat slept? [M], A cat sat.", "Yes No"),
    ("rte", 2, (T, H), '"The cat slept" ? [M]. "A cat sat."', "Yes No"),
    (
        *("rte", 4, (T, H)),
        "A cat sat. question: The cat slept True or False? answer: [M]",
        "true false",
    ),
    ("wic", 0, ("a b", "b c", "b"), '"a b" / "b c" Similar sense of "b"? [M].', "No Yes"),
    (
        *("wic", 1, ("a b", "b c", "b")),
        "a b b c Does b have the same meaning in both sentences? [M]",
        "No Yes",
    ),
    ("wic", 2, ("a b", "b c", "b"), 'b . Sense (1) (a) "a b" ([M]) "b c"', "2 b"),
    # passages and questions lose their final punctuation, answers do not
    ("multirc", 0, (P + ".", Q, "Yes."), f"{P}. Question: {Q}? Is it Yes.? [M].", "No Yes"),
    (
        *("multirc", 1, (P, Q + "?", "Yes")),
        f'{P}. Question: {Q}? Is the correct answer "Yes"? [M].',
        "No Yes",
    ),
    (
        *("multirc", 2, (P, Q, "a")),
        f'{P}. Based on the previous passage, {Q}? Is "a" a correct answer? [M].',
        "No Yes",
    ),
    ("multirc", 3, (P + ".", Q + "?", "a"), f"{P} {Q}- [[M]]a", "False True"),
    ("multirc", 4, (P + ".", Q + "?", "a"), f"{P}. Question: {Q}? a? [M].", "No Yes"),
    ("sst2", 0, ("fine",), "fine It was [M].", "terrible great"),
    ("sst2", 1, ("fine",), "fine It was [M].", "bad good"),
    ("mnli", 0, (T, H), '"A cat sat"? [M], "The cat slept."', "Wrong Right Maybe"),
    ("ag_news", 4, ("Goal", "One."), "[ Category: [M] ] Goal One.", "World Sports Business Tech"),
    ("yelp", 2, ("Nice.",), "Just [M]! Nice.", "terrible bad okay good great"),
]


@pytest.mark.parametrize(("name", "number", "parts", "text", "answers"), RENDERED)
def test_patterns_are_those_of_the_papers(name, number, parts, text, answers):
    assert shown(name, number, *parts) == (text, answers.split())


@pytest.mark.parametrize(("question", "joiner"), [("cause", " because"), ("effect", ", so")])
def test_copas_choices_are_in_its_pattern(question, joiner):
    parts = "The man slept.", "It was dark.", "He ate!", question
    answers = ["it was dark", "he ate"]
    text = f'"it was dark" or "he ate"? The man slept{joiner} [M].'
    assert shown("copa", 0, *parts) == (text, answers)
    assert shown("copa", 1, *parts) == (text.replace('"', ""), answers)


def test_nouns_and_entities_are_the_answers():
    text = "Ann saw Bo when *she* came."
    asked = f"{text} The pronoun '*she*' refers to [M]."
    assert shown("wsc", 0, text, "Ann", "Bo", "she") == (asked, ["Ann", "Bo"])
    asked = (
        f"{text} Question: In the passage above, what does the pronoun '*she*' refer to?"
        " Answer: [M]."
    )
    assert shown("wsc", 2, text, "Ann", "Bo", "she")[0] == asked
    found = shown("record", 0, "Ann won.", "Ann", "Bo", "Eve", "It was @placeholder's day")
    assert found == ("Ann won. It was [M]'s day", ["Ann", "Bo", "Eve"])


def test_the_file_of_the_docs_is_one(tmp_path):
    page = Path(__file__).resolve().parents[3] / "docs" / "understanding.md"
    [block] = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)
    (tmp_path / "own.yaml").write_text(block)
    found = shown(str(tmp_path / "own.yaml"), 1, "A Film.", "It is.")
    assert found == ("Just [M]! a Film", ["terrible", "great"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, toy_vocab):
    """Labelled corpora, and patterns whose answers are single tokens of the vocabulary."""
    folder = write_corpora(tmp_path_factory.mktemp("cloze"), toy_vocab)
    pieces = [piece[1:] for piece in toy_vocab.pieces(range(300)) if piece[:1] == "▁" != piece]
    words = [word for word in pieces if len(toy_vocab.encode(word)) == 1]
    (folder / "own.yaml").write_text(OWN.format(*words[:2]))
    (folder / "choices.yaml").write_text(CHOICES)
    return folder


def made(folder, vocab, layout, patterns="own", labels=("no", "yes"), **options):
    cls = get("task", "cloze")
    path = str(folder / f"{patterns}.yaml")
    task = cls(cls.Config(layout=layout, patterns=path, **options), vocab)
    task = task.with_trained(labels=labels if task.form == "class" else ())
    return task


def network(task, vocab):
    torch.manual_seed(0)
    arch = {"mlm": "bert_tiny", "glm_infill": "glm_tiny"}[task.config.layout]
    return tiny(get("arch", arch)()).build(len(vocab)).eval()


def ids(vocab, text):
    return np.array(vocab.encode(text), np.int64)


TEXTS = ["The ba na", "The na", "The baka teto fofo nuni"]
BOTH = pytest.mark.parametrize("layout", ["glm_infill", "mlm"])


@BOTH
def test_one_token_is_asked_at_the_blank(folder, toy_vocab, layout):
    v, task = toy_vocab, made(folder, toy_vocab, layout)
    example = task.classify([ids(v, TEXTS[0])], np.array([1]), None)
    [ask], slots = example.asks, example.towers["x"]
    body = [v.cls, *v.encode(f"{TEXTS[0]} The"), v.mask, v.sep]
    assert slots.token.tolist() == body + [v.sop] * (layout == "glm_infill")
    assert ask.rows.tolist() == [[len(slots) - (1 if layout == "glm_infill" else 2)]]
    [no, yes] = ask.among.tolist()
    assert ask.label.tolist() == [1]
    assert [v.encode(answer) for answer in task.pattern.candidates(())] == [[no], [yes]]
    # restricted to the answers: the logits of the whole vocabulary, of which two are looked at
    model = network(task, v)
    batch = collate([[example]]).to("cpu")
    [own] = batch.asks.values()
    whole = model.output(batch, type(own)("x", "lm", "x", own.rows, own.label, own.weight))
    said = task.prediction([ids(v, TEXTS[0])], model.output(batch, own).detach().numpy())
    wanted = whole[0, [no, yes]].detach().softmax(0)
    assert said["label"] == ("no", "yes")[int(wanted.argmax())]
    assert said["probability"] == pytest.approx(float(wanted.max()), rel=1e-5)


def scores_of(task, vocab, model, parts):
    """The score of each answer, in a batch with other texts, packed and padded."""
    examples = [task.lay_out(parts), *(task.lay_out([ids(vocab, t), *parts[1:]]) for t in TEXTS)]
    batch = collate([examples[:2], examples[2:3], examples[3:]]).to("cpu")
    words = batch.asks["answers"]
    found = model.log_probs(batch, words).detach().numpy() * words.weight.numpy()
    first = examples[0].asks[1].rows[0]
    starts = np.searchsorted(examples[0].asks[0].first, first)
    return np.add.reduceat(found[: len(examples[0].asks[0].label)], starts)


@BOTH
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_several_tokens_score_as_alone(folder, toy_vocab, layout, penalty):
    """The sum of log-probabilities, the end counted, is that of each answer by itself."""
    v = toy_vocab
    task = made(folder, v, layout, "choices", length_penalty=penalty)
    model, text = network(task, v), ids(v, "The baka teto")
    answers = ["na ba", "ba", "teto na ba"]
    found = scores_of(task, v, model, [text, *(ids(v, answer) for answer in answers)])
    for answer, score in zip(answers, found, strict=True):
        words = np.array(v.encode_inside(f" {answer}"))
        source = np.append(text, [v.mask] * (1 if layout == "glm_infill" else len(words)))
        if layout == "glm_infill":
            [[one]] = Generator(model, task.layout).scores(
                Sources([[source]]), [words], GenerateConfig()
            )
            wanted, size = float(one.hypothesis.token_log_probs.sum()), len(words) + 1
        else:
            prompt = task.layout.prompt([source])
            batch = collate([[prompt]]).to("cpu")
            logits = model.output(batch, batch.asks["mlm"]).log_softmax(-1)
            size = len(words)
            wanted = logits[range(size), words].sum().item()
        assert score == pytest.approx(wanted / size**penalty, rel=1e-4)


def test_no_answer_is_seen_by_the_text_or_by_another(folder, toy_vocab):
    task = made(folder, toy_vocab, "glm_infill", "choices")
    parts = [ids(toy_vocab, text) for text in ("The baka", "na ba", "teto", "na")]
    example = task.lay_out(parts)
    slots, [first] = example.towers["x"], example.asks[1].rows
    sees = dense(slots.table, slots.table)
    part = np.searchsorted(first, np.arange(len(slots)), "right")  # 0: part A; i: answer i
    assert set(part) == {0, 1, 2, 3}
    assert (sees == ((part == 0) | (part == part[:, None]) & np.tri(len(slots), dtype=bool))).all()
    ends = np.append(first[1:], len(slots))
    for start, stop in zip(first, ends, strict=True):
        assert slots.token[start] == toy_vocab.sop and len({*slots.pos[start:stop]}) == 1
        assert slots.pos2[start:stop].tolist() == list(range(1, 1 + stop - start))


@BOTH
def test_the_longest_field_is_cut(folder, toy_vocab, layout):
    task = made(folder, toy_vocab, layout, "choices")
    choices = [ids(toy_vocab, "na ba"), ids(toy_vocab, "teto")]
    long = ids(toy_vocab, " ".join(TEXTS * 9))
    task = task.with_trained(position_limit=24)
    slots = task.lay_out([long, *choices]).towers["x"]
    assert slots.pos.max() < 24
    assert slots.token[1:9].tolist() == long[:8].tolist()
    given = made(folder, toy_vocab, layout, "choices", max_length=24)
    assert (given.lay_out([long, *choices]).towers["x"].table == slots.table).all()
    for size in (0, 3, 50, len(long)):
        parts = [long[:size], *choices]
        count = len(task.lay_out(parts).towers["x"])
        assert count <= task.pair_slots(sum(map(len, parts)), 0, 3)
    task = task.with_trained(position_limit=2)
    with pytest.raises(DataError, match="line 3: .*pattern.*tokens too long"):
        task.lay_out([long, *choices])


def run(folder, save, layout, form, steps, more=""):
    """Train on the labelled texts; the last line of the log."""
    patterns = "own" if form == "class" else "choices"
    arch = {"mlm": "bert_tiny", "glm_infill": "glm_tiny"}[layout]
    words = f"--task cloze --task.layout {layout} --arch {arch} --data {folder / form}"
    words += f" --task.patterns {folder / patterns}.yaml --save-dir {save} --precision fp32"
    words += f" --max-steps {steps} --lr 2e-3 --batch-texts 32 --valid-every {steps} {more}"
    train(prepare(parse_train(words.split())))
    return json.loads((save / "log.jsonl").read_text().splitlines()[-1])


def said_of(save, form):
    """What a run predicts of records, and their labels."""
    some = [record(form, i) for i in range(40)]
    texts = [[one["a"], *one.get("b", [])] for one in some]
    found = unitk.load(save).predict(texts)
    return [one["label"] for one in found], [one["y"] for one in some]


@pytest.mark.every(2)
@pytest.mark.parametrize("layout", ["glm_infill", "mlm"])
@pytest.mark.parametrize(
    ("form", "more"),
    [
        ("class", ""),
        ("class", "--criterion.loss hinge"),
        pytest.param("class", "--task.multi-token on --task.pattern 1", marks=pytest.mark.slow),
        pytest.param("choice", "--criterion.loss mixed", marks=pytest.mark.slow),
    ],
)
def test_what_can_be_learnt_is_learnt_whole(folder, tmp_path, layout, form, more):
    steps = 120 if form == "class" and "multi" not in more else 400
    run(folder, tmp_path / "run", layout, form, steps, more)
    found, wanted = said_of(tmp_path / "run", form)
    assert found == wanted


def test_the_shares_that_are_right_agree(folder, tmp_path, capsys):
    """Validation, evaluate and predict see the same; a batch says what its texts say alone."""
    from unitk.verbs import evaluate, predict

    last = run(folder, tmp_path / "run", "glm_infill", "choice", 3)
    generator = unitk.load(tmp_path / "run")
    some = [record("choice", i) for i in range(160, 200)]
    texts = [[one["a"], *one["b"]] for one in some]
    found = generator.predict(texts)
    right = np.mean([a["label"] == b["y"] for a, b in zip(found, some, strict=True)])
    evaluate.run(["--checkpoint", str(tmp_path / "run"), "--data", str(folder / "choice")])
    printed = dict(line.split() for line in capsys.readouterr().out.splitlines() if "cloze" in line)
    assert float(printed["cloze/correct"]) == pytest.approx(right, abs=1e-4)
    assert last["valid/cloze/correct"] == pytest.approx(right, abs=1e-4)
    predict.run(
        f"--checkpoint {tmp_path / 'run'} --input {folder / 'choice.valid.jsonl'}"
        " --source-field a,b --output-format text".split()
    )
    assert capsys.readouterr().out.split() == [str(one["label"]) for one in found]
    for text, one in list(zip(texts, found, strict=True))[:6]:
        [alone] = generator.predict([text])
        assert alone["label"] == one["label"]
        assert alone["probability"] == pytest.approx(one["probability"], rel=1e-4)


def test_a_model_is_asked_without_training(folder, toy_data, tmp_path, capsys):
    """By the layout it was trained with; what it says is what the same weights say, trained on for
    no update that counts."""
    from unitk.verbs import evaluate, predict

    words = f"--task glm_infill --task.mask-symbol gmask --arch glm_tiny --data {toy_data / 'text'}"
    words += f" --save-dir {tmp_path / 'glm'} --max-steps 2 --lr 1e-3 --max-tokens 300"
    train(prepare(parse_train([*words.split(), "--writers", "none"])))
    patterns = folder / "own.yaml"
    asked = ["--task", "cloze", "--task.patterns", str(patterns)]
    start = f"--task cloze --task.patterns {patterns} --init-from {tmp_path / 'glm'}"
    more = f"--data {folder / 'class'} --save-dir {tmp_path / 'run'} --max-steps 1 --lr 1e-30"
    train(prepare(parse_train(f"{start} {more} --batch-texts 8".split())))
    options = {"task.patterns": str(patterns)}
    texts = [record("class", i)["a"] for i in range(8)]
    zero = unitk.load(tmp_path / "glm", task="cloze", options=options)
    assert zero.task.config.layout == "glm_infill:mask_symbol=gmask"
    found, after = zero.predict(texts), unitk.load(tmp_path / "run").predict(texts)
    assert_near(*([said["probability"] for said in each] for each in (found, after)))
    one = ["--checkpoint", str(tmp_path / "glm"), *asked]
    predict.run([*one, "--output-format", "text", *texts])
    assert capsys.readouterr().out.split() == [said["label"] for said in zero.predict(texts)]
    evaluate.run([*one, "--data", str(folder / "class"), "--output-format", "json"])
    figures = json.loads(capsys.readouterr().out)
    texts = [record("class", i) for i in range(160, 200)]
    found = zero.predict([one["a"] for one in texts])
    right = np.mean([a["label"] == b["y"] for a, b in zip(found, texts, strict=True)])
    assert figures["cloze/correct"] == pytest.approx(right)
    with pytest.raises(UsageError, match="--task .*no effect.*such as cloze"):
        evaluate.run([*one[:2], "--task", "classify", "--data", str(folder / "class")])


def test_a_checkpoint_has_the_patterns_it_was_trained_with(folder, tmp_path):
    """Of a file that is gone, and of one that is another by now."""
    from unitk.verbs.average import run as average

    path, first = tmp_path / "own.yaml", (folder / "own.yaml").read_text()
    path.write_text(first)
    words = f"--task cloze --data {folder / 'class'} --lr 1e-3 --batch-texts 8 --writers none"
    own = f"{words} --task.layout mlm --arch bert_tiny --task.patterns {path}"
    one = f"{own} --save-dir {tmp_path / 'one'} --max-steps"
    train(prepare(parse_train(f"{one} 1".split())))
    train(prepare(parse_train(f"{one} 2 --resume".split())))
    texts = [record("class", i)["a"] for i in range(4)]
    said = unitk.load(tmp_path / "one").predict(texts)
    path.write_text(first.replace("{a} The", "{a} This"))
    with pytest.raises(UsageError, match="keeps .*contents.*step-2/patterns.yaml, a copy"):
        prepare(parse_train(f"{one} 3 --resume".split()))
    path.unlink()
    generator = unitk.load(tmp_path / "one")
    assert generator.predict(texts) == said
    assert generator.task.pattern.text.startswith("{a} The")
    # what is made of it has them, too
    steps = [str(tmp_path / "one" / "checkpoints" / f"step-{i}") for i in (1, 2)]
    average([*(f"--checkpoint={one}" for one in steps), "--dest", str(tmp_path / "mean")])
    other = f"{words} --init-from {tmp_path / 'mean'} --save-dir {tmp_path / 'two'} --max-steps 1"
    train(prepare(parse_train(other.split())))
    shutil.rmtree(tmp_path / "one"), shutil.rmtree(tmp_path / "mean")
    assert unitk.load(tmp_path / "two").task.pattern.text == "{a} The [M]"


def test_an_ensemble_is_the_mean_over_labels_whatever_answers_them(folder, tmp_path):
    """The answers of one pattern are those of the other labels in the next; or have more tokens."""
    own = (folder / "own.yaml").read_text()
    no, yes = re.findall(r'^  "(?:no|yes)": (\w+)', own, re.M)
    for name, text in {"own": own, "other": OWN.format(yes, no), "long": own}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    how = {
        "own": "mlm --arch bert_tiny",
        "other": "mlm --arch bert_tiny --seed 2",
        "long": "glm_infill --arch glm_tiny --task.multi-token on --task.pattern 1",
    }
    for name, more in how.items():
        words = f"--task cloze --task.patterns {tmp_path / name}.yaml --task.layout {more}"
        words += f" --data {folder / 'class'} --save-dir {tmp_path / name} --max-steps 3"
        train(prepare(parse_train(f"{words} --lr 1e-2 --batch-texts 8 --writers none".split())))
    texts = [record("class", i)["a"] for i in range(6)]
    paths = [tmp_path / name for name in how]
    *each, mean = (
        [said["probabilities"] for said in unitk.load(one).predict(texts, probabilities=True)]
        for one in (*paths, paths)
    )
    for several, found in zip(zip(*each, strict=True), mean, strict=True):
        wanted = [np.mean([said[label] for said in several]) for label in ("no", "yes")]
        assert_near(np.array([found["no"], found["yes"]]), np.array(wanted))


@pytest.mark.parametrize(
    ("tasks", "found"),
    [
        ("lm=0.5 glm_infill=0.5", "glm_infill:mask_symbol=gmask"),
        ("glm_infill=0.5 lm=0.5", "glm_infill:mask_symbol=gmask"),
        ("lm=0.5 seq2seq=0.5", "lm"),
    ],
)
def test_of_several_objectives_one_that_reads_both_sides_is_the_layout(tasks, found):
    config = {"task": tasks, "arch": "glm_tiny"}
    if "glm" in tasks:
        config["task.glm_infill.mask_symbol"] = "gmask"
    assert layout_in(Settings.of_texts(config, Origin.CHECKPOINT)) == found


def test_mistakes_are_told_in_a_line(folder, toy_vocab, tmp_path):
    def fault(text, **options):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(UsageError) as caught:
            assert made(tmp_path, toy_vocab, "glm_infill", "bad", **options).answer_ids
        return str(caught.value)

    own = (folder / "own.yaml").read_text()
    line = f"{tmp_path / 'bad.yaml'}, line"
    assert f"{line} 9: the answer 'na ba' is 6 tokens of this vocabulary (▁ n a ▁" in fault(
        own, pattern=1
    )
    twice = own.splitlines()
    twice[4] = twice[3].replace("no", "yes")
    assert f"{line} 7: two of its answers are the same tokens" in fault("\n".join(twice))
    assert f"{line} 7: no field {{b}}; there are a" in fault(own.replace('"{a}', '"{b}'))
    assert f"{line} 7: no filter 'up'; there are bare, lower" in fault(own.replace("{a}", "{a:up}"))
    assert f"{line} 7: [M] must occur 1 times, got 2" in fault(own.replace("{a} The", "[M]"))
    assert "two labels" in fault(own.replace('  "no"', '  #"no"'))
    assert "choices must be" in fault(CHOICES.replace("a, choices", "choices, a"))
    assert "bad.yaml must have" in fault("fields: a")
    assert "bad.yaml is not YAML" in fault("a: [")
    assert "--task.multi-token has" in fault(CHOICES, multi_token=True)
    assert "--task.length-penalty has" in fault(own, length_penalty=1.0)
    assert "--task.pattern must be 0 to 1 of" in fault(own, pattern=2)
    with pytest.raises(UsageError, match="--task.patterns: no data.* 'boolk'.*boolq"):
        read_pattern("boolk", 0)
    with pytest.raises(UsageError, match="--task.patterns is needed: ag_news, boolq"):
        read_pattern("", 0)
    with pytest.raises(UsageError, match="--task.patterns absent.yaml .*: No such"):
        read_pattern("absent.yaml", 0)
    with pytest.raises(UsageError, match="--task.layout lm.*no blank; glm_infill and mlm"):
        made(folder, toy_vocab, "lm")


def test_data_that_do_not_fit_are_refused(folder, toy_vocab, tmp_path):
    def start(form, patterns, text=None, more=""):
        if text:
            (tmp_path / "bad.yaml").write_text(text)
        path = folder / f"{patterns}.yaml" if text is None else tmp_path / "bad.yaml"
        words = f"--task cloze --task.layout mlm --arch bert_tiny --data {folder / form}"
        words += f" --task.patterns {path} --save-dir {tmp_path / 'run'} --max-steps 1 --lr 1"
        prepare(parse_train([*words.split(), *more.split()]))

    start("class", "own", more="--criterion cross_entropy")
    with pytest.raises(UsageError, match="cross_entropy .*learn.* --task cloze asks"):
        start("choice", "choices", more="--criterion cross_entropy")
    with pytest.raises(UsageError, match="labels .*form.*those.* --data are choice"):
        start("choice", "own")
    own = (folder / "own.yaml").read_text()
    with pytest.raises(UsageError, match="reads texts of 2 parts.*--source-field a,b"):
        start("class", "", own.replace("[a]", "[a, b]"))
    with pytest.raises(UsageError, match="line 7: no answer.* 'no' of --data; .*nope"):
        start("class", "", own.replace('  "no"', '  "nope"'))
    task = made(folder, toy_vocab, "mlm")
    with pytest.raises(DataError, match=r"reads 1 parts \(a\), .*text.* 2"):
        task.lay_out([ids(toy_vocab, "na"), ids(toy_vocab, "ba")])
    (tmp_path / "bad.yaml").write_text('blank: "lala"\n' + CHOICES.replace(" [M]", ""))
    task = made(tmp_path, toy_vocab, "mlm", "bad")
    assert (
        toy_vocab.mask
        in task.lay_out([ids(toy_vocab, one) for one in ("na lala", "ba")]).towers["x"].token
    )
    with pytest.raises(DataError, match="no field.* 'lala'"):
        task.lay_out([ids(toy_vocab, one) for one in ("na na", "ba")])
