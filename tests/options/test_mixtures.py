"""`--task A=0.5 --task B=0.5`: parsed, written and read back; every mistake is one clear line."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from unitk.errors import UsageError
from unitk.options.config import parse, resolve

KINDS = ("task", "arch", "criterion", "optimizer")
MIXED = ["--task", "mlm=0.7", "--task", "unilm=linear:value=0.3,floor=0.1", "--arch", "unilm_tiny"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """A verb of the tests."""

    config: Path | None = None


def read(*argv):
    return parse("test", Options, argv, kinds=KINDS)


def test_tasks_are_mixed_by_their_shares():
    parsed = read(*MIXED, "--task.mlm.mask-ratio", "0.2", "--task.unilm.nsp", "off")
    assert list(parsed.mixture) == ["mlm", "unilm"]
    mlm, unilm = parsed.mixture.values()
    assert (mlm.config.mask_ratio, unilm.config.mask_ratio, unilm.config.nsp) == (0.2, 0.15, False)
    assert mlm.share(3, 10) == 0.7 and unilm.share(10, 10) == pytest.approx(0.03)
    assert parsed.components["task"] is mlm and parsed.settings["task"].where == "--task"
    assert parsed.settings["task.mlm.mask_ratio"].where == "--task.mlm.mask-ratio"
    assert not read("--task", "mlm").mixture


def test_values_and_yaml_read_back(tmp_path):
    parsed = read(*MIXED, "--task.mlm.mask-ratio", "0.2")
    again = resolve(Options, parsed.settings, KINDS)
    assert again.settings.texts == parsed.settings.texts and again.mixture == parsed.mixture
    path = tmp_path / "config.yaml"
    path.write_text(parsed.settings.yaml())
    assert read("--config", str(path)).mixture == parsed.mixture
    path.write_text("task: [mlm=0.7, unilm=0.3]\ntask.unilm.nsp: off\narch: unilm_tiny\n")
    listed = read("--config", str(path))
    assert list(listed.mixture) == ["mlm", "unilm"] and not listed.mixture["unilm"].config.nsp


def test_flags_name_other_tasks_than_the_file(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text("task: [mlm=0.7, unilm=0.3]\ntask.unilm.nsp: off\narch: unilm_tiny\n")
    parsed = read("--config", str(path), "--task", "mlm", "--task.mask-ratio", "0.3")
    assert not parsed.mixture and parsed.components["task"].config.mask_ratio == 0.3
    assert "--task mlm drops task.unilm.nsp" in capsys.readouterr().err


def test_help_needs_no_arch_that_the_mixed_tasks_share(capsys):
    with pytest.raises(SystemExit):
        parse("test", Options, "--task mlm=1 --task lm=1 --help".split(), kinds=KINDS)
    page = capsys.readouterr().out
    assert "--task.mlm.mask-ratio " in page and "--task.lm.opening " in page


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--task", "mlm=0.5"], "--task mlm=0.5: tasks are mixed as --task A=0.5 --task B=0.5"),
        (["--task", "mlm=0.5", "--task", "lm"], "--task lm: tasks are mixed as"),
        (["--task", "mlm=0.5", "--task", "mlm=0.5"], "--task mlm=0.5: tasks are mixed as"),
        (["--task", "mlm=0.5", "--task", "lmm=0.5"], "there is no task 'lmm'; did you mean lm"),
        (["--task", "mlm=x", "--task", "lm=0.5"], "--task mlm: there is no schedule 'x'"),
        (["--task", "mlm", "--task", "lm"], "--task is given twice"),
        (
            ["--task", "spanbert=1", "--task", "lm=1"],
            r"--arch .*\(spanbert: spanbert_small, lm: qwen3_mini\)",
        ),
        (
            [*MIXED, "--task.mask-ratio", "0.2"],
            "--task.mask-ratio: tasks are mixed, write --task.mlm.mask-ratio or"
            " --task.unilm.mask-ratio",
        ),
        ([*MIXED, "--task.shares", "1,1,1,1"], "tasks are mixed, write --task.unilm.shares"),
        ([*MIXED, "--task.mlm.mask-ratio", "7"], r"--task.mlm.mask-ratio must be in \(0, 1\]"),
        ([*MIXED, "--task.mlm.mask-ratio", "x"], "--task.mlm.mask-ratio: there is no schedule 'x'"),
        (
            [*"--task glm_infill=0.5 --task lm=0.5".split(), "--task.glm_infill.mixture", "[0.5"],
            r"--task.glm_infill.mixture must be 3 values \(number,number,number\), got '\[0.5'",
        ),
        ([*MIXED, "--task.mlm.mask-rati", "1"], "did you mean --task.mlm.mask-ratio"),
        (["--task", "mlm", "--task.mlm.mask-ratio", "0.2"], "did you mean --task.mask-ratio"),
    ],
)
def test_mistakes_are_refused(argv, message):
    with pytest.raises(UsageError, match=message):
        read(*argv)


def test_help_has_the_options_of_every_task(capsys):
    with pytest.raises(SystemExit):
        read(*MIXED, "--help")
    page = capsys.readouterr().out
    assert "--task.mlm.whole-words" in page and "--task.unilm.shares" in page
