"""What a language model makes of a prompt: it continues a text, and answers after pairs."""

import pytest

import unitk
from unitk.verbs import preprocess, train

NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
SETTINGS = "--task lm --arch gpt2_tiny --lr 3e-3 --max-tokens 512 --precision fp32 --device cpu"


@pytest.mark.slow
def test_pretrained_models_continue_and_fine_tuned_ones_answer(tmp_path):
    texts = [" ".join(NUMBERS[i:]) for i in range(6)] * 20
    (tmp_path / "text").write_text("".join(f"{text}\n\n" for text in texts))
    (tmp_path / "source").write_text("".join(f"{word}\n" for word in NUMBERS * 20))
    (tmp_path / "target").write_text("".join(f"{word}\n" for word in NUMBERS[::-1] * 20))
    text, pairs = tmp_path / "a", tmp_path / "b"
    made = f"--input {tmp_path / 'text'} --dest {text} --vocab-size 33"
    preprocess.run(made.split())
    sides = f"--source-file {tmp_path / 'source'} --target-file {tmp_path / 'target'}"
    preprocess.run(f"{sides} --vocab {text} --dest {pairs}".split())
    first, second = tmp_path / "lm", tmp_path / "qa"
    train.run(f"{SETTINGS} --data {text} --max-steps 150 --save-dir {first}".split())
    train.run(
        f"{SETTINGS} --data {pairs} --init-from {first} --max-steps 150 --save-dir {second}".split()
    )
    [[found]] = unitk.load(first).generate(["two three four"], beam=1, max_len=40)
    assert found.text == " ".join(NUMBERS[4:])
    answers = unitk.load(second).generate(NUMBERS, beam=1)
    assert [best.text for [best] in answers] == NUMBERS[::-1]
