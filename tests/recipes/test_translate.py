"""recipes/translate: pieces that become the texts again, and the whole at a tiny size."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece

from .test_recipes import SCRIPTS, recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "translate"
PAIRS = [("Ein Hund läuft.", "A dog  runs."), ("Zwei Hunde laufen!", "Two dogs run!")] * 20


def prepared(folder, files):
    command = [sys.executable, str(RECIPE / "prepare.py"), "--langs", "de", "en", "--pieces", "60"]
    command += ["--dest", str(folder / "text")]
    for split, paths in files.items():
        command += [f"--{split}", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, env=SCRIPTS)


def test_pieces_are_the_lower_cased_lines(tmp_path):
    paths = [tmp_path / "a.de.gz", tmp_path / "a.en"]
    with gzip.open(paths[0], "wt", encoding="utf-8") as file:
        file.write("".join(f"{one}\n" for one, _ in PAIRS))
    paths[1].write_text("".join(f"{other}\n" for _, other in PAIRS))
    done = prepared(tmp_path, dict.fromkeys(("train", "valid", "test"), paths))
    assert done.returncode == 0, done.stderr
    text = tmp_path / "text"
    bpe = sentencepiece.SentencePieceProcessor(model_file=str(text / "bpe.model"))
    for side, lang in enumerate(("de", "en")):
        wanted = [" ".join(pair[side].lower().split()) for pair in PAIRS]
        assert (text / f"plain.{lang}").read_text(encoding="utf-8").splitlines() == wanted
        for split in ("train", "valid", "test"):
            lines = (text / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()
            assert [bpe.decode(line.split()) for line in lines] == wanted
    assert bpe.vocab_size() <= 60

    paths[1].write_text("one\n")
    done = prepared(tmp_path, dict.fromkeys(("train", "valid", "test"), paths))
    assert done.returncode == 2 and "--train: 40 sources, 1 targets" in done.stderr


@pytest.mark.slow
def test_letters_are_translated_and_a_second_seed_is_added(tmp_path):
    env = {"RUN": "run", "STEPS": "12", "SAVE_EVERY": "1", "OMP_NUM_THREADS": "1"}
    recipe("translate", tmp_path, **env)
    run = tmp_path / "run"
    # the average of the last ten of twelve
    steps = [int(path.name.split("-")[1]) for path in (run / "unitk-1/train/checkpoints").iterdir()]
    assert sorted(steps)[-10:] == [*range(3, 13)]
    first = (run / "unitk-1" / "written.txt").read_text()
    assert len(first.splitlines()) == len((run / "text" / "plain.de").read_text().splitlines())
    assert not set(first) - set("abcdefghijklmnopqrst \n")  # pieces are put together
    assert (run / "table.md").read_text().count("| unitk |") == 1

    # stopped before it translated; a system beside it, and another seed
    shutil.rmtree(tmp_path / "bin")
    for name in (".written", "bleu.json"):
        (run / "unitk-1" / name).unlink()
    other = run / "fairseq-1"
    other.mkdir()
    (other / "bleu.json").write_text(json.dumps({"bleu": {"bleu": 4.0}}))
    (other / "fairseq.json").write_text('{"perplexity": 2.5, "updates": 12, "minutes": 3.0}')
    printed = recipe("translate", tmp_path, SEEDS="1 2", **env)
    assert (run / "unitk-1" / "written.txt").read_text() == first
    assert "| fairseq | 4.00 | 4.00 | 2.50 | 12 | 3 |" in printed
    [row] = [line for line in printed.splitlines() if line.startswith("| unitk |")]
    mean, each = (cell.strip() for cell in row.split("|")[2:4])
    both = [float(one) for one in each.split(", ")]
    assert len(both) == 2 and float(mean) == pytest.approx(sum(both) / 2, abs=0.01)
