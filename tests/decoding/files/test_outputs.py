"""Outputs as tables and numbers are read back as they were."""

import csv
import json

import numpy as np
import pytest

from unitk.decoding.files.inputs import Input, Item
from unitk.decoding.files.outputs import Formatter, list_numbers
from unitk.decoding.search import Hypothesis
from unitk.decoding.texts.outputs import Output

NOTHING = Hypothesis(np.zeros(0, np.int64), -1.5, -3.0, np.zeros(0, np.float32))


@pytest.mark.parametrize("text", ["a", "a\rb", "\r", "a\nb", "a\r\nb", 'say "a", b', ""])
def test_a_table_has_every_text_as_it_is(text, toy_vocab):
    form, items = Formatter("csv", toy_vocab), [Item(i, Input(["x"]), []) for i in range(2)]
    lines = form.lines(items, [[Output(text, NOTHING)] * 2, []])
    rows = [*csv.reader("".join(f"{line}\n" for line in lines).splitlines(keepends=True))]
    assert rows == [["id", "output", "score"], *[["0", text, "-1.500000"]] * 2, ["1", "", ""]]


def test_numbers_are_read_again_to_the_last_bit():
    bits = np.random.default_rng(0).integers(0, 1 << 32, (50, 40), np.uint32)
    table = np.nan_to_num(bits.view(np.float32))
    text = json.dumps(list_numbers(table))
    assert (np.float32(json.loads(text)) == table).all()
    assert list_numbers(np.float32([0.1, 3])) == [0.1, 3.0]  # and no digit more
