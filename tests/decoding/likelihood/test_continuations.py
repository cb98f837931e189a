"""Last words and ranked choices: what is read, and what counts."""

import json

import numpy as np
import pytest
import torch

from unitk import registry
from unitk.decoding.config import GenerateConfig
from unitk.decoding.generator import Generator
from unitk.decoding.likelihood import likelihoods
from unitk.decoding.texts.sources import Sources
from unitk.errors import DataError
from unitk.evaluation.continuations import (
    Choices,
    Question,
    last_words,
    lines_about,
    rank_choices,
    read_choices,
    read_last_words,
    scores,
)
from unitk.evaluation.windows import cut_windows
from unitk.models.archs import tiny
from unitk.progress import progress


def gains(*log_probs, greedy=1):
    return np.array([log_probs, [greedy] * len(log_probs)], np.float32)


def test_all_tokens_of_a_word_must_be_the_likeliest():
    questions = [Question("a", (" b",), 0, "")] * 2
    mixed = np.array([[-1, -3], [1, 0]], np.float32)
    found = last_words(questions, [[gains(-1, -1)], [mixed]])
    assert found["accuracy"] == 50 and found["log_prob"] == -3
    assert found["ppl_last_word"] == pytest.approx(np.exp(3)) and found["tokens_last_word"] == 2


def test_choices_are_ranked_three_ways():
    question = Question("c", (" aa", " b", " cccc"), 0, "")
    found = [gains(-2, -2), gains(-3), gains(-2, -2, -2)]
    own = scores(question, found)
    assert own["sum"].tolist() == [-4, -3, -6]
    assert own["per_token"].tolist() == [-2, -3, -2]
    assert own["per_byte"].tolist() == [-2, -3, -1.5]
    figures = rank_choices([question], [found])
    assert figures["accuracy_sum"] == 0 and figures["accuracy_per_token"] == 50  # a tie of two
    assert figures["accuracy_per_byte"] == 0 and figures["chance"] == pytest.approx(100 / 3)


def test_scripts_without_blanks_get_none(tmp_path):
    path = tmp_path / "x.jsonl"
    wanted = {
        ("北京是中国的", "首都"): "",
        ("日本の首都は", "「東京」だ"): "",
        ("ประเทศไทยมีเมืองหลวงคือ", "กรุงเทพ"): "",
        ("他生于", "2008年"): "",
        ("答案：", "苹果"): "",
        ("The answer is", "apples"): " ",
        ("서울은 한국의", "수도이다"): " ",
        ("The capital of China is", "北京"): " ",
        ("北京 ", "首都"): "",
        ("The answer is", " apples"): "",
        ("", "首都"): "",
        ("1 + 1 =", "2"): " ",
    }
    rows = [{"context": a, "choices": [b, "x"], "label": 0} for a, b in wanted]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_choices([path])
    assert [one.choices[0] for one in found] == [m + b for (_, b), m in wanted.items()]
    for one, (context, choice) in zip(read_choices([path], ""), wanted, strict=True):
        assert one.choices == (choice, "x") and one.context == context
    given = [one.choices[0] for one in read_choices([path], "|")]
    assert given == ["|" * bool(a) + b for a, b in wanted]


def test_the_last_word_of_any_script(tmp_path):
    path = tmp_path / "x.txt"
    texts = {
        "北京是中国的首都。": ("北京是中国的首", "都。"),
        "我用 iPhone": ("我用", " iPhone"),
        "I live in 北京": ("I live in 北", "京"),
        "the cat sat .": ("the cat sat", " ."),
        "He saw a cat.": ("He saw a", " cat."),
        "on the 東": ("on the", " 東"),
    }
    path.write_text("".join(f" {text} \n" for text in texts))
    found = [(one.context, one.choices[0]) for one in read_last_words([path])]
    assert found == [*texts.values()]
    path.write_text("北\n")
    with pytest.raises(DataError, match="x.txt, line 1: .*words"):
        read_last_words([path])


