"""`unitk latent VERB`: encode, sample, interpolate and more in a latent space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.api.answering import Answering, check_words, open_generator
from unitk.api.verb import Verb, VerbGroup, verb
from unitk.data.files.readers import Format
from unitk.decoding.files.inputs import read_inputs
from unitk.decoding.files.outputs import check_writable, write
from unitk.errors import DataError, UsageError, print_note, require
from unitk.families.latent.space import config, geometry
from unitk.families.latent.space.outputs import (
    Outcome,
    Walk,
    neighbor_lines,
    neighbor_records,
    probe_lines,
    rows_of_numbers,
    walk_lines,
    walk_records,
)
from unitk.options.config import Parsed
from unitk.progress import progress
from unitk.registry import register

if TYPE_CHECKING:
    from unitk.families.latent.space.points import Latents, LatentSpace

Opened = Callable[[], "LatentSpace"]
"""Opens the model; called once what was given has been read."""


ASIDE = ("task", "arch")
"""Kinds of components whose options the checkpoint resolves."""


def latent(kind: type, act: Callable[[Any, Opened], Outcome], example: str) -> Verb:
    """A verb that opens the latent space of a model when it has read its texts."""

    def value(parsed: Parsed) -> Any:
        return act(*check_options(parsed)).value

    @verb(kind, words="texts", aside=ASIDE, value=value, example=example)
    def run(parsed: Parsed) -> None:
        options, open_space = check_options(parsed)
        lines = act(options, open_space).lines(options.output_format)
        write(lines, options.output, options.overwrite)

    return run


def check_options(parsed: Parsed) -> tuple[Any, Opened]:
    """The options, none of which is without effect, and what opens the model."""
    options = parsed.main
    check_words(options.texts)
    if isinstance(options, config.Decoding) and options.sampling:
        parsed.idle("with --sampling", "beam")
    if isinstance(options, config.Traverse) and parsed.settings.given("dimension"):
        parsed.idle("with --dimension", "active")
    if isinstance(options, config.Sample) and options.among is None:
        if not options.texts and options.input is None:
            parsed.idle("without texts", "truncate")
    if options.input is None:
        parsed.idle("without a file as --input", "input_format")
    check_writable(options)

    # called when all texts are read, so that their mistakes come before the model is loaded
    def open_space() -> LatentSpace:
        from unitk.families.latent.space.points import LatentSpace

        generator = open_generator(options, parsed.aside.texts)
        return LatentSpace(generator.model, generator.task)

    return options, open_space


def encode(options: config.Encode, open_space: Opened) -> Outcome:
    """`encode`: the latents of texts, as rows of numbers."""
    texts = read_texts(options)
    table = getattr(encode_texts(open_space(), texts, options), options.feature)
    return Outcome(table, partial(rows_of_numbers, texts, options.feature, table))


def sample(options: config.Sample, open_space: Opened) -> Outcome:
    """`sample`: texts of latents drawn from the prior, or around texts or those of a label."""
    texts = read_texts(options) if options.texts or options.input is not None else []
    alike = [] if options.among is None else of_label(options.among, options.label, "--label")
    require(not (texts and alike), "--among excludes texts: draws are of all texts of the --label")
    space = open_space()
    rng = np.random.default_rng(options.seed)
    if texts:
        latents = encode_texts(space, texts, options)
        draws = [latents.draw(rng, options.spread) for _ in range(options.count)]
        clouds = zip(texts, np.stack(draws, axis=1), strict=True)
        walks = [Walk([text], [{}] * options.count, cloud) for text, cloud in clouds]
    else:
        if alike:
            latents = encode_texts(space, alike, options)
            mean, covariance = geometry.law(latents.mean, latents.std)
            drawn = rng.multivariate_normal(mean, options.spread**2 * covariance, options.count)
            points = drawn.astype(np.float32)
        else:
            points = space.prior(options.count, options.seed, options.spread)
        walks = [Walk([], [{}], point[None]) for point in points]
    return decode_walks(space, walks, options)


def reconstruct(options: config.Reconstruct, open_space: Opened) -> Outcome:
    """`reconstruct`: decode the latents of texts."""
    space, groups = encode_groups(options, open_space, 1)
    return decode_walks(space, [Walk(text, [{}], points) for text, points in groups], options)


def interpolate(options: config.Interpolate, open_space: Opened) -> Outcome:
    """`interpolate`: texts along a path between two texts."""
    walks = []
    space, groups = encode_groups(options, open_space, 2)
    for texts, (a, b) in groups:
        shares, points = geometry.path(a, b, options.steps, options.path)
        walks.append(Walk(texts, [{"t": float(share)} for share in shares], points))
    return decode_walks(space, walks, options)


def analogy(options: config.Analogy, open_space: Opened) -> Outcome:
    """`analogy`: find what relates to C as B relates to A."""
    space, groups = encode_groups(options, open_space, 3)
    walks = [
        Walk(
            texts,
            options.at,
            np.stack([geometry.solve_analogy(a, b, c, d) for d in options.degree]),
        )
        for texts, (a, b, c) in groups
    ]
    return decode_walks(space, walks, options)


def restyle(options: config.Restyle, open_space: Opened) -> Outcome:
    """`restyle`: texts moved from the mean of one label to that of another."""
    before = of_label(options.among, options.from_, "--from")
    after = of_label(options.among, options.to, "--to")
    texts = read_texts(options)
    space = open_space()
    source, target = (
        encode_texts(space, style, options).mean.mean(axis=0) for style in (before, after)
    )
    degrees = options.degree
    walks = [
        Walk(
            [text],
            options.at,
            np.stack([geometry.solve_analogy(source, target, z, d) for d in degrees]),
        )
        for text, z in zip(texts, encode_texts(space, texts, options).mean, strict=True)
    ]
    return decode_walks(space, walks, options)


def traverse(options: config.Traverse, open_space: Opened) -> Outcome:
    """`traverse`: texts with one dimension moved."""
    texts = read_texts(options)
    space = open_space()
    for dimension in options.dimension:
        inside = 0 <= dimension < space.dimensions
        require(inside, f"--dimension must be 0 to {space.dimensions - 1}, got {dimension}")
    latents = encode_texts(space, texts, options)
    # the dimensions that tell most, the first ones first where they are equal
    most = np.argsort(-latents.kl.mean(0), kind="stable")[: options.active].tolist()
    values = np.linspace(-options.reach, options.reach, options.steps)
    walks = [
        Walk(
            [text],
            [{"dimension": dimension, "value": float(value)} for value in values],
            geometry.move_along(z, dimension, values),
        )
        for text, z in zip(texts, latents.mean, strict=True)
        for dimension in options.dimension or most
    ]
    return decode_walks(space, walks, options)


def neighbors(options: config.Neighbors, open_space: Opened) -> Outcome:
    """`neighbors`: the nearest texts of a file."""
    texts = read_texts(options)
    neighbor_texts = [text for (text,) in groups_of(options.among, "auto", 1)]
    latents = encode_texts(open_space(), [*texts, *neighbor_texts], options)
    vectors, others = np.split(latents.mean, [len(texts)])
    nearest = [geometry.find_nearest(z, others, options.count, options.metric) for z in vectors]
    records = neighbor_records(texts, nearest, neighbor_texts)
    return Outcome(records, partial(neighbor_lines, records))


def draw_latents(parsed: Parsed) -> Path:
    """Draw the latents of texts; the path of the picture."""
    from unitk.families.latent.space.plot import draw, plane

    options, open_space = check_options(parsed)
    texts, labels = read_labelled(options)
    require(len(texts) >= 3, f"--input: a picture needs at least 3 texts, got {len(texts)}")
    points = getattr(encode_texts(open_space(), texts, options), options.feature)
    require(points.shape[1] >= 2, "--checkpoint: its latent has one dimension, no plane")
    flat, axes = plane(points, options.method, options.seed)
    draw(flat, axes, labels, texts[: options.names], options.output, options.overwrite)
    output: Path = options.output
    return output


@verb(
    config.Plot,
    words="texts",
    aside=ASIDE,
    value=draw_latents,
    example='(input="labelled.txt", output="latents.png", checkpoint="unitk-vae-en")',
)
def plot(parsed: Parsed) -> None:
    """`plot`: draw the latents of texts, and print the path of the picture."""
    print_note(draw_latents(parsed))


def probe(options: config.Probe, open_space: Opened) -> Outcome:
    """`probe`: how accurately a linear classifier reads labels from latents."""
    from unitk.families.latent.measures.probe import probe_classes as measure

    texts, labels = read_labelled(options)
    test_texts, test_labels = read_labelled_file(options.test, "auto")
    train_classes, test_classes = (
        read_classes(labels, "--input"),
        read_classes(test_labels, "--test"),
    )
    features = getattr(encode_texts(open_space(), [*texts, *test_texts], options), options.feature)
    train, test = np.split(features, [len(texts)])
    rows = []
    for number in options.per_class:
        right = measure(
            (train, train_classes), (test, test_classes), number, options.seeds, options.penalty
        )
        deviation = float(np.std(right, ddof=1)) if len(right) > 1 else None
        row = {"per_class": number, "mean": float(np.mean(right)), "deviation": deviation}
        rows.append({**row, "feature": options.feature, "seeds": len(right)})
    frequent = max(map(test_classes.count, set(test_classes))) / len(test_classes)
    return Outcome(rows, partial(probe_lines, rows, frequent))


def read_classes(labels: Sequence[str | None], option: str) -> list[str]:
    """The labels of texts, each of which must have one."""
    if None in labels:
        lacking = labels.index(None) + 1
        raise DataError(f"{option}: text {lacking} has no label after a tab, or as target")
    return [label for label in labels if label is not None]


def encode_texts(space: LatentSpace, texts: Sequence[str], options: Answering) -> Latents:
    """The latents of texts, with a progress bar on a terminal."""
    with progress(len(set(texts))) as report:
        return space.encode(
            texts, truncate=options.truncate, max_tokens=options.max_tokens, report=report
        )


def encode_groups(
    options: Answering, open_space: Opened, size: int
) -> tuple[LatentSpace, list[tuple[list[str], geometry.Points]]]:
    """The latent space, and groups of texts with their latents [size, Z]."""
    groups = read_groups(options, size)
    space = open_space()
    # all texts at once fill the batches; a group has `size` neighbouring rows
    mean = encode_texts(space, [text for group in groups for text in group], options).mean
    return space, list(zip(groups, mean.reshape(len(groups), size, -1), strict=True))


def decode_walks(space: LatentSpace, walks: Sequence[Walk], options: config.Decoding) -> Outcome:
    """Decode the points of all paths together."""
    points = np.concatenate([walk.points for walk in walks])
    with progress(len(points)) as report:
        decoded = space.decode(points, options, report=report)
    records = list(walk_records(walks, decoded))
    return Outcome(records, lambda form: walk_lines(walks, decoded, form, options.nbest))


def read_texts(options: Answering) -> list[str]:
    """The given texts, one by one."""
    return [text for (text,) in read_groups(options, 1)]


def read_groups(options: Answering, size: int) -> list[list[str]]:
    """The given texts in groups of this size: those of the command line, or lines of the file."""
    require(bool(options.texts) != (options.input is not None), "give either texts or --input FILE")
    if options.input is not None:
        return groups_of(options.input, options.input_format, size)
    texts = [text.strip() for text in options.texts]
    require(all(texts), "a text is empty")
    require(size == 1 or len(texts) == size, f"{size} texts are needed, got {len(texts)}")
    return [[text] for text in texts] if size == 1 else [texts]


def groups_of(path: Path, format: Format, size: int) -> list[list[str]]:
    """The texts of a file, this many on each line."""
    groups = []
    for item in read_inputs(path, format):
        texts = [part.strip() for part in item.parts]
        if not all(texts):
            raise DataError(f"{item.where} has an empty text")
        if len(texts) != size:
            needed = "1 text" if size == 1 else f"{size} texts with tabs between them"
            raise DataError(f"{item.where} must have {needed}, got {len(texts)}")
        groups.append(texts)
    return groups


def read_labelled(options: Answering) -> tuple[list[str], list[str | None]]:
    """The given texts and their labels, if any."""
    if options.texts or options.input is None:
        texts = read_texts(options)
        return texts, [None] * len(texts)
    return read_labelled_file(options.input, options.input_format)


def read_labelled_file(path: Path, format: Format) -> tuple[list[str], list[str | None]]:
    """The texts of a file and their labels, which are a second part or the target, if any."""
    texts, labels = [], []
    for item in read_inputs(path, format):
        target = [] if item.target is None else [item.target]
        text, *labels_of_text = [part.strip() for part in (*item.parts, *target)]
        if not text or len(labels_of_text) > 1:
            raise DataError(f"{item.where} is not a text, or text and label")
        texts.append(text)
        labels.append(labels_of_text[0] if labels_of_text else None)
    return texts, labels


def of_label(path: Path, label: str, option: str) -> list[str]:
    """The texts of a file that have a label."""
    texts, labels = read_labelled_file(path, "auto")
    known = sorted({*read_classes(labels, "--among")})
    if label not in known:
        raise UsageError(f"{option} must be one of {', '.join(map(repr, known))}, got {label!r}")
    return [text for text, text_label in zip(texts, labels, strict=True) if text_label == label]


run = VerbGroup(
    {
        "encode": latent(
            config.Encode, encode, '(["He is a teacher."], checkpoint="unitk-vae-en")'
        ),
        "sample": latent(config.Sample, sample, '(checkpoint="unitk-vae-en", count=5)'),
        "reconstruct": latent(
            config.Reconstruct, reconstruct, '(["He is a teacher."], checkpoint="unitk-vae-en")'
        ),
        "interpolate": latent(
            config.Interpolate,
            interpolate,
            '(["He runs.", "They sleep."], checkpoint="unitk-vae-en", steps=5)',
        ),
        "analogy": latent(
            config.Analogy,
            analogy,
            '(["He is.", "They are.", "She is."], checkpoint="unitk-vae-en")',
        ),
        "restyle": latent(
            config.Restyle,
            restyle,
            '(["So sad."], among="labelled.txt", from_="bad", to="good", checkpoint="v")',
        ),
        "traverse": latent(
            config.Traverse,
            traverse,
            '(["He is a teacher."], checkpoint="unitk-vae-en", active=1)',
        ),
        "neighbors": latent(
            config.Neighbors,
            neighbors,
            '(["He is a teacher."], among="dev.txt", checkpoint="unitk-vae-en")',
        ),
        "plot": plot,
        "probe": latent(
            config.Probe,
            probe,
            '(input="labelled.txt", test="test.txt", checkpoint="unitk-vae-en")',
        ),
    }
)
register("verb", "latent")(run)
