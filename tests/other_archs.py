"""Tasks with modern architectures, which the property tests try beside the published ones."""

from paper_archs import arch_of
from torch import nn

from unitk import registry


def fits(task: str, arch: str) -> bool:
    """Whether a task can be trained with an architecture: it has the towers of the task's own."""
    cls, other = registry.get("task", task), registry.get("arch", arch)()
    own = registry.get("arch", arch_of(cls))()
    # without a generator, ELECTRA's criterion has nothing to tell apart
    alone = own.latent or task == "electra"
    return own.towers == other.towers and not alone


OTHERS = ("gemma3_tiny", "modernbert_tiny", "pythia_tiny")
"""Released models, which together have: windows, grouped heads, a base of rotary positions for
each layer or for some channels, norms after parts or none before the first, parallel parts."""
PAIRS = [
    f"{task} {arch}"
    for task in registry.names("task")
    for arch in ("modern_tiny", *OTHERS, "modern_encdec_tiny", "t5gemma_tiny")
    if fits(task, arch)
]


def without_zeros(model: nn.Module) -> nn.Module:
    """The model with random numbers in the parameters that start at zero, as after training."""
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=model.decoder.config.init_std)
    return model
