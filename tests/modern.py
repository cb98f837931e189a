"""Tasks with the stacks of today, which every property over the registry tries beside their own."""

from paper_archs import arch_of
from torch import nn

from unitk import registry


def fits(task: str, arch: str) -> bool:
    """Whether an architecture has the towers of a task's own, and is of the same kind."""
    cls, other = registry.get("task", task), registry.get("arch", arch)()
    own = registry.get("arch", arch_of(cls))()
    # without a generator, ELECTRA's criterion has nothing to tell apart
    alone = own.latent or task == "electra"
    return own.towers == other.towers and not alone


OTHERS = ("gemma3_tiny", "modernbert_tiny", "pythia_tiny")
"""Released models, which have between them: windows, grouped heads, a base of rotary positions for
each layer or for some channels, norms after parts or none before the first, parallel parts."""
PAIRS = [
    f"{task} {arch}"
    for task in registry.names("task")
    for arch in ("modern_tiny", *OTHERS, "modern_encdec_tiny", "t5gemma_tiny")
    if fits(task, arch)
]


def begun(model: nn.Module) -> nn.Module:
    """The model with numbers where it starts with zeros, as after some training."""
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=model.decoder.config.init_std)
    return model
