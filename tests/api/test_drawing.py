"""An interactive mask holds the slots and the rule of the example that it draws."""

import json
import re

import numpy as np
import pytest

from unitk import masks
from unitk.api.drawing import drawings, lay_out_text, page
from unitk.registry import get, names
from unitk.vocab.words import word_vocab

TEXT = "a b c d e f g h </script> <!--<script>"


def drawn(name, target=None):
    vocab, task = word_vocab(TEXT), get("task", name)
    made = task(task.Config(), vocab)
    rng = np.random.default_rng(0)
    example = lay_out_text(made, [TEXT] if not made.predicts else ["a b", "c d"], target, rng)
    return example, drawings(name, made, example)


# a cloze question has a pattern, which a text alone does not say
@pytest.mark.parametrize("name", sorted({*names("task")} - {"cloze"}))
def test_a_row_sees_what_the_rule_says(name):
    example, found = drawn(name, "c d" if name == "seq2seq" else None)
    assert [one.tower for one in found] == list(example.towers)
    for one in found:
        record = json.loads(json.dumps(one.record()))
        slots = example.towers[one.tower].table
        seen = masks.dense(slots, slots)
        assert record["sees"] == [row.nonzero()[0].tolist() for row in seen]
        assert {len(record[key]) for key in ("names", "kinds", "labels")} == {slots.shape[1]}
        assert record["fields"]["pos"] == example.towers[one.tower].pos.tolist()
        asked = {row for ask in example.asks if ask.tower == one.tower for row in ask.first}
        assert asked <= {row for row, label in enumerate(record["labels"]) if label}


def test_a_page_is_one_file_whose_text_is_never_read_as_html():
    example, found = drawn("mass")
    text = page(found)
    assert not re.search(r"(src|href)=", text), "it needs no other file"
    assert text.count("</script>") == 1, "a token cannot end the script"
    assert text.count("<script") == 1 and "<!--" not in text, "nor open one, which hides the end"
    data = re.search(r"append\(\.\.\.(.*)\.map\(", text).group(1)
    assert json.loads(data) == [one.record() for one in found]


def test_the_places_that_no_decoder_reads_have_a_row():
    enc, dec = (one.record() for one in drawn("mass")[1])
    hidden = [kind == "mask" for kind in enc["kinds"]]
    assert any(hidden) and "cross" not in dec["fields"]
    assert all(
        cross == 0 for cross, mask in zip(enc["fields"]["cross"], hidden, strict=True) if mask
    )
