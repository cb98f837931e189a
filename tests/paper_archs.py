"""The small models of the papers, which golden losses and properties are of.

New models have another stack by default, which `other_archs.py` adds to what is tried.
"""

from unitk import registry

SMALL = {
    "adaptive_mlm": "bert_small",
    "bart": "bart_small",
    "bd3lm": "mdlm_small",
    "glm_infill": "glm_small",
    "lm": "gpt2_mini",
    "mass": "mass_small",
    "mdlm": "mdlm_small",
    "mlm": "bert_small",
    "pmlm": "unilm2_small",
    "seq2seq": "bart_small",
    "t5": "t5_mini",
    "ul2": "t5_mini",
    "unilm": "unilm_small",
}


def arch_of(task):
    """The published architecture of a task, by its name or class; its own where it has one."""
    cls = registry.get("task", task) if isinstance(task, str) else task
    own = cls.component("arch", cls.Config()) if cls.predicts else cls.arch
    # what reads texts to understand them is laid out as mlm
    return SMALL.get("mlm" if own == "qwen3_mini" and cls.predicts else _name(cls), own)


def _name(cls):
    return next((n for n in registry.names("task") if registry.get("task", n) is cls), "")
