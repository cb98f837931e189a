"""What cannot be meant is refused before, or as, a model is opened."""

import pytest

import unitk
from unitk.errors import UsageError
from unitk.training.device import choose_device

MINI = "unitk-base-en"


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: unitk.load([]), "a list of models is empty"),
        *((lambda bad=bad: unitk.load(bad), "--checkpoint .*got") for bad in (None, 3, b"a", [3])),
        (lambda: unitk.load(MINI, options={3: 1}), "3"),
        (
            lambda: unitk.load(MINI, format="hff"),
            "--format: there is no format 'hff'; did you mean",
        ),
        (lambda: unitk.load(MINI, "gpu"), "--device must be auto, cpu, .* got 'gpu'"),
        (lambda: unitk.load_module(MINI, "gpu"), "--device must be .* got 'gpu'"),
        (lambda: unitk.load(MINI, vocab="x"), "--vocab has no effect without --format"),
        (lambda: unitk.load_module(MINI, vocab="x"), "--vocab has no effect without --format"),
        (lambda: unitk.load(MINI, precision="fp8"), "--precision must be one of fp32, bf16, .*fp8"),
        (lambda: unitk.load_module(MINI, dtype="fp8"), "--dtype must be one of fp32, fp64, got"),
        (lambda: unitk.load(MINI, options={"beam": 3}), "options are task.* and arch.*"),
    ],
)
def test_what_cannot_be_loaded(load, message):
    with pytest.raises(UsageError, match=message):
        load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beem": 2}, "^--beem: no such option; did you mean --beam"),
        ({"num_beams": 2}, "^--num-beams: .*--num-beams is --beam here$"),
        ({"beam": "x"}, "beam must be a whole number, got 'x'"),
        ({"beam": {2}}, "beam cannot be .2.: no option takes a set"),
        ({"search": "best"}, "search must be one of likely, .*, got 'best'"),
        ({"sampling": 2}, "sampling must be on or off, got '2'"),
    ],
)
def test_options_have_the_types_of_the_command_line(options, message):
    model = unitk.load(MINI)
    with pytest.raises(UsageError, match=message):
        model.generate(["a"], **options)
    with pytest.raises(UsageError, match="pool must be.*none, latent"):
        model.embed(["a"], pool="max")


def test_auto_is_the_device_that_the_command_line_takes():
    device = next(unitk.load(MINI, "auto").model.parameters()).device
    assert device == choose_device("auto")


def test_cuda_is_refused_where_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UsageError, match="--device cuda: PyTorch finds no CUDA GPU"):
        unitk.load(MINI, "cuda:1")
