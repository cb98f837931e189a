"""`unitk VERB ...`: a lazy click group, which imports the module of a verb when it is called."""

from __future__ import annotations

import errno
import gc
import io
import logging
import os
import re
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from threading import Timer
from types import FrameType, TracebackType
from typing import Any

import click
from click.shell_completion import CompletionItem

from unitk import __version__, errors
from unitk.api.arguments import set_environment
from unitk.api.naming import naming_files
from unitk.api.verb import find_verb
from unitk.files import create
from unitk.foreign import check_name
from unitk.options import config
from unitk.options.settings import read_options
from unitk.progress import Lossy
from unitk.registry import KINDS, PLUGIN, hint, load_plugins, names, nearest, sources
from unitk.training.signals import EXIT

ORDER = (
    "quickstart preprocess merge train sweep scale mix launch generate score embed search predict "
    "serve evaluate analyse show latent list convert push fairseq_plugin average plot"
)
"""The order in which verbs are listed; others follow."""
ABOUT = re.compile(r'"""`unitk [^`]+`: (.+?)\.?(?:"""|$)')
"""What a verb does, as the first line of its module says."""
VARIABLES = {"--cache-dir": "UNITK_CACHE_DIR", "--cache-size": "UNITK_CACHE_SIZE"}
"""Option of any verb -> the environment variable that it sets, of further processes too."""
DELAYS = iter(range(100, 0, -1))
"""How often a signal may still wait 0.1 s for an import, which is interrupted afterwards."""
TOO_MANY = "too many files are open for this process: raise the limit (`ulimit -n`)"


class LogLine(logging.LogRecord):
    """A line of unitk's log that a terminal may have."""

    def getMessage(self) -> str:  # noqa: N802
        text = super().getMessage()
        return errors.printable(text) if str(self.name).startswith("unitk") else text


class Command(click.Command):
    """One verb; its options are completed from its own help page."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        words = ctx.meta["words"]
        kind = words[-1].removeprefix("--") if words else ""
        if incomplete.startswith("-"):
            with redirect_stdout(io.StringIO()) as page, suppress(SystemExit, errors.UnitkError):
                find_verb(str(self.name))([*words, "--help-all"])
            # the help page depends on the words so far: --task mass brings the options of mass
            flags = re.findall(r"^ +(--[\w.-]+)", page.getvalue(), re.M)
            names_found = ["--quiet", *VARIABLES, *flags]
        elif kind in KINDS:
            load_plugins()
            names_found = names(kind)
        else:
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(word) for word in names_found if word.startswith(incomplete)]


class Verbs(click.Group):
    """Knows the names of the verbs; each verb parses its own options (unitk.options.config)."""

    def make_context(self, *args: Any, **settings: Any) -> click.Context:
        with printing():  # --help and --version, too
            return super().make_context(*args, **settings)

    def list_commands(self, ctx: click.Context) -> list[str]:
        load_plugins()  # those of installed packages
        return verb_names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in verb_names():
            # a plug-in of --user-dir may have it
            read_options(ctx.meta["words"], config.NoOptions)
            known = verb_names()
            near = hint("choice", name, known) or nearest(name, known)
            near = near or f" (known: {', '.join(known)})"
            errors.require(name in known, f"there is no verb {name!r}{near}")
        # help is the verb's own: click knows none of its options
        return Command(
            name,
            callback=lambda: call(name, ctx.meta["words"]),
            short_help=describe_verb(name),
            add_help_option=False,
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *words = args
        ctx.meta["words"] = words
        return name, self.get_command(ctx, name), []


def print_unexpected(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an unexpected error; that of a plug-in from its own lines on."""
    frames = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(trace)]
    # the first frame of a plug-in, else of unitk itself
    first = next((i for i, name in enumerate(frames) if name.startswith(PLUGIN)), 0)
    # unitk's own frames say nothing about a mistake in a plug-in
    for _ in range(first):
        trace = trace and trace.tb_next
    report("".join(traceback.format_exception(kind, error, trace, chain=first == 0)).rstrip())


def end_by_signal(number: int, frame: FrameType | None) -> None:
    """End this process as Python does, which removes temporary files; after an import, if in one.

    Libraries drop what is raised while they import, or go on with modules that are half there.
    """
    while frame and frame.f_globals["__name__"] != "importlib._bootstrap":
        frame = frame.f_back
    if frame and next(DELAYS, 0):
        return Timer(0.1, os.kill, (os.getpid(), number)).start()
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(EXIT[number])


def send_again(dropped: sys.UnraisableHookArgs) -> None:
    """Send this process the signal again that came where Python drops errors: in a destructor."""
    number = {KeyboardInterrupt: signal.SIGINT, SystemExit: signal.SIGTERM}.get(dropped.exc_type)
    if number is None:
        sys.__unraisablehook__(dropped)
    else:
        # much later than this returns, or it would be dropped again
        Timer(0.1, os.kill, (os.getpid(), number)).start()


def report(message: str) -> None:
    """Print an error, or leave it to who started this process: all ranks may have the same one."""
    if path := os.environ.get(errors.REPORT):
        create(Path(path), f"{message}\n")
    else:
        print(message, file=Lossy())


def verb_names() -> list[str]:
    """The names of all verbs as words of a command line, in `ORDER`; none is imported."""
    known = sources("verb")
    first = [name for name in ORDER.split() if name in known]
    return [name.replace("_", "-") for name in dict.fromkeys([*first, *known])]


