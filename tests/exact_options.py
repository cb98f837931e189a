"""Options with which a run is repeated bit for bit on the device that `--device auto` finds."""

import torch

DETERMINISTIC = "--deterministic on" if torch.cuda.is_available() else ""
EXACT = DETERMINISTIC or "--products torch"
