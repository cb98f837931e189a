"""recipes/adapt runs from a text to its table."""

import pytest

from .test_recipes import recipe


@pytest.mark.slow
def test_every_objective_has_its_row(tmp_path):
    out = recipe("adapt", tmp_path, RUN=str(tmp_path / "run"), LM="2", STEPS="2")
    for name in ("mlm", "mdlm", "bd3lm", "glm_infill", "ul2", "unilm"):
        assert f"| `{name}` |" in out
