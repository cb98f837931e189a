"""Outputs that copy clauses of their source, and the clauses that they may leave out."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from searching import outputs

from unitk.decoding import decode as module
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint, Constraints
from unitk.decoding.decode import generate
from unitk.decoding.generator import Generator
from unitk.errors import UsageError
from unitk.families.extraction.clauses import find_jumps
from unitk.families.extraction.search import Clauses
from unitk.registry import get

PIECE = re.compile(r" ?[\w-]+| ?[^\w\s-]|\s")


def follow(follows, at=0, shown=()):
    """Every output as the numbers of its tokens, by going on wherever it is allowed."""
    end = len(follows) - 1
    for token in range(end + 1):
        if follows[at, token]:
            if token == end:
                yield shown
            else:
                yield from follow(follows, token + 1, (*shown, token))


def read(text):
    pieces = PIECE.findall(text)
    assert "".join(pieces) == text
    return {"".join(pieces[i] for i in shown).strip() for shown in follow(find_jumps(pieces))}


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("We show A.", []),
        ("A costs 3,000 euros and is well-known.", []),
        (
            " We show it, in brief, on both.",
            ["We show it, on both.", "We show it on both.", "We show it, in brief.", "We show it."],
        ),
        ("We use A (or B, (C), D) here.", ["We use A here."]),
        (
            "A is here – so it is – today.",
            ["A is here today.", "A is here – today.", "A is here – so it is.", "A is here."],
        ),
        ("It does: one, two.", ["It does: one.", "It does."]),
        ("One, two. Three.", ["One.", "One, two.", "One. Three.", "Three."]),
        ("He goes. She", ["He goes."]),  # what is no whole sentence is left out
        ("A title, with more", ["A title"]),
        (
            "他来了，我走了。她也走了。",
            ["他来了。", "他来了。她也走了。", "他来了，我走了。", "她也走了。"],
        ),
        ("هو هنا، وهي هناك.", ["هو هنا."]),
    ],
)
def test_what_may_be_left_out(text, shorter):
    whole = {text.strip()} if text != "He goes. She" else set()
    assert read(text) == whole | {*shorter}


def test_a_token_over_a_border_is_never_divided():
    """A token of two marks begins and ends no clause; one of two sentences parts none."""
    pieces = ["A", " (", "b", "),", " c", ", d", ". E", ", f", "."]
    found = {"".join(pieces[i] for i in shown) for shown in follow(find_jumps(pieces))}
    assert found == {"A (b), c, d. E, f.", "A (b), c, f.", "A (b), c, d. E.", "A (b), c."}


def random_clauses(rng, case, size):
    """A source of the words of a case, of which outputs may leave out what chance decides."""
    follows = np.triu(rng.random((size + 1, size + 1)) < 0.4) | np.eye(size + 1, dtype=bool)
    return Clauses(np.append(rng.integers(case.words, size=size), case.end), follows)


def copies(clauses, ids):
    """Whether an output, with its end, is a way through the clauses."""
    places = {0}
    for word in ids:
        places = {
            token + 1
            for place in places
            if place < len(clauses.ids)
            for token in np.flatnonzero(clauses.follows[place])
            if clauses.ids[token] == word
        }
    return len(clauses.ids) in places


def search(case, prompts, config, clauses):
    each = [
        replace(Constraint().with_lengths(config, 0), own=some) if some else Constraint()
        for some in clauses
    ]
    return generate(case.model, prompts, case.protocol, config, constraints=Constraints(each))


@pytest.mark.every(3)
@pytest.mark.parametrize("name", ["shift", "slot", "cross"])
@pytest.mark.parametrize("way", ["exact", "fairseq", "glm", "unilm"])
def test_a_wide_beam_is_brute_force(toy, name, way):
    case = toy.Case(name, words=2, scale=0.6)
    prompt = case.prompt(np.array([0, 1, 1]))
    config = GenerateConfig(
        beam=150, nbest=150, max_len=4, max_tokens=10**6, search=way, extract=True
    )
    everything = toy.brute_force(case, prompt, config)
    rng = np.random.default_rng(0)
    for size in (1, 2, 4, 6, 9):
        clauses = random_clauses(rng, case, size)
        (found,) = search(case, [prompt], config, [clauses])
        assert outputs([found]) == [[one for one in everything if copies(clauses, one[0])]]


@pytest.mark.parametrize("beam", [1, 3])
def test_lengths_lead_to_no_dead_end(toy, kind, beam):
    """Whatever the lengths, there is an output if the source has one of such a length."""
    case = toy.Case(kind, words=6)
    if len(case.prompts(1)[0].blanks):
        pytest.skip("outputs of several blanks copy nothing")
    rng = np.random.default_rng(beam)
    for low, high in ((0, 2), (3, 5), (4, 4), (6, 9)):
        config = GenerateConfig(beam=beam, nbest=beam, min_len=low, max_len=high, extract=True)
        clauses = [random_clauses(rng, case, 7) for _ in range(6)]
        found = search(case, case.prompts(6), config, clauses)
        for some, source in zip(found, clauses, strict=True):
            lengths = {len(shown) for shown in follow(source.follows)}
            assert bool(some) == any(low <= length <= high for length in lengths)
            assert all(copies(source, one.ids) and low <= len(one.ids) - 1 <= high for one in some)


def test_batches_and_compaction_change_nothing(toy, monkeypatch):
    case = toy.Case("cross", words=5)
    rng = np.random.default_rng(5)
    clauses = [random_clauses(rng, case, size) for size in (2, 9, 4, 7)]
    prompts, config = case.prompts(4), GenerateConfig(beam=3, nbest=3, max_len=9, extract=True)
    alone = [search(case, [p], config, [c])[0] for p, c in zip(prompts, clauses, strict=True)]
    for look in (1, 10**6):
        monkeypatch.setattr(module, "CHECK_EVERY", {"cpu": look})
        assert outputs(search(case, prompts, config, clauses)) == outputs(alone)


def test_lengths_from_each_token_on(toy):
    case = toy.Case("shift", words=3)
    rng = np.random.default_rng(3)
    for size in (1, 5, 8):
        clauses = random_clauses(rng, case, size)
        table = clauses.count_lengths(size + 1)
        for token in range(size):
            lengths = {1 + len(shown) for shown in follow(clauses.follows, token + 1)}
            below = [sum(length < k for length in lengths) for k in range(size + 2)]
            assert table[token].tolist() == below
        assert table[size].tolist() == [0] + [1] * (size + 1)


@pytest.fixture
def lm(toy_vocab):
    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    torch.manual_seed(1)
    model = get("arch", "gpt2_tiny")().build(len(toy_vocab)).eval()
    return Generator(model, task)


def test_texts_are_made_of_sentences_of_the_last_part(lm):
    text = "The soto. The lami na. The na."
    (found,) = lm.generate([["lami na", text]], beam=20, nbest=20, max_len=64, extract=True)
    assert {one.text for one in found} == read(text) and len(found) == 7


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sampling": True}, "--extract"),
        ({"beam": 4, "diverse_beam_groups": 2}, "--extract"),
        ({"prefixes": ["la"]}, "forced beginnings"),
        ({"constraints": [["la"]]}, "phrases"),
    ],
)
def test_what_cannot_go_with_it_is_refused(lm, options, named):
    with pytest.raises(UsageError, match=named):
        lm.generate(["lami na."], extract=True, **options)


def test_it_needs_a_source_and_an_end(lm, toy_vocab):
    with pytest.raises(UsageError, match="--extract"):
        lm.sample(2, extract=True)
    task = get("task", "glm_infill")(get("task", "glm_infill").Config(), toy_vocab)
    with pytest.raises(UsageError, match="--extract"):
        Generator(lm.model, task).infill(["lami [MASK]."], extract=True)


def test_a_sentence_of_many_marks_is_bounded(toy):
    """Each pair of marks is a jump; tables of 2,000 tokens are made by rows, not by pairs."""
    marks = 1000
    pieces = [" a", ","] * marks + [" b", "."]
    calls = 0

    def count(frame, event, _):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        follows = find_jumps(pieces)
    finally:
        sys.setprofile(None)
    assert calls < 100 * marks
    # from behind any mark, an output may go on behind any later one
    assert follows[2:-1:2, 2:-1:2][np.triu_indices(marks)].all()
