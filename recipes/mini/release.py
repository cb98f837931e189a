"""A run -> a model that comes with unitk: its best weights in bf16, vocabulary and card, no more.

    python3 release.py runs/base/more unitk-base-en --task glm_infill
    python3 release.py runs/base-questions/finetune unitk-base-en-questions --task glm_infill

An adapter of a model that comes with unitk is released without that model.
The card is NAME.md of this folder, in which {about} becomes size and length of the training and
{curve} the losses over it. If there is a NAME.yaml, the model brings its options of decoding.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import torch

from unitk import pretrained
from unitk.decoding.files.defaults import NAME
from unitk.files import new_folder, seal, sealed_files
from unitk.training.saving.folder import find_checkpoint
from unitk.training.saving.state import read_state
from unitk.training.saving.weights import EMA, WEIGHTS, load_tensors, save_tensors
from unitk.vocab.base import Vocab

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
from shared import markdown_table, read_stage_events  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("name", help="what the model is called")
    parser.add_argument("--task", help="of several tasks the one that it decodes as by default")
    parser.add_argument("--dest", type=Path, default=pretrained.FOLDER)
    args = parser.parse_args()
    checkpoint = find_checkpoint(args.run)
    weights = best(checkpoint)
    state = read_state(checkpoint) | {"optimizer": {}, "default_task": args.task}
    # where it was trained is no matter
    config, paths = state["config"], ("data", "valid", "save_dir", "init_from")
    config |= {key: Path(config[key]).name for key in paths if config.get(key)}
    state.pop("averaged", None)
    with new_folder(args.dest / args.name, "--dest", replace=True) as folder:
        half = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
        save_tensors(half, folder / WEIGHTS)
        (folder / "state.json").write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        Vocab.load(checkpoint / "vocab").save(folder / "vocab")
        card = (HERE / f"{args.name}.md").read_text(encoding="utf-8")
        size = sum(tensor.numel() for tensor in weights.values())
        card = card.replace("{about}", about(state, size))
        if "{curve}" in card:  # a mean of runs has none
            card = card.replace("{curve}", curve(args.run))
        (folder / "README.md").write_text(card, encoding="utf-8")
        seal(folder)
        if (meant := HERE / f"{args.name}.yaml").exists():
            shutil.copy(meant, folder / NAME)
    total = sum(path.stat().st_size for path in (args.dest / args.name).rglob("*.*"))
    print(f"{args.dest / args.name}: {total / 1e6:.1f} MB")


def best(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Its weights, or their average if it has one."""
    averages = load_tensors(checkpoint / EMA) if EMA in sealed_files(checkpoint) else {}
    return load_tensors(checkpoint / WEIGHTS) | averages


def about(state: dict, size: int) -> str:
    """What is known of the training, in one line."""
    done = f"{state['step']:,} updates, {state['tokens'] / 1e6:.1f} M tokens"
    seed, arch = (state["config"][key] for key in ("seed", "arch"))
    what = f"An adapter for {state['base']['model']}" if "base" in state else arch
    time = f"{state['seconds'] / 60:.0f} minutes"
    return f"{what}, {size / 1e6:.1f} M parameters; {done}, {time}, seed {seed}"


def curve(run: Path) -> str:
    """A table of about ten validations, the last one among them."""
    validations = read_stage_events(run, "valid")
    some = validations[:: -max(1, len(validations) // 10)][::-1]
    losses = [key for key in some[-1] if key.endswith("/loss")]
    rows = [[f"{event['step']:,}", *(f"{event[key]:.3f}" for key in losses)] for event in some]
    return markdown_table(["update", *losses], rows)


if __name__ == "__main__":
    main()
