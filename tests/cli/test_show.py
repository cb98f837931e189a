"""`unitk show`: the table and mask of a docstring, pictures, mistakes."""

import pytest

from unitk.errors import UsageError
from unitk.verbs.show import run


def test_the_table_and_the_mask_agree(capsys):
    run(["--task", "glm_infill", "--task.mask-ratio", "0.3", "--seed", "4", "a b c d e f g h"])
    table, mask, *_ = capsys.readouterr().out.split("\n\n")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    assert set(rows) == {"token", "pos", "pos2", "at", "label"}
    letters = {name for name in rows["token"] + rows["label"] if name.isalpha()}
    assert letters == set("abcdefgh"), "visible words and labels are the text"
    times = [int(t) for t in rows["at"]]
    body = [line.rsplit(" ", len(times))[1:] for line in mask.splitlines()[-len(times) :]]
    for row, now in zip(body, times, strict=True):
        assert [look == "█" for look in row] == [born <= now for born in times]


def test_the_finetuning_layout_needs_a_target(capsys):
    run(["--task", "glm_infill", "--target", "x y", "a b"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[:5]]
    assert rows[0] == ["token", "[CLS]", "[MASK]", "a", "b", "[SEP]", "[S]", "x", "y"]
    assert rows[4] == ["label", *".....", "x", "y", "[E]"]


@pytest.mark.parametrize(
    ("words", "token", "label"),
    [
        (["classify", "a b", "c"], "[CLS] a b [SEP] c [SEP]", "class . . . . ."),
        (["regress", "a"], "[CLS] a [SEP]", "regress . ."),
        (["tag", "a b", "c"], "[CLS] a b c [SEP]", ". tag tag tag ."),
        (["span", "a", "b"], "[CLS] a [SEP] b [SEP]", "span span span span span"),
        (["choice", "a", "b", "b"], "[CLS] a [SEP] b [SEP] " * 2, "choice . . . . " * 2),
        (["classify", "--task.layout", "lm", "a"], "[CLS] a [SEP]", "a [SEP] class"),
    ],
)
def test_what_is_read_to_understand_a_text(capsys, words, token, label):
    run(["--task", *words])
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[:5] if line)
    assert (rows["token"].split(), rows["label"].split()) == (token.split(), label.split())


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".html", b"<!doctype html>")]
)
def test_pictures_are_drawn(tmp_path, capsys, suffix, begins):
    path = tmp_path / f"mask{suffix}"
    run(["--task", "glm_infill", "--output", str(path), " ".join("abcdefghijklm")])
    assert path.read_bytes().startswith(begins) and str(path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "glm_infill"], "a text is needed"),
        (["--task", "glm_infill", __file__], "test_show.py' is a file .*the text itself"),
        (["--task", "glm_infill", "a", "--output", "x.jpeg"], "--output must end in .png"),
        (["a b"], "--task is needed"),
        (["--task", "tag", "--target", "a", "b"], "--target has no effect with --task tag"),
    ],
)
def test_mistakes_are_refused(argv, message):
    with pytest.raises(UsageError, match=message):
        run(argv)


def test_slots_by_position_are_the_same_slots(capsys):
    words = ["--task", "pmlm", "--seed", "1", "a b c d e f g h"]
    run(words)
    memory = capsys.readouterr().out
    run([*words, "--order", "pos"])
    by_pos = capsys.readouterr().out
    columns = []
    for text in (memory, by_pos):
        rows = [line.split()[1:] for line in text.split("\n\n")[0].splitlines()]
        columns.append(sorted(zip(*rows, strict=True)))
    assert columns[0] == columns[1] and "[P]" in by_pos
    places = [int(p) for p in by_pos.splitlines()[1].split()[1:]]
    assert places == sorted(places)


def test_two_towers_are_two_tables(capsys):
    run(["--task", "mass", "--seed", "3", "--task.mask-keep-random", "1,0,0", "a b c d e f"])
    enc, dec = capsys.readouterr().out.split("dec:\n")
    assert enc.startswith("enc:\n") and "cross" in enc and "cross" not in dec
    rows = {line.split()[0]: line.split()[1:] for line in enc.split("\n\n")[0].splitlines()[1:]}
    hidden = [token == "[MASK]" for token in rows["token"]]
    assert [cross == "0" for cross in rows["cross"]] == hidden


def test_labels_and_one_task_at_a_time(capsys):
    run(["--task", "lm", "--target", "c", "a b"])
    assert "[SEP]" in capsys.readouterr().out.splitlines()[3]
    with pytest.raises(UsageError, match="one task.*time"):
        run(["--task", "mlm=1", "--task", "unilm=1", "a b"])
