"""A type checker knows the options of unitk's functions, as a user's program calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """
from pathlib import Path

import unitk

unitk.preprocess(input=["a.txt", Path("b.txt")], dest="corpus", vocab_size=2000, documents="line")
run = unitk.train(
    task={"lm": 0.5, "glm_infill": 0.5}, data={"corpus": 2.0}, save_dir=Path("run"), max_steps=9,
    lr_schedule=lambda step, total: 1.0, max_words="100M", options={"arch.dropout": 0.1},
)
losses: list[float] = [event["valid/loss"] for event in run if event["kind"] == "valid"]
unitk.train(save_dir="run", resume=True)
found: dict[str, object] = unitk.evaluate(checkpoint="run", data="corpus")
fills: str = unitk.generate("a [MASK]", checkpoint="run", beam=3)[0][0].text
bleu = unitk.score(metric="bleu", hypotheses="a", references=["b", "c"])["bleu"].figures["bleu"]
labels = [one["label"] for one in unitk.predict(["a", "b"], checkpoint=["run", "other"])]
unitk.convert(from_=["hf", "bert"], to=["unitk", "models/bert"])
unitk.plot("run", output="a.png").exists()
model = unitk.load("run", precision="bf16", options={"task.delimiter": False})
text: str = model.generate(["a"], beam=3, max_len="1.5x+2", prefixes=["b"])[0][0].text
scores: list[float] = [one.hypothesis.score for one in model.score(["a"], ["b"], lenpen=1.0)]
model.infill("a [MASK]", sampling=True)[0][0].text.upper()
model.predict([["a", "b"]], null_threshold=0.5)[0]["label"]
model.embed("a", pool="first")
model.logits(["a"])[0].shape
"""
WRONG = {
    'unitk.preprocess(input="a", dst="b")': '"dst"',
    'unitk.preprocess(input="a", dest="b", documents="lines")': '"documents"',
    'unitk.train(save_dir="run", max_step=9)': '"max_step"',
    'unitk.train(save_dir="run", resume=1.5)': '"resume"',
    'unitk.evaluate(data="corpus")': '"checkpoint"',
    'unitk.score(metric="blue", hypotheses="a", references="b", lower=True)': '"lower"',
    'unitk.generate("a", checkpoint="run", beams=3)': '"beams"',
    'unitk.load("run", precision="fp8")': '"precision"',
    'unitk.load("run").generate("a", beams=3)': '"beams"',
    'unitk.load("run").infill("a", search="best")': '"search"',
    'unitk.load("run").embed("a", pool="max")': '"pool"',
    'unitk.load("run").predict("a", threshold=0.5)': '"threshold"',
    'unitk.load("run").score("a", "b", max_token=9)': '"max_token"',
    'unitk.load("run").generate("a")[0][0].txt': '"txt"',
}


@pytest.mark.slow
def test_right_calls_pass_and_wrong_ones_fail(tmp_path, monkeypatch):
    mypy = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)  # where the package is found
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "\n".join(WRONG) + "\n")
    # unitk's own files are checked elsewhere
    said, _, code = mypy.run(
        ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports", str(program)]
    )
    lines = [line for line in said.splitlines() if ": error: " in line]
    first = RIGHT.count("\n") + 1
    wrong = {int(line.split(":")[1]) - first: line for line in lines}
    assert code == 1 and sorted(wrong) == list(range(len(WRONG))), said
    for number, name in enumerate(WRONG.values()):
        assert name in wrong[number], wrong[number]
