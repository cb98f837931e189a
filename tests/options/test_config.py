"""Options: flags, YAML, presets and their order; every mistake is one clear line."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from unitk import registry
from unitk.api.arguments import option_words
from unitk.data.corpus.preprocess import Options as Preprocess
from unitk.errors import UsageError
from unitk.families.latent.space import verbs as latent
from unitk.options import config
from unitk.options.config import flag, options, parse, resolve
from unitk.options.fields import Place, parse_value, render
from unitk.options.help import group_options, help_page
from unitk.options.settings import HELP, Origin, Setting, read_yaml
from unitk.training.config import TrainConfig, parse_weighted
from unitk.verbs import generate


@dataclass(frozen=True, kw_only=True)
class Options:
    """A verb of the tests."""

    save_dir: Path | None = None
    """Where to write."""
    lr: float = 1e-3
    """Peak learning
    rate."""
    max_steps: int | None = None
    resume: bool = False
    """Go on."""
    mode: Literal["fast", "slow"] = "fast"
    input: tuple[Path, ...] = ()
    betas: tuple[float, float] = (0.9, 0.98)
    config: Path | None = None


def read(*argv):
    return parse("test", Options, argv).main


def test_the_string_under_a_field_is_its_help():
    by_name = {option.name: option for option in options(Options)}
    assert by_name["lr"].help == "Peak learning rate."
    assert by_name["max_steps"].help == "" and by_name["save_dir"].flag == "--save-dir"


def test_a_comma_within_a_word_without_a_flag_parts_nothing():
    words = ["a, b", "c", "--input", "d"]
    assert parse("test", Options, words[:2], positional="input").main.input == (
        Path("a, b"),
        Path("c"),
    )
    assert read(*words[2:], "--lr", "1").input == (Path("d"),)


def test_flags_are_parsed_by_the_fields_type():
    got = read(
        "--lr", "1e-4", "--max-steps", "10k", "--resume", "--betas=0.8,0.9", "--mode", "slow"
    )
    assert (got.lr, got.max_steps, got.resume, got.betas, got.mode) == (
        1e-4,
        10000,
        True,
        (0.8, 0.9),
        "slow",
    )
    assert read("--resume", "off").resume is False
    assert read("--max-steps", "none").max_steps is None
    assert read("--max-steps", "2K").max_steps == 2000
    assert read("--max-steps", str(2**63 - 1)).max_steps == 2**63 - 1
    assert read("--lr", "-1").lr == -1.0
    for words in (["a,b", "--input", "c"], ["a", "b", "c"]):
        assert read("--input", *words, "--lr", "1").input == (Path("a"), Path("b"), Path("c"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lrr", "1"], "--lrr: no such option; did you mean --lr"),
        (["--lr", "fast"], "--lr must be a number, got 'fast'"),
        (["--max-steps", "1.5"], "--max-steps must be a whole number, got '1.5'"),
        (["--max-steps", "9" * 30], "--max-steps must .* 64 bits, got"),
        (["--max-steps", str(2**63)], "--max-steps must .* 64 bits"),
        (["--input", "a,,b"], "--input is the path"),
        (["--lr"], "--lr needs a value: Peak learning rate"),
        (["--lr", "--resume"], "--lr needs a value: Peak learning rate"),
        (["--input", "--resume"], "--input needs a value: path,...$"),
        (["--lr", "1", "--lr", "2"], "--lr is given twice: 1 and 2"),
        (["--resume=maybe"], "--resume must be on or off"),
        (["--resume", "maybe"], "--resume must be on or off, got 'maybe'"),
        (["--mode", "slwo"], "--mode must be one of fast, slow, got 'slwo'; did you mean slow"),
        (["--betas", "1"], r"--betas must be 2 values \(number,number\), got '1'"),
        (["word"], "unexpected word 'word'"),
        ([""], "unexpected word ''"),
        (["---"], "unexpected word '---': options begin with --$"),
        (["-mode", "fast"], "-mode.* did you mean --mode"),
        (["--resume", "--resume=off"], "--resume .*twice: on and off"),
        (["--config", "absent.yaml"], "--config absent.yaml .*: No such file"),
        (["--task.mean-span", "3"], "--task.mean-span: no such option"),
    ],
)
def test_mistakes_name_the_option(argv, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        read(*argv)


def test_a_word_after_a_switch_is_one_of_the_verbs_words_if_it_takes_any():
    given = parse("test", Options, ["--resume", "a"], positional="input")
    assert given.main.input == (Path("a"),) and given.main.resume


def test_a_config_file_has_the_same_words_and_flags_win(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("lr: 1e-4\nmax-steps: 5\ninput: [a, b]\n")
    parsed = parse("test", Options, ["--config", str(path), "--max-steps", "7", "--input", "c"])
    assert (parsed.main.lr, parsed.main.max_steps) == (1e-4, 7)
    assert parsed.main.input == (Path("c"),)
    assert parsed.settings["lr"] == Setting(("0.0001",), Origin.FILE, str(path))
    assert parsed.settings["max_steps"] == Setting(("7",), Origin.FLAG, "--max-steps")
    path.write_text("lrr: 1\n")
    with pytest.raises(UsageError, match=rf"--lrr \(in {path}\): no such"):
        parse("test", Options, ["--config", str(path)])
    path.write_text("- 1\n")
    with pytest.raises(UsageError, match="must hold `option: value`"):
        parse("test", Options, ["--config", str(path)])


KINDS = ("task", "arch", "criterion", "optimizer")


def components(*argv):
    return parse("test", Options, argv, kinds=KINDS)


def test_components_come_from_the_task_unless_named():
    parsed = components("--task", "glm_infill", "--task.mean-span", "5")
    assert parsed.components["task"].config.mean_span == 5.0
    assert parsed.components["arch"].name == "qwen3_mini"
    assert parsed.components["criterion"].name == "cross_entropy"
    assert parsed.settings["task.mean_span"].where == "--task.mean-span"
    assert parsed.settings["arch.num_layers"].where == "preset qwen3_mini"
    assert parsed.settings["arch"].where == "task glm_infill"


def test_a_preset_gives_way_to_flags_and_values_read_back():
    parsed = components("--task=glm_infill", "--arch", "glm_tiny", "--arch.dropout", "0.3")
    assert parsed.components["arch"].config.dropout == 0.3
    again = resolve(Options, parsed.settings, KINDS)
    assert again.settings == parsed.settings and again.components == parsed.components


def test_the_written_yaml_is_a_config_file(tmp_path):
    parsed = components("--task=glm_infill", "--lr", "3e-4", "--task.mask-ratio", "0.2")
    path = tmp_path / "config.yaml"
    path.write_text(parsed.settings.yaml())
    assert "task.mask_ratio: '0.2'  # --task.mask-ratio" in path.read_text()
    assert components("--config", str(path)).settings.texts == {
        **parsed.settings.texts,
        "config": str(path),
    }


def test_naming_another_component_drops_the_old_ones_fields_aloud(tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text("task: {name: glm_infill, mean-span: 4}\narch: glm_base\narch.dropout: 0.3\n")
    kept = components("--config", str(path))
    assert kept.components["arch"].config.dropout == 0.3
    assert kept.components["task"].config.mean_span == 4
    changed = components("--config", str(path), "--arch", "glm_tiny")
    assert changed.components["arch"].config == registry.get("arch", "glm_tiny")()
    assert "--arch glm_tiny drops arch.dropout" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--task is needed .known: .*glm_infill"),
        (["--task", "glm_infil"], "--task: there is no task 'glm_infil'; did you mean glm_infill"),
        (["--task", "glm_infill", "--arch", "glm_bas"], "--arch: .* did you mean glm_base"),
        (
            ["--task", "glm_infill", "--task.mean-spam", "3"],
            "--task.mean-spam: task glm_infill has no such option; did you mean --task.mean-span",
        ),
        (["--task", "glm_infill", "--task", "glm_infill"], "--task is given twice"),
        (
            ["--task", "glm_infill", "--task.mask-ratio", "15"],
            r"--task.mask-ratio must be in \(0, 1\], got 15",
        ),
        (
            ["--task", "glm_infill", "--criterion.label-smoothin", "3"],
            "did you mean --criterion.label-smoothing",
        ),
    ],
)
def test_mistakes_in_components_are_refused(argv, message):
    with pytest.raises(UsageError, match=message):
        components(*argv)


@pytest.mark.parametrize("text", ["0.5", "linear:warmup=0.1,floor=0.2", "cosine"])
def test_a_schedule_is_a_value(text):
    from unitk.options.fields import Schedule

    made = parse_value(text, Schedule, "--lr-schedule")
    assert parse_value(render(made), Schedule, "x") == made
    with pytest.raises(UsageError, match="of schedule linear.*mean warmup"):
        parse_value("linear:warmpu=1", Schedule, "--lr-schedule")
    with pytest.raises(UsageError, match="--lr-schedule: .*no schedule 'linera'"):
        parse_value("linera", Schedule, "--lr-schedule")


def test_help_lists_what_applies_and_nothing_else(capsys):
    with pytest.raises(SystemExit):
        components("--help")
    page = capsys.readouterr().out
    assert "--save-dir" in page and "--task NAME" in page and "mean-span" not in page
    with pytest.raises(SystemExit):
        components("--task", "glm_infill", "--help")
    page = capsys.readouterr().out
    assert "--task.mean-span" in page and "Mean of the Poisson law" in page
    assert all(len(line) <= 110 for line in page.splitlines())


@dataclass(frozen=True, kw_only=True)
class Looks:
    """Looks: what one sees."""

    colour: str = "red"
    """Of the roof."""


@dataclass(frozen=True, kw_only=True)
class House(Looks):
    """A house."""

    doors: int = 2
    """At the front."""


def test_help_groups_what_is_inherited(capsys):
    with pytest.raises(SystemExit):
        parse("build", House, ["--help"])
    assert capsys.readouterr().out.split("\n\n") == [
        "unitk build [options]",
        "A house.",
        "  --doors N      At the front [2]",
        "Looks: what one sees.\n  --colour TEXT  Of the roof [red]\n",
    ]


def test_an_option_that_help_does_not_sort_is_listed_with_its_class():
    @dataclass(frozen=True, kw_only=True)
    class Sorted(House):
        HELP: ClassVar = {"Own": "windows", "Looks": "colour doors"}
        windows: int = 4
        walls: int = 4

    assert group_options(Sorted) == [
        ("Own", ["windows"], ["walls"]),
        ("Looks", ["colour", "doors"], []),
    ]


@pytest.mark.parametrize(("verb", "main"), [("train", TrainConfig), ("generate", generate.Options)])
def test_the_short_page_of_a_long_verb_has_its_common_options(verb, main, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    pages = {}
    for word in HELP:
        with pytest.raises(SystemExit):
            parse(verb, main, [word])
        pages[word] = capsys.readouterr().out
    assert pages["-h"] == pages["--help"] and len(pages["--help"].splitlines()) <= 75
    assert f"unitk {verb} --help-all" in pages["--help"]
    found = {word: re.findall(r"^  (--\S+)", page, re.M) for word, page in pages.items()}
    assert sorted(found["--help-all"]) == sorted(option.flag for option in options(main))
    common = {name for _, names, _ in group_options(main) for name in names}
    assert sorted(found["--help"]) == sorted(flag(name) for name in common)
    for option in options(main):
        words = option.brief.split() if option.name in common else []
        assert " ".join(words) in " ".join(pages["--help"].split())
        text, _, default = option.help.rstrip(".").partition(". Default: ")
        for part in (text, *filter(None, default.split(". "))):
            assert " ".join(part.split()) in " ".join(pages["--help-all"].split())


@dataclass(frozen=True, kw_only=True)
class Every:
    """Each kind of value."""

    folder: Path
    """To write."""
    names: tuple[str, ...] = ("a", "b")
    """To greet."""
    shout: bool = False
    """Loudly."""
    voice: Literal["low", "high"] = "low"
    """Of the greeting."""
    tongue: Literal["english", "italian", "portuguese"] = "italian"
    """Of the greeting."""
    every: int | None = None
    """Seconds between two. Default: a day."""
    limit: float | None = None
    """Seconds in all."""


def test_help_says_what_a_value_looks_like_and_what_holds_without_one(capsys):
    with pytest.raises(SystemExit):
        parse("greet", Every, ["--help"])
    _, *rows = " ".join(capsys.readouterr().out.split()).split(" --")
    assert [row.partition(" ")[2] for row in rows] == [
        "PATH To write [needed]",
        "TEXT,... To greet [a,b]",
        "Loudly",
        "low|high Of the greeting [low]",
        "NAME Of the greeting [one of english, italian, portuguese; default: italian]",
        "N Seconds between two [default: a day]",
        "X Seconds in all",
    ]


def test_help_explains_what_was_named_and_help_all_the_rest(capsys):
    found = {}
    for words in (["--help"], ["--arch", "bert_tiny", "--help"], ["--help-all"]):
        with pytest.raises(SystemExit):
            components("--task", "glm_infill", *words)
        found[words[0], words[-1]] = capsys.readouterr().out
    short, named, whole = found.values()
    assert "--task.mean-span" in short and "--arch.dropout" not in short
    assert "--arch.dropout" in named and "--optimizer.betas" not in named
    assert "--arch.dropout" in whole and "--optimizer.betas" in whole


def test_every_registered_component_documents_its_fields():
    for kind in ("task", "criterion", "optimizer", "arch", "schedule"):
        for name in registry.names(kind):
            made = registry.get(kind, name)
            cls = made.Config if kind == "task" else type(made()) if kind == "arch" else made
            for option in options(cls):
                assert option.help, f"{kind} {name}: {option.name} has no docstring"
    assert config.flag("task.mean_span") == "--task.mean-span"
    assert config.flag("task.glm_infill.mean_span") == "--task.glm_infill.mean-span"


def test_a_comma_or_an_equals_sign_may_be_part_of_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = tuple[Path, ...]
    for value in [(Path("a,b"), Path("c")), (Path("a"), Path("b,"))]:
        assert parse_value(render(value), paths, "--x") == value
    assert parse_value(r"a\,b,c", paths, "--x") == (Path("a,b"), Path("c"))
    Path("a=2.5").mkdir()
    assert parse_weighted("a=2.5") == (Path("a=2.5"), 1.0)
    assert parse_weighted("a=2.5=3") == (Path("a=2.5"), 3.0)
    assert parse_weighted("b=2.5") == (Path("b"), 2.5)


def test_one_option_alone_reads_standard_input():
    assert parse("verb", Options, ["--input", "-"]).main.input == (Path("-"),)
    with pytest.raises(UsageError, match="^--save-dir and --input .*standard input"):
        parse("verb", Options, "--input - --save-dir -".split())
    with pytest.raises(UsageError, match="^--input and --valid "):
        parse("verb", Preprocess, "--dest d --input a --input - --valid -".split())
    assert parse("verb", Preprocess, ["--dest", "d", "--document-mark", "-", "--input", "-"])


def test_addresses_are_refused_as_paths():
    with pytest.raises(UsageError, match="hf://datasets/a is no name .*ORG/NAME/FILE"):
        parse_value("hf://datasets/a", Path, "--x")
    for text in ("ftp://example.com/a", "r2://a"):
        with pytest.raises(UsageError, match=f"--x: {text} .*download"):
            parse_value(text, Path, "--x")
        with pytest.raises(UsageError, match="--data: .*address"):
            parse_weighted(text)
    assert parse_value("C:/a", Path, "--x") == Path("C:/a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr: " + "[" * 3000, "is nested too deeply"),
        ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "aliases"),
        ("a: x\nb: {c: 1, c: 2}\n", "'c' twice"),
    ],
)
def test_yaml_without_bounds_is_refused(tmp_path, text, message):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UsageError, match=message):
        read_yaml(tmp_path / "x.yaml")


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("task: {unilm: 0.5, mlm: 0.5}", "--task unilm=0.5 --task mlm=0.5"),
        (
            "task: [unilm=0.5, 'mlm=linear:value=1,floor=0']",
            "--task unilm=0.5 --task mlm=linear:value=1,floor=0",
        ),
        (
            "task: {unilm: 0.5, mlm: 0.5}\ntask.mlm: {max-span: 3}",
            "--task unilm=0.5 --task mlm=0.5 --task.mlm.max-span 3",
        ),
        ("task: {name: mlm, max-span: 3}", "--task mlm --task.max-span 3"),
        ("task: mlm\nvalid: {dev: a, other: b}", "--task mlm --valid dev=a --valid other=b"),
        ('task: mlm\nvalid: ["dev=a,b", c]', r"--task mlm --valid dev=a\,b,c"),
        ('task: mlm\nvalid: {dev: "a,x=b"}', "--task mlm --valid dev=a,x=b"),
        ("task: mlm\noptimizer.betas: [0.9, 0.98]", "--task mlm --optimizer.betas 0.9,0.98"),
    ],
)
def test_lists_and_objects_of_yaml_are_values_with_names(tmp_path, text, argv):
    (tmp_path / "x.yaml").write_text(text)
    needed = "--data d --save-dir s --max-steps 1 --arch unilm_tiny".split()
    of_file = ["--config", str(tmp_path / "x.yaml"), *needed]
    read, same = (
        parse("train", TrainConfig, words, KINDS) for words in (of_file, [*argv.split(), *needed])
    )
    assert read.main.valid == same.main.valid
    # schedules are equal as text
    assert read.settings.only(*KINDS).texts == same.settings.only(*KINDS).texts


def test_a_list_within_a_list_of_yaml_is_refused(tmp_path):
    (tmp_path / "x.yaml").write_text("valid: [[a, b], c]")
    with pytest.raises(UsageError, match="^--valid .* lists"):
        read_yaml(tmp_path / "x.yaml")


def test_help_names_every_option_once(capsys):
    for kind in (verb.options for verb in latent.run.verbs.values()):
        text = help_page("latent", kind, {}, None)
        flags = re.findall(r"^  (--\S+)", text, re.MULTILINE)
        assert sorted(flags) == sorted({flag(option.name) for option in options(kind)})


@pytest.mark.parametrize("given", ["nsp:2", "nsp:2,sop:3", ""])
def test_class_heads_of_version_0_1_are_heads(given):
    argv = ["--arch", "bert_tiny", f"--arch.class-heads={given}"]
    heads = parse("x", _Nothing, argv, ("arch",)).components["arch"].config.heads
    assert heads == tuple(f"class:{head}" for head in given.split(",") if head)


@dataclass(frozen=True, kw_only=True)
class _Nothing:
    """No options."""


@dataclass(frozen=True, kw_only=True)
class Paths:
    many: tuple[Path, ...] = ()
    places: tuple[Place, ...] = ()
    pair: tuple[str, str] = ("", "")


def test_a_path_with_a_comma_is_one_if_it_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def paths(*words):
        return parse("test", Paths, words).main.many

    assert paths("--many", "a,b") == (Path("a"), Path("b"))
    Path("a,b").mkdir()
    assert paths("--many", "a,b") == (Path("a,b"),)
    assert paths("--many", "a,b", "--many", "c,d") == (Path("a,b"), Path("c"), Path("d"))
    assert paths("--many", r"c\,d") == (Path("c,d"),)
    assert paths("--many", "c,a,b") == (Path("c"), Path("a,b"))
    Path("a").mkdir()
    Path("b").mkdir()
    assert paths("--many", "a,b") == (Path("a"), Path("b"))


@pytest.mark.parametrize("form", ["{}", "dev={}", "{}=0.5", "{}*", "{}/x[12]"])
def test_a_text_that_names_a_path_may_have_commas(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    for name in ("a,b,c", "d"):
        Path(name).mkdir()
        Path(name, "x1").write_text("")
    one, other, away = map(form.format, ("a,b,c", "d", "e,f"))
    for wanted in ([one], [one, other], [other, one], [other, one, one]):
        assert parse("test", Paths, ["--places", ",".join(wanted)]).main.places == (*wanted,)
        asked = parse("test", Paths, option_words({"places": wanted})).main
        assert asked.places == (*wanted,)
    assert parse("test", Paths, ["--places", away]).main.places == (*away.split(","),)


def test_a_word_of_a_pair_may_have_commas():
    assert parse("test", Paths, ["--pair", "hf", "a,b"]).main.pair == ("hf", "a,b")
    assert parse("test", Paths, ["--pair", "hf,a"]).main.pair == ("hf", "a")
