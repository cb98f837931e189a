import json

import numpy as np

from unitk.decoding.files.outputs import list_numbers


def test_numbers_are_read_again_to_the_last_bit():
    bits = np.random.default_rng(0).integers(0, 1 << 32, (50, 40), np.uint32)
    table = np.nan_to_num(bits.view(np.float32))
    text = json.dumps(list_numbers(table))
    assert (np.float32(json.loads(text)) == table).all()
    assert list_numbers(np.float32([0.1, 3])) == [0.1, 3.0]  # and no digit more
