"""Losses of cloze questions, from scores that are known."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rounding import assert_near

from unitk.errors import UsageError
from unitk.families.cloze.blanks import lay_out_answers
from unitk.families.cloze.criterion import ClozeCriterion
from unitk.models.archs import tiny
from unitk.registry import get
from unitk.slots import Ask, Example, collate, stay

TEXT = [40, 41, 42]
QUESTIONS = [([[43], [44, 45]], 1), ([[46, 47], [43], [48]], 0)]
"""Answers of each question, and which is right."""


@pytest.fixture(scope="module")
def asked(toy_vocab):
    """A model, the questions as a batch, and the scores of their answers one by one."""
    layout = get("task", "glm_infill")(get("task", "glm_infill").Config(), toy_vocab)
    torch.manual_seed(0)
    model = tiny(get("arch", "glm_tiny")()).build(len(toy_vocab)).eval()
    ids = np.array([*TEXT, toy_vocab.mask])
    examples, scores = [], []
    for answers, right in QUESTIONS:
        one = lay_out_answers(layout, ids, [np.array(answer) for answer in answers], 0.0)
        one.asks[1].label[:] = right
        examples.append(one)
        each = [lay_out_answers(layout, ids, [np.array(answer)], 0.0) for answer in answers]
        batches = [collate([[alone]]).to("cpu") for alone in each]
        scores.append(torch.stack([model.log_probs(b, b.asks["answers"]).sum() for b in batches]))
    return model, collate([examples]).to("cpu"), scores


def by_hand(loss, score, right):
    gold = score[right]
    entropy = F.cross_entropy(score[None], torch.tensor([right]))
    others = torch.cat([score[:right], score[right + 1 :]])
    return {
        "cross_entropy": entropy,
        "hinge": (1 - gold + others).clamp(min=0).sum(),
        "generative": -gold,
        "mixed": entropy - gold,
    }[loss]


@pytest.mark.parametrize("loss", ["cross_entropy", "hinge", "generative", "mixed"])
def test_losses_are_those_by_hand(asked, loss):
    model, batch, scores = asked
    model.zero_grad()
    found = ClozeCriterion(loss)(model, batch, 0, None)
    each = [by_hand(loss, s, right) for s, (_, right) in zip(scores, QUESTIONS, strict=True)]
    assert_near(found.sums["cloze"], sum(each))
    assert ClozeCriterion(loss).counts(batch) == {"cloze": 2}
    right = [int(s.argmax()) == r for s, (_, r) in zip(scores, QUESTIONS, strict=True)]
    assert float(found.parts["cloze/correct"]) == sum(right)
    found.sums["cloze"].backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_gradients_are_those_of_torch(asked):
    """Of the mixed loss in double precision, against log-softmax of all logits."""
    model, batch, _ = asked
    found = []
    for own in (True, False):
        model.double().zero_grad()
        if own:
            loss = ClozeCriterion("mixed")(model, batch, 0, None).sums["cloze"]
        else:
            words, ask = batch.asks["answers"], batch.asks["cloze"]
            logits = model.output(batch, words).log_softmax(-1)
            gain = logits.gather(1, words.label[:, None])[:, 0]
            cuts = torch.searchsorted(words.first, ask.rows[ask.rows >= 0])[1:]
            sums = [part.sum() for part in gain.tensor_split(cuts.tolist())]
            scores = [torch.stack(sums[:2]), torch.stack(sums[2:])]
            pairs = zip(scores, QUESTIONS, strict=True)
            loss = sum(by_hand("mixed", score, right) for score, (_, right) in pairs)
        loss.backward()
        found.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        )
    model.float()
    assert_near(found[0] / found[1].abs().max(), found[1] / found[1].abs().max())


def single(answers, right):
    """A slot that is asked for one of some ids."""
    among, one = np.array(answers), np.ones(1, "f")
    ask = Ask("cloze", "lm", "x", np.array([[2]]), np.array([right]), one, among)
    return Example({"x": stay(TEXT, pos=np.arange(3))}, [ask])


@pytest.mark.parametrize("loss", ["cross_entropy", "hinge"])
def test_single_tokens_are_compared_by_their_logits(asked, loss):
    model, _, _ = asked
    answers, rights = [45, 43, 44], [2, 0]
    batch = collate([[single(answers, right)] for right in rights]).to("cpu")
    plain = Ask("x", "lm", "x", *batch.asks["cloze"].arrays[:3])
    logits = model.output(batch, plain)[:, answers]
    wanted = sum(by_hand(loss, one, right) for one, right in zip(logits, rights, strict=True))
    assert_near(ClozeCriterion(loss)(model, batch, 0, None).sums["cloze"], wanted)


def test_what_has_no_such_loss_is_refused(asked):
    model, _, _ = asked
    batch = collate([[single([43, 44], 0)]]).to("cpu")
    with pytest.raises(UsageError, match="--criterion.loss mixed needs --task.multi-token on"):
        ClozeCriterion("mixed")(model, batch, 0, None)
    other = collate([[Example({"x": stay(TEXT, pos=np.arange(3))}, [])]]).to("cpu")
    with pytest.raises(UsageError, match="--criterion cloze.* --task cloze"):
        ClozeCriterion("hinge")(model, other, 0, None)