def called_verb() -> str:
    """The verb of this command line, which may be that of a plug-in; "" if it has none."""
    return next((word for word in sys.argv[1:2] if word in verb_names()), "")


def describe_verb(name: str) -> str:
    """What a verb does, as the first line of its module says."""
    with sources("verb")[name.replace("-", "_")].open(encoding="utf-8") as file:
        match = ABOUT.match(file.readline())
    return match[1] if match else ""


def call(verb: str, words: list[str]) -> None:
    """Run a verb; a closed output pipe (`| head`) is no error."""
    if "--quiet" in words:
        os.environ[errors.QUIET] = "1"  # of further processes, too
    words = set_variables([word for word in words if word != "--quiet"])
    for word in words:  # files have these words in them
        check_name(word)
    with naming_files(called := find_verb(verb), words), printing():
        called(words)


@contextmanager
def printing() -> Iterator[None]:
    """Raise what goes wrong with standard output, or with a file, as an error in one line."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # here, as click would make it exit code 1
        errors.silence()
        sys.exit(0)
    except UnicodeEncodeError as error:
        if error.encoding == "utf-8":  # no fault of the terminal
            raise
        errors.silence()
        raise errors.UsageError(
            f"the output is written in {error.encoding}, which lacks "
            f"{error.object[error.start]!r}: set PYTHONIOENCODING=utf-8, or a locale with UTF-8"
        ) from error
    except RuntimeError as error:
        if not (loop := re.match("Symlink loop from '(.+)'", str(error))):  # of pathlib
            raise
        raise errors.DataError(f"{loop[1]}: a loop of links") from error
    except OSError as error:  # a disk that is full, or a file that may not be written
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise errors.UnitkError(TOO_MANY) from error
        if not error.filename:
            errors.silence()
        what = "" if error.filename else "the output cannot be written: "
        raise errors.DataError(what + errors.refusal(error)) from error


def set_variables(words: list[str]) -> list[str]:
    """Set the environment variables of the options in `VARIABLES`; returns the other words."""
    rest = list[str]()
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name not in VARIABLES:
            rest.append(word)
            continue
        value = value if equals else next(remaining, "")
        errors.require(value, f"{name} needs a value")
        os.environ[VARIABLES[name]] = value
    return rest


def arrange_words(words: list[str]) -> list[str]:
    """The words of a command line as click takes them: the verb first, and --help after it."""
    if words[:1] in ([], ["help"]):  # `unitk`, `unitk help`, `unitk help train`
        return [*words[1:2], "--help"]
    if words == ["version"]:
        return ["--version"]
    verb_at = next((at for at, word in enumerate(words) if word in verb_names()), 0)
    if verb_at and words[0].partition("=")[0] in ("--quiet", *VARIABLES):  # `unitk --quiet train`
        return [words[verb_at], *words[:verb_at], *words[verb_at + 1 :]]
    return words


def open_streams() -> None:
    """Open the standard streams that are closed (`>&-`): a file would get their numbers.

    Whatever is written to standard output fails, as its reader would have nothing.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if name == "stderr" else "r"))
    if isinstance(sys.stdout, io.TextIOWrapper):  # but for answers: `check_spelling`
        sys.stdout.reconfigure(errors="backslashreplace")


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="A toolkit for unified language models.",
    epilog="`unitk VERB --help` explains a verb. --quiet prints warnings and errors only."
    " --cache-dir DIR and --cache-size 100G: where and how much of what s3:// and other addresses"
    " name is kept.",
)
@click.version_option(__version__, prog_name="unitk")
def cli() -> None:
    """The group itself does nothing."""


def main() -> None:
    """Run a verb: a user's error becomes one line and an exit code (docs/files.md)."""
    try:
        open_streams()
        set_environment()  # before anything imports torch
        # a start makes 400,000 objects that stay: full searches for garbage took a tenth of it
        gc.set_threshold(10_000)
        sys.argv[1:] = arrange_words(sys.argv[1:])
        sys.excepthook = print_unexpected
        sys.unraisablehook = send_again
        for number in EXIT:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, end_by_signal)
        errors.UnitkError.with_flags = True
        logging.setLogRecordFactory(LogLine)
        cli.main(prog_name="unitk", standalone_mode=False)
    except errors.UnitkError as error:
        report(f"unitk {called_verb()}".rstrip() + f": {error}")
        sys.exit(error.code)
    except (KeyboardInterrupt, click.Abort):  # first: it is a RuntimeError
        print("interrupted", file=sys.stderr)
        eval("0")  # or Python, which has met it in an exec, ends by the signal, not with a code
        sys.exit(130)
    except (MemoryError, RuntimeError, ValueError) as error:
        if "Too many open files" in str(error):  # from a library
            report(f"unitk {called_verb()}: {TOO_MANY}")
            sys.exit(1)
        if not errors.out_of_memory(error):
            raise
        cure = find_verb(verb).cure if (verb := called_verb()) else ""
        report(f"unitk {verb}: out of memory" + (f": {cure}" if cure else ""))
        sys.exit(2)
    except click.ClickException as error:
        errors.say(f"unitk: {error.format_message()}")
        sys.exit(2)
    finally:
        if "triton" not in sys.modules:  # it complains of what is left
            gc.freeze()  # Python would search all objects of PyTorch for garbage as it exits
