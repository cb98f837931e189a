"""Json that is nested beyond Python's recursion is a line that names the file, whoever reads it."""

import shutil

import pytest

from unitk.api.verb import find_verb
from unitk.errors import UnitkError
from unitk.files import MANIFEST, seal

DEEP = "[" * 100_000
PREPROCESS = "preprocess --input {file} --vocab {vocab} --dest {tmp}/made"
VOCAB = "preprocess --input {tmp}/in.txt --vocab {file} --dest {tmp}/made"
GENERATE = "generate --checkpoint {model} --max-len 1 --input"
FIELDS = "--source-field a --target-field b"


@pytest.fixture(scope="module")
def trained(make_checkpoint):
    return make_checkpoint("lm", "gpt2_tiny")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("x.jsonl", PREPROCESS),
        ("x.json", PREPROCESS),
        ("x.jsonl", f"{PREPROCESS} {FIELDS}"),
        ("x.json", f"{PREPROCESS} {FIELDS}"),
        ("x.jsonl", f"{GENERATE} {{file}}"),
        ("x.json", f"{GENERATE} {{file}}"),
        ("x.json", f"{GENERATE} {{file}} {FIELDS}"),
        (".out.progress", f"{GENERATE} {{tmp}}/in.txt --output {{tmp}}/out --resume"),
        ("x.jsonl", "evaluate --checkpoint {model} --data {file}"),
        ("x.jsonl", "score --metric bleu --hypotheses {file} --references {tmp}/in.txt"),
        ("x.jsonl", "score --metric bleu --hypotheses {tmp}/in.txt --references {file}"),
        ("log.jsonl", "plot --runs {tmp}"),
        ("corpus/manifest.json", "evaluate --checkpoint {model} --data {tmp}/corpus"),
        ("copy/state.json", "generate --checkpoint {tmp}/copy --input {tmp}/in.txt"),
        ("copy/vocab/vocab.json", "generate --checkpoint {tmp}/copy --input {tmp}/in.txt"),
        ("copy/manifest.json", "generate --checkpoint {tmp}/copy --input {tmp}/in.txt"),
        (
            "copy/vocab/vocab.json",
            "preprocess --input {tmp}/in.txt --vocab {tmp}/copy --dest {tmp}/d",
        ),
        ("tokenizer.json", VOCAB),
        ("gpt/vocab.json", VOCAB),
        ("hf/config.json", "convert --from hf {tmp}/hf --to unitk {tmp}/d"),
        ("hf/model.safetensors.index.json", "convert --from hf {tmp}/hf --to unitk {tmp}/d"),
    ],
)
def test_deep_json_is_a_line_that_names_the_file(trained, toy_data, tmp_path, name, line):
    (tmp_path / "in.txt").write_text("the cat\n")
    corpus = toy_data / "text" / "train"
    shutil.copytree(corpus, tmp_path / "corpus")
    shutil.copytree(trained, tmp_path / "copy")
    for folder in ("gpt", "hf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "gpt" / "merges.txt").write_text("")
    (tmp_path / "hf" / "config.json").write_text('{"model_type": "bert"}')
    if name == "hf/config.json":
        (tmp_path / "hf" / "model.safetensors").write_bytes(b"")
    (tmp_path / name).write_text(DEEP)
    if name.startswith("copy/") and not name.endswith(MANIFEST):  # as one that was made so
        seal(tmp_path / "copy")
    places = {"file": tmp_path / name, "model": trained, "vocab": corpus, "tmp": tmp_path}
    verb, *words = line.format(**places).split()
    with pytest.raises(UnitkError) as caught:
        find_verb(verb)(words)
    message = str(caught.value)
    assert name.rpartition("/")[2] in message or "holds no byte-level BPE" in message
    assert "\n" not in message and len(message) < 300
    assert "deep" in message or "recursion" in message