def test_a_choice_has_the_probability_of_the_text_as_it_stands(tmp_path, toy_vocab):
    """No piece of a choice begins a word, where the text has no blank there."""
    task = registry.get("task", "lm")(registry.get("task", "lm").Config(), toy_vocab)
    task = task.with_trained(pairs=False)
    torch.manual_seed(0)
    generator = Generator(tiny(registry.get("arch", "gpt2_tiny")()).build(len(toy_vocab)), task)
    joined = "The bade"
    for context, choice in (("The", " bade"), ("The ba", "de")):
        questions = [Question(context, (choice,), 0, "")]
        [[(gains_, _)]] = Choices().score(generator, questions, progress)
        before, after = toy_vocab.encode(context), toy_vocab.encode(joined)
        if [*before, *toy_vocab.encode_inside(choice)] == after:  # no token over the border
            whole = generator.likelihood(joined)[0].sum() - generator.likelihood(context)[0].sum()
            assert gains_.sum() == pytest.approx(whole, abs=1e-4)
        pieces = toy_vocab.pieces(toy_vocab.encode_inside(choice))
        assert pieces[0].startswith("▁") == choice.startswith(" ") and len(pieces) == len(gains_)


def test_questions_without_a_label_are_ranked_but_not_counted(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [{"choices": ["a", "b"], "label": "B"}, {"choices": ["a", "b", "c"]}]
    rows.append({"choices": ["a", "b"], "label": None})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = read_choices([path])
    assert [one.label for one in questions] == [1, None, None]
    found = [[gains(-2), gains(-1), gains(-3)][: len(one.choices)] for one in questions]
    figures = rank_choices(questions, found)
    assert figures["accuracy_sum"] == 100 and figures["labelled"] == 1
    assert figures["chance"] == 50  # a guess is right as often on the questions that count
    assert figures["questions"] == len([*lines_about(questions, found, True)]) == 3
    assert not any("accuracy" in name for name in rank_choices(questions[1:], found[1:]))


def test_windows_predict_every_token_once():
    text = np.arange(23)
    found = cut_windows(text, 5, 3)
    assert np.concatenate([part for _, part in found]).tolist() == text.tolist()
    assert [(len(before), len(part)) for before, part in found] == [(0, 8), *[(3, 5)] * 3]
    assert cut_windows(text[:0], 5, 3) == []
    assert all(
        before.tolist() == text[part[0] - len(before) : part[0]].tolist() for before, part in found
    )


def test_what_is_greedy_is_what_greedy_decoding_writes(toy_vocab):
    task = registry.get("task", "lm")(registry.get("task", "lm").Config(), toy_vocab)
    task = task.with_trained(pairs=False)
    torch.manual_seed(0)
    model = tiny(registry.get("arch", "gpt2_mini")()).build(len(toy_vocab)).eval()
    generator = Generator(model, task)
    source = task.words[:5]
    [[best]] = generator.outputs(Sources([[source]]), GenerateConfig(beam=1, max_len=6, min_len=6))
    written = best.hypothesis.ids[:6]
    other = np.append(written[:5], task.words[task.words != written[5]][0])
    both = likelihoods(model, task, [(source, written), (source, other)])
    assert [greedy.tolist() for _, greedy in both] == [[1] * 6, [1] * 5 + [0]]


@pytest.mark.parametrize(
    ("read", "line", "message"),
    [
        (read_last_words, '{"text": "word"}', "line 1: the text has less than two words"),
        (read_last_words, '{"x": "a b"}', "line 1: no field 'text'"),
        (read_choices, '{"choices": ["a"], "label": 0}', "line 1: .*'choices' must be a list"),
        (read_choices, '{"choices": ["a", " "], "label": 0}', "'choices' has an empty text"),
        (
            read_choices,
            '{"choices": ["a", "b"], "label": 2}',
            "'label' must be .* 1 or B.*got '2'",
        ),
        (
            read_choices,
            '{"context": 1, "choices": ["a", "b"], "label": 0}',
            "'context' must be a text",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path, read, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match=message):
        read([path])


def test_blanks_belong_to_what_follows(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [
        {"context": "a", "choices": ["b", "c d"], "label": 1},
        {"choices": ["b", "c"], "label": 0},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [one.choices for one in read_choices([path])] == [(" b", " c d"), ("b", "c")]
    path.write_text(json.dumps({"text": " one two\n\nthree \n"}) + "\n")
    [last] = read_last_words([path])
    assert (last.context, last.choices) == ("one two", ("\n\nthree",))
