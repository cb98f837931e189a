"""Options that differ from those of the checkpoint that a run begins with or goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unitk.data.examples import Data
from unitk.data.limits import pair_of
from unitk.errors import UsageError, require
from unitk.files import sealed_files
from unitk.models.config import UNSHAPED
from unitk.options.config import Parsed, flag
from unitk.options.settings import Origin, Setting, Settings
from unitk.training.config import COMPONENTS, CUT, FROZEN
from unitk.training.saving.state import Progress, recorded_options

OF_THE_COMMAND = ("config", "resume", "new_data", "save_dir", "dry_run")
"""Options that say where a run is and that it continues, not how it is trained."""


def options_of_same_tasks(checkpoint_settings: Settings, tasks: Mapping[str, str]) -> Settings:
    """The options that a checkpoint has for the run's task or tasks, under this run's keys."""
    trained = checkpoint_settings.tasks()
    settings: dict[str, Setting] = {}
    for name, part in tasks.items():
        if name in trained:
            options = checkpoint_settings.of(trained[name])
            settings |= {f"{part}.{key}": setting for key, setting in options.items()}
    return Settings(settings)


def differences(parsed: Parsed, trained: Settings, checkpoint: Path, tower: str = "x") -> list[str]:
    """The options that were given and differ from the checkpoint that the weights come from."""
    arch = parsed.components["arch"]
    texts = list[str]()
    component = replace(arch, config=arch.config.tower(tower))
    unshaped = (key for name in UNSHAPED if (key := f"arch.{name}") in trained)
    recorded = Settings({key: trained[key] for key in unshaped})
    if tower == "x":
        recorded = recorded.under(options_of_same_tasks(trained, parsed.settings.tasks()))
    elif tower == "enc" and "arch.encoder" in trained:
        return []  # its settings are those of a preset
    run = replace(parsed, components=parsed.components | {"arch": component})
    preset = dict[str, str]()
    for key, value in run.differences(recorded).items():
        text = f"{flag(key)} is {run.settings[key].text}, but {value} in {checkpoint}"
        if run.settings[key].origin == Origin.PRESET and key != "arch.norm_eps":
            preset[text] = f"{flag(key)} {value}"
        texts.append(text)
    if preset:
        other = ", or leave out --arch" if tower == "x" else ""
        cure = f"add {' '.join(preset.values())}{other}"
        if tower != "x" and (pair := pair_of(trained)):
            cure = f"take --arch {pair}"
        cure = cure if component.config is arch.config else "choose another --arch.encoder"
        raise UsageError(f"{next(iter(preset))}: {cure}")
    return texts


def check_frozen(
    state: dict[str, Any], parsed: Parsed, data: Data, checkpoint: Path
) -> tuple[bool, list[str]]:
    """Refuse changes to what a resumed run must keep: components, data, and the order of the data.

    Returns whether the data, or how examples are made of them, have changed (`--new-data`), and
    the options that differ, in words.
    """
    # of files that are copied, the run's own are named; what they contain is compared
    kept = sealed_files(checkpoint)
    for name, text in data.task.files.items():
        if name in kept and (checkpoint / name).read_text(encoding="utf-8") != text:
            raise UsageError(
                "a resumed run keeps the contents of "
                f"{checkpoint / name}, a copy of a file that was changed"
            )
    # an option the run did not know yet has its default there
    trained = parsed.differences(recorded_options(state))
    settings = parsed.settings
    components = settings.only(*COMPONENTS)
    changed = trained.keys() & CUT if parsed.main.new_data else set()
    done = Progress.of(state).done
    for key in sorted(trained, key=lambda key: (key not in COMPONENTS, key)):
        fixed = key in FROZEN or key in components
        # a schedule of the block size counts epochs up to the last one
        fixed |= key == "max_epochs" and not isinstance(parsed.main.block_size, int)
        if fixed and key not in changed:
            hint = " without --new-data" if key in CUT else ""
            raise UsageError(
                f"{flag(key)} is {settings[key].text}, but the run to resume has {trained[key]}: "
                f"it cannot change{hint} ({checkpoint})"
            )
        limit = getattr(parsed.main, key) if key in done else None
        if limit and limit < done[key]:
            raise UsageError(
                f"{flag(key)} {limit} is less than the {round(done[key], 4):,} of {checkpoint}, "
                "from which --resume goes on"
            )
    require(
        bool(state.get("words")) or not parsed.main.counts_words,
        f"--max-words and --save-at-words: {checkpoint} did not count its words",
    )
    same = state["data"] == data.fingerprint
    require(
        same or parsed.main.new_data,
        f"--data: contents or weights are not those of the run to resume ({checkpoint}); "
        "--new-data begins an epoch on others",
    )
    named = [
        f"{flag(key)} is {settings[key].text}, but {text} in {checkpoint}"
        for key, text in trained.items()
        if key not in OF_THE_COMMAND
    ]
    return bool(changed) or not same, named
