"""`unitk predict`: options that have no effect together."""

import pytest

from unitk.errors import UsageError
from unitk_cli import predict


def test_probabilities_need_an_object_to_stand_in():
    with pytest.raises(UsageError, match="--probabilities has no effect with --output-format text"):
        predict.run(["--checkpoint", "x", "a", "--output-format", "text", "--probabilities"])
