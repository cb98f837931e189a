"""Export encoders that transformers has a class for to ONNX, pre-trained or fine-tuned."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from unitk import registry
from unitk.errors import UsageError, require
from unitk.files import create
from unitk.formats.base import Format
from unitk.formats.exported import hf_folder
from unitk.formats.hf.families import MODEL_TYPE
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded

BATCH, SLOTS = 2, 5  # of the example that is traced


class Outputs(nn.Module):
    """A model of transformers as a function from tensors to tensors, which can be traced."""

    def __init__(self, model: nn.Module, names: list[str], outputs: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.outputs = outputs

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model(**dict(zip(self.names, inputs, strict=True)))
        return tuple(outputs[name] for name in self.outputs)


def write(parts: Loaded, folder: Path) -> None:
    """Write model.onnx and the tokenizer into an empty folder.

    The inputs are input_ids, attention_mask and, if the model has segments, token_type_ids, all of
    shape [batch, slots] and int64. The outputs are those of the model's class in transformers, but
    for those of a pooler that the model lacks.
    """
    with hf_folder(parts, folder, "onnx", check_encoder) as (source, config):
        [name] = config["architectures"]
        import transformers

        require(
            hasattr(transformers, name),
            f"--to onnx: transformers itself has no {name}, whose code is the release's",
        )
        model, about = getattr(transformers, name).from_pretrained(source, output_loading_info=True)
        model.eval()
        inputs = ["input_ids", "attention_mask"]
        if parts.model.config.num_segments > 1:
            inputs.append("token_type_ids")
        example = tuple(torch.ones(BATCH, SLOTS, dtype=torch.int64) for _ in inputs)
        with torch.no_grad():
            shapes = _shapes(model, inputs, SLOTS)
            longer = _shapes(model, inputs, SLOTS + 1)
        if any("pooler." in key for key in about["missing_keys"]):  # drawn at random there
            del shapes["pooler_output"]
        axes = {name: {0: "batch", 1: "slots"} for name in inputs}
        for output, shape in shapes.items():
            axes[output] = {0: "batch"} if shape == longer[output] else {0: "batch", 1: "slots"}
        torch.onnx.export(
            Outputs(model, inputs, list(shapes)),
            example,
            str(create(folder / "model.onnx")),
            input_names=inputs,
            output_names=list(shapes),
            dynamic_axes=axes,
            dynamo=False,  # the other exporter needs onnxscript
        )


def check_encoder(kind: str, head: str) -> None:
    """Raise a `UsageError` for a family, or a kind of head, that is not exported."""
    model = f"a {kind} model" + (f" with a head of kind {head}" if head else "")
    if registry.get(MODEL_TYPE, kind).task != "mlm" or head == "choice":
        raise UsageError(f"--to onnx takes encoders of one text or two, not {model}")


def _shapes(model: nn.Module, inputs: list[str], slots: int) -> dict[str, torch.Size]:
    """The names and shapes of a model's outputs for `slots` input slots."""
    example = {name: torch.ones(BATCH, slots, dtype=torch.int64) for name in inputs}
    return {name: output.shape for name, output in model(**example).items()}


register("format", "onnx")(Format(about="ONNX: encoders.", write=write))
