"""Models that were trained for a moment, for the server and its page."""

import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from labelled_corpora import FORMS, write_corpora

from unitk.training.loop import train
from unitk.training.start import parse_train, prepare

ARCHS = {
    **{"lm": "gpt2", "mlm": "bert", "mdlm": "mdlm", "mass": "mass", "bart": "bart", "t5": "t5"},
    **{"xlnet": "xlnet", "seq2seq": "bart", "optimus": "optimus", "unilm": "unilm"},
}
"""Tasks that are no task of understanding, and their architectures."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory, toy_vocab, toy_data):
    """The run of a task, by its name; with `pairs`, one that was fine-tuned on pairs."""
    folder, made = tmp_path_factory.mktemp("trained"), {}

    def run(task, pairs=False):
        if task in FORMS and not (folder / "class").exists():
            write_corpora(folder, toy_vocab)
        if (task, pairs) not in made:
            made[task, pairs] = save = folder / f"run-{task}-{pairs}"
            data = (
                folder / FORMS[task] if task in FORMS else toy_data / ("pairs" if pairs else "text")
            )
            arch = f"{ARCHS[task]}_tiny" if task in ARCHS else "bert_tiny --task.layout mlm"
            words = f"--task {task} --arch {arch} --data {data} --save-dir {save} --max-steps 1"
            words += " --arch.num-layers 2 --arch.width 32 --arch.num-heads 2 --arch.ffn-width 64"
            train(prepare(parse_train(f"{words} --lr 2e-3 --batch-texts 8".split())))
        return made[task, pairs]

    return run


@pytest.fixture(scope="session")
def serving(listening):
    """A server of a checkpoint, with limits: a context whose value is its address."""

    @contextmanager
    def serve(checkpoint, **limits):
        from unitk.serving.app import Server
        from unitk.verbs.serve import Options, open_service, watch_checkpoint

        paths = tuple(map(Path, checkpoint if isinstance(checkpoint, tuple) else (checkpoint,)))
        given = Options(checkpoint=paths, **limits)
        services = [open_service(path, given) for path in paths]
        app = Server(*services, replaced=watch_checkpoint(paths[0])).app()
        with listening(app, given) as port:
            yield f"http://127.0.0.1:{port}"

    return serve


@pytest.fixture(scope="session")
def listening():
    """A server of an application, with limits: a context whose value is its port."""

    @contextmanager
    def listen(app, limits):
        from unitk.serving.connections import listener
        from unitk.serving.hosts import Guard
        from unitk.verbs.serve import bind

        with bind("127.0.0.1", 0) as listening:
            server = listener(Guard(app, ["127.0.0.1"]), limits)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                yield listening.getsockname()[1]
            finally:
                server.should_exit = True
                thread.join(60)

    return listen
