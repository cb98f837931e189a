"""`unitk show`: the table and mask of a docstring, pictures, mistakes."""

import pytest

from unitk.errors import UsageError
from unitk_cli.show import run


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


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_pictures(tmp_path, capsys, suffix, begins):
    path = tmp_path / f"mask{suffix}"
    run(["--task", "glm_infill", "--output", str(path), " ".join("abcdefghijklm")])
    assert path.read_bytes().startswith(begins) and str(path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "glm_infill"], "a text is needed"),
        (["--task", "glm_infill", "a", "--output", "x.jpeg"], "--output must end in .png"),
        (["a b"], "--task is needed"),
    ],
)
def test_mistakes(argv, message):
    with pytest.raises(UsageError, match=message):
        run(argv)
