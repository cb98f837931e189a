"""Measures of rankings: by hand, in any file that says the same, and what files must not say."""

import json
from math import log2

import pytest

from unitk.errors import DataError, UsageError
from unitk.options.config import parse
from unitk.verbs import score

RUN = """\
q1 Q0 d9 1 0.9 me
q1 Q0 d2 2 0.8 me
q1 Q0 d7 3 0.7 me
q1 Q0 d1 4 0.6 me
q3 Q0 d1 1 0.9 me
"""
QRELS = "q1 0 d1 1\nq1 0 d2 2\nq1 0 d3 1\nq1 0 d7 0\nq2 0 d1 1\nq4 0 d5 0\n"


@pytest.fixture
def scores(tmp_path):
    """`scores(metric, run, qrels)`: texts of files, by their endings."""

    def call(metric, run=("run.trec", RUN), qrels=("qrels.txt", QRELS), more=""):
        for name, text in (run, qrels):
            (tmp_path / name).write_text(text)
        words = ["--metric", metric, "--hypotheses", str(tmp_path / run[0])]
        words += [
            "--references",
            ",".join(str(tmp_path / name) for name in (qrels[0], more) if name),
        ]
        return {k: v.figures for k, v in score.value(parse("score", score.Options, words)).items()}

    return call


NDCG = (2 / log2(3) + 1 / log2(5)) / (2 + 1 / log2(3) + 1 / log2(4))
"""Of q1; nothing was found for q2, nothing is relevant for q4, and q3 is not judged."""


def test_measures_are_those_by_hand(scores):
    found = scores("ndcg,mrr,recall,ndcg@2,recall@2,mrr@1,ndcg@100")
    wanted = {"ndcg": NDCG, "mrr": 1 / 2, "recall": 2 / 3, "recall@2": 1 / 3, "mrr@1": 0}
    wanted |= {"ndcg@2": (2 / log2(3)) / (2 + 1 / log2(3)), "ndcg@100": NDCG}
    for name, value in wanted.items():
        assert found[name] == {name: pytest.approx(100 * value / 2), "queries": 2}


def test_order_of_lines_is_nothing_and_json_is_the_same(scores):
    turned = "\n".join(reversed(RUN.splitlines()))
    records = [
        {"id": "q1", "found": [{"id": one, "score": 0.5} for one in ("d9", "d2", "d7", "d1")]},
        {"id": "q3", "found": [{"id": "d1"}]},
    ]
    lines = "\n".join(map(json.dumps, records))
    beir = "query-id\tcorpus-id\tscore\n"
    beir += "\n".join(
        "\t".join(line.split()[::2] + line.split()[3:]) for line in QRELS.splitlines()
    )
    for given in (
        {"run": ("r.trec", turned)},
        {"run": ("r.jsonl", lines)},
        {"qrels": ("q.tsv", beir)},
    ):
        assert scores("ndcg,recall@2", **given) == scores("ndcg,recall@2")


def test_judgements_of_several_files_are_those_of_one(scores, tmp_path):
    """Also where two of them judge texts of one query."""
    lines = QRELS.splitlines(keepends=True)
    (tmp_path / "more.txt").write_text("".join(lines[::2]))
    parts = ("qrels.txt", "".join(lines[1::2])), "more.txt"
    assert scores("ndcg,recall", qrels=parts[0], more=parts[1]) == scores("ndcg,recall")
    with pytest.raises(DataError, match="more.txt, line 1: id 'd1' comes twice"):
        scores("ndcg", more="more.txt")


@pytest.mark.parametrize(
    "metric, given, message",
    [
        ("ndgc", {}, "--metric .*'ndgc'; did you mean ndcg"),
        ("ndcg@0", {}, "--metric ndcg@0"),
        ("ndcg,bleu", {}, "--metric ndcg .* bleu"),
        ("ndcg", {"run": ("r.trec", "q1 Q0 d1 1 0.5")}, "r.trec, line 1: .* 6 columns, not 5"),
        ("ndcg", {"run": ("r.trec", RUN + "q1 Q0 d9 5 0.1 me")}, "line 6: id 'd9' .* twice"),
        ("ndcg", {"qrels": ("q.txt", "q1 0 d1 yes")}, "q.txt, line 1: 'yes'"),
        ("ndcg", {"qrels": ("q.txt", "q7 0 d1 1")}, "run.trec has no query"),
    ],
)
def test_what_files_must_not_say(scores, metric, given, message):
    with pytest.raises((UsageError, DataError), match=message):
        scores(metric, **given)
