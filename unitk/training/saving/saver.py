"""Writes the checkpoints of a run in a thread while training continues.

The loop waits only for the copy to host memory, and for the previous checkpoint if that is still
being written. If a checkpoint cannot be written, the older ones remain. A run folder in a store is
uploaded after each of them; what a store does not take is uploaded with the next one.
"""

from __future__ import annotations

import logging
import threading

from unitk.errors import CheckpointError, refusal
from unitk.training.saving.folder import RunFolder
from unitk.training.saving.snapshot import Snapshot, write

log = logging.getLogger(__name__)


class Saver:
    """Writes snapshots into a run folder; keeps the newest and the best ones.

    When it is left by an error or a second Ctrl-C, it first finishes the checkpoint that it is
    writing. A third Ctrl-C ends that.
    """

    def __init__(self, folder: RunFolder, keep_last: int) -> None:
        self.folder = folder
        self.keep_last = keep_last
        # not the thread's own end: an interrupted `join` takes a thread for ended (bpo-45274)
        self._done = threading.Event()
        self._done.set()
        self._step = 0
        self._error: BaseException | None = None
        self._untold = 0
        """A failed step that was logged when the next one was due, but not yet returned."""
        self.not_mirrored = ""
        """Why the newest checkpoint is not in the store that the run is mirrored in."""

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._done.wait()
            if isinstance(self._error, OSError):
                log.warning("%s", self._failure(self._error))

    def save(self, snapshot: Snapshot, best: list[int], named: dict[str, int]) -> None:
        """Begin to write a snapshot; `best` are the steps to keep, the best one first, and `named`
        those to keep by name."""
        self._done.wait()
        if self._error is not None:
            self._untold = self._report()
        self._step = snapshot.step
        self._done.clear()
        arguments = snapshot, best, named
        threading.Thread(target=self._write, args=arguments, name="saver", daemon=True).start()

    def failed(self, wait: bool = False) -> int:
        """The step of a checkpoint whose writing failed, which is logged; 0: none."""
        if not wait and not self._done.is_set():
            return 0
        self._done.wait()
        failed = self._untold or self._report()
        self._untold = 0
        return failed

    def finish(self) -> None:
        """Wait for the checkpoint that is being written; `CheckpointError` if that fails."""
        self._done.wait()
        if isinstance(error := self._error, OSError):
            raise CheckpointError(self._failure(error)) from error
        self._report()
        if self.not_mirrored:
            raise CheckpointError(
                f"{self.not_mirrored}; --resume on this machine goes on from there"
            )

    def _write(self, snapshot: Snapshot, best: list[int], named: dict[str, int]) -> None:
        folder, step = self.folder, snapshot.step
        try:
            if snapshot.publish is None:
                folder.publish(step, lambda path: write(path, snapshot))
            elif not snapshot.publish(folder, snapshot):
                return
            folder.link("last", step)  # only once the checkpoint has its name
            folder.link("best", best[0] if best else None)
            for name, number in named.items():
                folder.link(name, number)
            try:
                folder.prune(self.keep_last, best, named.values())
            except OSError as error:  # this one is there
                log.warning("older checkpoints cannot be removed, and are kept: %s", refusal(error))
            self.mirror(step)
        except BaseException as error:  # whatever it is, the loop must get it
            self._error = error
        finally:
            self._done.set()

    def mirror(self, step: int) -> None:
        """Upload the run, as it is after a step, to the store that it is mirrored in, if any."""
        try:
            self.folder.mirror()
            self.not_mirrored = ""
        except OSError as error:
            only = f"checkpoint of step {step} is only in {self.folder.path}"
            self.not_mirrored = f"{only} ({refusal(error)})"
            log.warning("%s; training continues", self.not_mirrored)

    def _report(self) -> int:
        error = self._error
        self._error = None
        if error is None:
            return 0
        if not isinstance(error, OSError):
            raise error
        log.warning("%s; training continues", self._failure(error))
        return self._step

    def _failure(self, error: OSError) -> str:
        earlier = "; earlier ones are kept" if self.folder.steps() else ""
        return f"checkpoint of step {self._step} cannot be saved: {refusal(error)}{earlier}"
