"""`unitk latent`: rows of vectors, walks between texts, and figures of an autoencoder."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import unitk
from unitk.decoding.generator import Generator
from unitk.errors import DataError, UnitkError, UsageError
from unitk.families.latent.space.points import LatentSpace
from unitk.families.latent.space.verbs import run
from unitk.training.saving import checkpoint

CAT, DOG, BIRD, TREE = LINES = ["The cat sat, on the mat.", "A dog.", "A small bird.", "Big tree."]
QUICK = "--beam 2 --max-len 6"


@pytest.fixture(scope="module")
def trained(make_checkpoint):
    return make_checkpoint("optimus", "optimus_tiny", "--arch.init-std 0.3", small="")


@pytest.fixture
def space(trained):
    loaded = checkpoint.load(trained)
    return LatentSpace(loaded.model, loaded.task)


@pytest.fixture
def latent(trained, files, capsys):
    """Run `unitk latent VERB WORDS --checkpoint ...`: the lines that it prints."""

    def go(verb, *words, flags=""):
        capsys.readouterr()
        run([verb, *words, "--checkpoint", str(trained), *flags.split()])
        return capsys.readouterr().out.splitlines()

    return go


def records(lines):
    return [json.loads(line) for line in lines]


def test_encode_prints_a_row_a_text(latent, space):
    table = np.loadtxt(latent("encode", *LINES), delimiter="\t")
    assert table == pytest.approx(space.encode(LINES).mean, rel=1e-5, abs=1e-5)
    found = records(latent("encode", flags="--input in.txt --feature kl --output-format jsonl"))
    assert [one["source"] for one in found] == LINES
    kl = np.array([one["kl"] for one in found])
    assert kl == pytest.approx(space.encode(LINES).kl, rel=1e-5, abs=1e-5)


def test_reconstruct_is_generate(latent, space):
    generator = Generator(space.model, space.task)
    wanted = [best[0].text for best in generator.generate(LINES, beam=2, max_len=6)]
    assert latent("reconstruct", *LINES, flags=QUICK) == wanted
    assert latent("reconstruct", flags=f"--input in.txt {QUICK}") == wanted


def test_standard_input_and_an_output_file(latent, tmp_path, monkeypatch):
    wanted = latent("reconstruct", *LINES, flags=QUICK)
    data = (tmp_path / "in.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert latent("reconstruct", flags=f"--input - --output out.txt {QUICK}") == []
    assert (tmp_path / "out.txt").read_text().splitlines() == wanted


@pytest.mark.parametrize("path", ["lerp", "slerp"])
def test_interpolate_ends_at_the_reconstructions(latent, path):
    ends = latent("reconstruct", CAT, DOG, flags=QUICK)
    lines = [
        line.split("\t")
        for line in latent("interpolate", CAT, DOG, flags=f"--steps 5 --path {path} {QUICK}")
    ]
    assert [share for share, _ in lines] == ["0", "0.25", "0.5", "0.75", "1"]
    assert [lines[0][1], lines[-1][1]] == ends


def test_pairs_of_a_file_are_parted_by_a_blank_line(latent, tmp_path):
    (tmp_path / "two.txt").write_text(f"{CAT}\t{DOG}\n{BIRD}\t{TREE}\n")
    lines = latent("interpolate", flags=f"--input two.txt --steps 3 {QUICK}")
    alone = [latent("interpolate", *pair, flags=f"--steps 3 {QUICK}") for pair in ((CAT, DOG),)]
    assert lines[:3] == alone[0] and lines[3] == "" and len(lines) == 7
    found = records(
        latent(
            "interpolate",
            flags=f"--input two.txt --steps 3 {QUICK} --nbest 2 --output-format jsonl",
        )
    )
    assert [one["source"] for one in found] == [[CAT, DOG], [BIRD, TREE]]
    assert [point["t"] for point in found[0]["outputs"]] == [0, 0, 0.5, 0.5, 1, 1]


def test_nothing_is_to_c_as_a_is_to_a(latent):
    (wanted,) = latent("reconstruct", BIRD, flags=QUICK)
    assert latent("analogy", CAT, CAT, BIRD, flags=QUICK) == [wanted]
    lines = latent("analogy", CAT, DOG, BIRD, flags=f"--degree 0,1 {QUICK}")
    assert lines[0] == f"0\t{wanted}" and lines[1].startswith("1\t")
    # what is to A as B is to A is B
    assert latent("analogy", CAT, DOG, CAT, flags=QUICK) == latent("reconstruct", DOG, flags=QUICK)


def test_samples_are_seeded_and_no_batch_changes_them(latent):
    flags = f"--count 6 --seed 3 {QUICK} "
    found = latent("sample", flags=flags)
    assert len(found) == 6 and len(set(found)) > 1
    assert latent("sample", flags=flags + "--max-tokens 20") == found
    assert latent("sample", flags=f"--count 2 --seed 3 {QUICK}") == found[:2]
    assert latent("sample", flags=f"--count 6 --seed 4 {QUICK}") != found


def test_samples_around_a_text_without_spread_are_its_reconstruction(latent):
    (wanted,) = latent("reconstruct", CAT, flags=QUICK)
    assert latent("sample", CAT, flags=f"--count 3 --spread 0 {QUICK}") == [wanted] * 3
    (one,) = records(latent("sample", CAT, flags=f"--count 4 --output-format jsonl {QUICK}"))
    assert one["source"] == CAT and len(one["outputs"]) == 4


LABELLED = f"{CAT}\tpet\n{DOG}\tpet\n{BIRD}\twild\n{TREE}\twild\n"


def test_samples_of_a_label_are_drawn_around_its_texts(latent, space, tmp_path):
    (tmp_path / "labelled.txt").write_text(LABELLED)
    flags = f"--among labelled.txt --label wild --count 5 {QUICK}"
    mean = space.encode([BIRD, TREE]).mean.mean(axis=0)
    [[best]] = space.decode(mean[None], beam=2, max_len=6)
    assert latent("sample", flags=f"{flags} --spread 0") == [best.text] * 5
    found = latent("sample", flags=f"{flags} --seed 3")
    assert latent("sample", flags=f"{flags} --seed 3") == found
    assert latent("sample", flags=f"{flags} --seed 4") != found


def test_restyle_moves_a_text_by_the_difference_of_two_labels(latent, space, tmp_path):
    (tmp_path / "labelled.txt").write_text(LABELLED)
    flags = f"--among labelled.txt --from pet --to wild {QUICK} --output-format jsonl"
    (one,) = records(latent("restyle", CAT, flags=f"{flags} --degree 0,2"))
    pet, wild = (space.encode(some).mean.mean(axis=0) for some in ([CAT, DOG], [BIRD, TREE]))
    z = space.encode([CAT]).mean[0]
    for output, degree in zip(one["outputs"], (0, 2), strict=True):
        [[best]] = space.decode((z + degree * (wild - pet))[None], beam=2, max_len=6)
        assert output["text"] == best.text and output["degree"] == degree
    assert [one["outputs"][0]["text"]] == latent("reconstruct", CAT, flags=QUICK)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "sample --among labelled.txt --label tame",
            "--label must be one of 'pet', 'wild', got 'tame'",
        ),
        ("sample --among labelled.txt", "--label must be one of 'pet', 'wild', got ''"),
        ("sample --label pet", "--label has no effect without --among"),
        ("sample x --among labelled.txt --label pet", "--among excludes texts"),
        ("sample --among in.txt --label pet", "--among: text 1 has no label"),
        (
            "restyle x --among labelled.txt --from pet --to x",
            "--to must be one of 'pet', 'wild', got",
        ),
        ("restyle x --among labelled.txt --from y --to pet", "--from must be one of 'pet', 'wild'"),
    ],
)
def test_labels_that_do_not_fit(latent, tmp_path, words, message):
    (tmp_path / "labelled.txt").write_text(LABELLED)
    verb, *rest = words.split()
    with pytest.raises(UnitkError, match=message):
        latent(verb, *rest)


def test_traverse_moves_the_dimensions_that_tell_most(latent, space):
    kl = space.encode([CAT]).kl[0]
    (one, two) = records(
        latent("traverse", CAT, flags=f"--active 2 --steps 3 --output-format jsonl {QUICK}")
    )
    dimensions = [record["outputs"][0]["dimension"] for record in (one, two)]
    assert dimensions == np.argsort(-kl)[:2].tolist()
    assert [point["value"] for point in one["outputs"]] == [-3, 0, 3]
    # at its own value, a dimension leaves the text as it is
    value = float(space.encode([CAT]).mean[0, 5])
    flags = f"--dimension 5 --reach {abs(value)} --steps 2 {QUICK}"
    lines = [line.split("\t")[2] for line in latent("traverse", CAT, flags=flags)]
    assert latent("reconstruct", CAT, flags=QUICK)[0] == lines[value > 0]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_text_is_its_own_nearest_neighbour(latent, metric):
    flags = f"--among in.txt --count 3 --metric {metric}"
    found = records(latent("neighbors", *LINES, flags=flags + " --output-format jsonl"))
    for number, one in enumerate(found):
        first = one["neighbors"][0]
        assert first == {"distance": 0, "line": number + 1, "text": LINES[number]}
        far = [near["distance"] for near in one["neighbors"]]
        assert far == sorted(far) and len(far) == 3
    lines = latent("neighbors", CAT, DOG, flags=flags)
    assert lines[0] == f"0.0000\t{CAT}" and lines[3] == ""


def test_plot_draws_labels(latent, tmp_path):
    (tmp_path / "labelled.txt").write_text("".join(f"{x}\tkind {x[0]}\n" for x in LINES * 3))
    assert latent("plot", flags="--input labelled.txt --output x.png --names 2") == ["x.png"]
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert latent("plot", *LINES) == ["latent.png"]
    # before the model is looked for
    with pytest.raises(UsageError, match="--output .*end.* .png, .svg or .pdf, got x.foo"):
        run(["plot", *LINES, "--checkpoint", "nowhere", "--output", "x.foo"])


@pytest.mark.parametrize(("method", "module"), [("tsne", "sklearn"), ("umap", "umap")])
def test_an_extra_that_is_missing_is_named(latent, monkeypatch, method, module):
    for name in (module, f"{module}.manifold"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=rf"--method {method} needs .*unitk\[latent\]"):
        latent("plot", *LINES, flags=f"--method {method}")


def test_probe_prints_a_row_for_each_number_of_labels(latent, tmp_path):
    rows = [f"{line} {i}.\t{'c' if line is CAT else 'd'}" for i in range(12) for line in (CAT, DOG)]
    (tmp_path / "train.txt").write_text("\n".join(rows[:16]))
    (tmp_path / "test.txt").write_text("\n".join(rows[16:]))
    flags = "--input train.txt --test test.txt --per-class 2,0 --seeds 3"
    lines = [line.split("\t") for line in latent("probe", flags=flags)]
    assert [line[0] for line in lines] == ["labels a class", "2", "all", "commonest label"]
    assert lines[2] == ["all", "1.000", ""] and lines[3][1] == "0.500"
    found = records(latent("probe", flags=flags + " --feature mean --output-format jsonl"))
    assert [one["per_class"] for one in found] == [2, 0] and found[1]["deviation"] is None
    assert [one["seeds"] for one in found] == [3, 1]  # all texts are one draw


def test_every_verb_has_a_help_page(capsys):
    for verb in run.verbs:
        with pytest.raises(SystemExit):
            run([verb, "--help"])
        assert f"unitk latent {verb} TEXTS [options]" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run([])
    overview = capsys.readouterr().out
    assert all(f"\n  {verb} " in overview for verb in run.verbs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("recontruct x", "no verb 'recontruct'; did you mean reconstruct"),
        ("reconstruct", "give either texts or --input FILE"),
        ("reconstruct x --input in.txt", "give either texts or --input FILE"),
        ("reconstruct x --input-format text", "--input-format has no effect without"),
        ("interpolate x", "2 texts are needed, got 1"),
        ("analogy x y", "3 texts are needed, got 2"),
        ("sample --count 1000000000", "--count must be in .*100000"),
        ("interpolate x y --steps 1000000000", "--steps must be in .*10000"),
        ("sample --truncate", "--truncate has no effect without texts"),
        ("sample --sampling --beam 2", "--beam has no effect with --sampling"),
        ("traverse x --dimension 16", "--dimension must be 0 to 15, got 16"),
        ("traverse x --dimension 1 --active 2", "--active has no effect with --dimension"),
        ("reconstruct x --output no/x.txt", "--output no/x.txt: cannot write into"),
        ("plot x y", "a picture needs at least 3 texts, got 2"),
        ("neighbors x", "--among is needed"),
        ("neighbors x --among none.txt", "none.txt is empty"),
        ("restyle x --among none.txt --from a --to b", "none.txt is empty"),
        ("probe --input in.txt --test none.txt", "none.txt is empty"),
        ("probe --input in.txt --test in.txt", "--input: text 1 has no label"),
    ],
)
def test_mistakes_are_one_line(latent, words, message):
    Path("none.txt").touch()
    verb, *rest = words.split()
    with pytest.raises(UnitkError, match=message):
        latent(verb, *rest)


@pytest.mark.parametrize(
    ("verb", "text", "message"),
    [
        ("reconstruct", "a\n\nb\n", "line 2 has an empty text"),
        ("reconstruct", "a\tb\n", "line 1 must have 1 text, got 2"),
        ("interpolate", "a\tb\nc\n", "line 2 must have 2 texts .*got 1"),
        ("plot", "a\tb\nc\tx\ty\n", "line 2 is not a text, or text and label"),
    ],
)
def test_a_line_that_does_not_fit_is_named(latent, tmp_path, verb, text, message):
    (tmp_path / "odd.txt").write_text(text)
    with pytest.raises(DataError, match=f"^odd.txt, {message}"):
        latent(verb, flags="--input odd.txt")


def test_options_of_the_architecture_replace_those_of_the_training(latent, trained):
    flags = f"--output-format jsonl {QUICK}"
    own = latent("reconstruct", CAT, flags=flags)
    other = latent("reconstruct", CAT, flags=f"{flags} --arch.activation relu")
    generator = unitk.load(trained, options={"arch.activation": "relu"})
    [[wanted]] = generator.generate([CAT], beam=2, max_len=6)
    [answer] = records(other)
    [found] = answer["outputs"]
    assert found["score"] == pytest.approx(wanted.hypothesis.score, rel=1e-4)
    assert found["text"] == wanted.text and own != other
    with pytest.raises(UsageError, match="--task.encoder-drpo.*did you mean"):
        latent("encode", CAT, flags="--task.encoder-drpo 0.5")
    with pytest.raises(UsageError, match="--arch.latent changes bridge.weight"):
        latent("encode", CAT, flags="--arch.latent 3")
