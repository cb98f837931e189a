"""A run with a teacher: what it logs and validates, how it goes on, what is refused."""

import pytest

from unitk.errors import CheckpointError, UsageError

LM = "--task lm --arch gpt2_tiny --lr 1e-2 --lr-schedule constant"


@pytest.fixture
def teacher(train, tmp_path):
    train(f"{LM} --max-steps 16", run="teacher")
    return tmp_path / "teacher"


@pytest.mark.slow
def test_a_student_comes_nearer_to_its_teacher_and_goes_on(train, teacher, curve):
    words = f"{LM} --arch.width 32 --arch.num-heads 2 --arch.ffn-width 64 --criterion distill"
    words += f" --criterion.teacher {teacher} --criterion.states-weight 0.1"
    words += " --arch.heads project:states:64 --arch.dropout 0"
    train(f"{words} --max-steps 12", run="student")
    distance = [value for _, value in curve("student", "train/lm/teacher")]
    assert distance[-1] < 0.8 * distance[0]
    train(f"{words} --max-steps 6", run="parts")
    train(f"{words} --max-steps 12 --resume", run="parts")
    assert curve("parts") == curve("student")


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--task mass --arch mass_tiny", "has an encoder and a decoder"),
        (f"{LM} --arch.num-segments 3", "--arch.num-segments"),
        (f"{LM} --arch.max-positions 2048", "--arch.max-positions 1024"),
    ],
)
def test_a_teacher_of_another_kind_is_named(train, teacher, words, message, tmp_path):
    with pytest.raises(UsageError, match=rf"--criterion\.teacher {teacher} .*{message}"):
        train(f"{words} --max-steps 1 --criterion distill --criterion.teacher {teacher}")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--criterion.states-weight 1", "add --arch.heads project:states:64"),
        ("--criterion.attention-weight 1", "--criterion.attention-weight.* 2 heads.* 4"),
        ("--criterion.states-weight 1 --criterion.layers 1=9", "the teacher 2"),
    ],
)
def test_what_cannot_be_compared_is_refused_without_a_folder(
    train, teacher, words, message, tmp_path
):
    student = f"{LM} --arch.width 32 --arch.num-heads 2 --arch.ffn-width 64 --max-steps 1"
    with pytest.raises(UsageError, match=message):
        train(f"{student} --criterion distill --criterion.teacher {teacher} {words}")
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_is_not_there_is_named(train, tmp_path):
    words = f"{LM} --max-steps 1 --criterion distill --criterion.teacher {tmp_path / 'none'}"
    with pytest.raises(CheckpointError, match="none"):
        train(words)
