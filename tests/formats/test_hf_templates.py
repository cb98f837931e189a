"""Chat templates come in and leave as they are."""

import json

import pytest
import torch

from unitk.errors import CheckpointError
from unitk.formats.hf.templates import copy_templates
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded

TEXT = "{% for m in messages %}\r\n{{ m['content'] }} \u00e9{% endfor %}\n\n"
MORE = "{{ tools }}"
RECORDS = [{"name": "default", "template": TEXT}, {"name": "tool_use", "template": MORE}]


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config.json": json.dumps({"chat_template": RECORDS})},
        {
            "tokenizer_config.json": json.dumps({"chat_template": "older"}),
            "chat_template.jinja": TEXT,
            "additional_chat_templates/tool_use.jinja": MORE,
        },
        {
            "chat_template.json": json.dumps({"chat_template": TEXT}),
            "additional_chat_templates/tool_use.jinja": MORE,
        },
    ],
)
def test_every_way_of_keeping_them_is_read(tmp_path, files):
    there, once, twice = (tmp_path / name for name in ("there", "once", "twice"))
    (there / "additional_chat_templates").mkdir(parents=True)
    for name, text in files.items():
        (there / name).write_bytes(text.encode())
    for source, folder in ((there, once), (once, twice)):
        folder.mkdir()
        copy_templates(source, folder)
        found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.jinja")}
        assert found == {
            "chat_template.jinja": TEXT.encode(),
            "additional_chat_templates/tool_use.jinja": MORE.encode(),
        }


@pytest.mark.parametrize("value", [3, [["a"]], [{"name": "../x", "template": ""}], [{"name": "x"}]])
def test_what_is_no_template_is_named(tmp_path, value):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: chat_template"):
        copy_templates(tmp_path, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer_config.json"]


def test_transformers_finds_them_after_a_way_in_and_out(hf, kit, toy_vocab, tmp_path):
    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    torch.manual_seed(0)
    model = get("arch", "qwen3_tiny")().build(len(toy_vocab))
    there = tmp_path / "there"
    there.mkdir()
    get("format", "hf").write(Loaded(model, task, {"arch": "qwen3_tiny"}, {}), there)
    (there / "chat_template.jinja").write_text(TEXT, newline="")
    ours = kit.to_unitk("hf", there, tmp_path / "ours", "--vocab", there)
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    wanted = hf.AutoTokenizer.from_pretrained(there).chat_template
    assert hf.AutoTokenizer.from_pretrained(back).chat_template == wanted
    assert (back / "chat_template.jinja").read_bytes() == TEXT.encode()
