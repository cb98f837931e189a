"""fairseq on the data-bin of run.sh, with its settings.

Trains with so many pairs an update, averages the last ten checkpoints, decodes with beam 5, and
writes written.txt and fairseq.json (validation perplexity, updates, minutes) into RUN/fairseq-SEED.
Needs fairseq alone, which `make fairseq` installs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import torch

MODEL = (
    "--task translation --arch transformer --source-lang en --target-lang de --share-all-embeddings"
    " --encoder-layers 4 --decoder-layers 4 --encoder-embed-dim 128 --decoder-embed-dim 128"
    " --encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 4"
    " --decoder-attention-heads 4 --encoder-learned-pos --decoder-learned-pos"
    " --layernorm-embedding --activation-fn gelu --dropout 0.3"
)
TRAINING = (
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam"
    " --adam-betas (0.9,0.98) --adam-eps 1e-8 --clip-norm 1 --lr 5e-3 --lr-scheduler inverse_sqrt"
    " --warmup-updates 2000 --required-batch-size-multiple 1 --num-workers 0 --cpu"
    " --no-epoch-checkpoints --keep-interval-updates 10 --log-format json --log-interval 100"
)
UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def fairseq(verb, *words):
    """Run one of fairseq's programs; what it prints."""
    command = [sys.executable, "-m", f"fairseq_cli.{verb}", *map(str, words)]
    # torch 2.6 and later refuse to open fairseq's checkpoints otherwise
    environment = os.environ | {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"fairseq_cli.{verb} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout + done.stderr


def average(folder):
    """The mean of the checkpoints of a folder, beside them."""
    paths = [path for path in folder.glob("*.pt") if UPDATE.fullmatch(path.name)]
    checkpoints = [torch.load(path, map_location="cpu", weights_only=False) for path in paths]
    first = checkpoints[0]
    for name, tensor in first["model"].items():
        if tensor.is_floating_point():
            first["model"][name] = torch.stack(
                [checkpoint["model"][name] for checkpoint in checkpoints]
            ).mean(0)
    torch.save(first, folder / "mean.pt")
    return folder / "mean.pt", len(checkpoints)


def main(run, seed, updates, pairs, save_every):
    data, folder = run / "data-bin", run / f"fairseq-{seed}"
    lengths = ["--max-update", updates, "--batch-size", pairs, "--seed", seed]
    saving = ["--save-interval-updates", save_every, "--save-dir", folder / "train"]
    began = time.perf_counter()
    printed = fairseq("train", data, *MODEL.split(), *TRAINING.split(), *lengths, *saving)
    minutes = (time.perf_counter() - began) / 60
    perplexities = re.findall(r'"valid_ppl": "([\d.]+)"', printed)
    mean, count = average(folder / "train")
    decoding = "--gen-subset test --beam 5 --remove-bpe sentencepiece --cpu --batch-size 64"
    decoding += " --required-batch-size-multiple 1"  # else the last batch may be left out
    printed = fairseq("generate", data, "--path", mean, *decoding.split(), "--num-workers", 0)
    lines = dict(re.findall(r"^H-(\d+)\t[^\t]*\t(.*)$", printed, re.M))
    texts = [lines[str(number)] + "\n" for number in range(len(lines))]
    (folder / "written.txt").write_text("".join(texts), encoding="utf-8")
    about = {"perplexity": float(perplexities[-1]), "updates": updates, "minutes": minutes}
    (folder / "fairseq.json").write_text(json.dumps({**about, "averaged": count}) + "\n")
    print(f"{folder}: validation perplexity {perplexities[-1]}, {len(texts):,} sentences")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", metavar="RUN", type=Path)
    for name in ("seed", "updates", "pairs", "save_every"):
        parser.add_argument(name, metavar=name.upper(), type=int)
    main(**vars(parser.parse_args()))
