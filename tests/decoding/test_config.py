"""Options of decoding that contradict each other are refused."""

import pytest

from unitk.decoding.config import GenerateConfig
from unitk.errors import UsageError
from unitk.options.config import parse


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--beam 2 --nbest 3", "--nbest must be at most --beam 2, got 3"),
        ("--min-len 9 --max-len 8", "--min-len must be at most --max-len 8, got 9"),
        (
            "--max-len ten",
            "--max-len must be a number of at most 9 digits, or a formula .* 1.2x\\+10, got ten",
        ),
        ("--max-len 1000000000", "at most 9 digits, or a formula .*, got 1000000000"),
        ("--max-len 2x-3", "--max-len must be a number of at most 9 digits"),
        ("--no-repeat-ngram-ignore .", "--no-repeat-ngram-ignore must be left out without"),
        ("--sampling --search glm", "--search must be left out with --sampling, got glm"),
        (
            "--beam 1 --search exact",
            "--search must be another one with --beam 1 or groups of 1, got exact",
        ),
        ("--diverse-beam-groups 2", "--diverse-beam-groups must be a divisor of --beam 5, got 2"),
        ("--beam 4 --diverse-beam-groups 4 --search exact", "with --beam 1 or groups of 1"),
        ("--sampling --diverse-beam-groups 5", "--diverse-beam-groups must be 1 with --sampling"),
        ("--search bfs", "--search must be one of likely, exact, fairseq, glm, unilm, got 'bfs'"),
    ],
)
def test_what_cannot_be_meant(line, message):
    with pytest.raises(UsageError, match=message):
        parse("generate", GenerateConfig, line.split())
