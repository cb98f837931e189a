"""Points of a latent space: paths between them, neighbours, main axes; numpy only.

Z dimensions, N points.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from unitk.errors import UsageError
from unitk.slots import Doubles

Points = npt.NDArray[np.float32]
Curve = Literal["lerp", "slerp"]
Metric = Literal["euclidean", "cosine"]


def lerp(a: Points, b: Points, t: float) -> Points:
    """The point at the share `t` of the straight line from a to b [Z]."""
    return (1 - t) * a + t * b


def slerp(a: Points, b: Points, t: float) -> Points:
    """The point at the share `t` of the arc from a to b (Shoemake 1985, section 3.3).

    In many dimensions, nearly all of a normal distribution lies at about the same distance from the
    origin. The middle of a straight line is nearer to it.
    """
    u, v = _directions(np.stack([a, b]).astype(np.float64))
    angle = 2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v))  # exact near 0 as well
    if not (a.any() and b.any()):  # the origin has no direction
        angle = 0.0
    if angle < 1e-6:  # where the arc becomes the line
        return lerp(a, b, t)
    if np.pi - angle < 1e-6:
        raise UsageError("--path slerp: two latents are opposite, any arc joins them; use lerp")
    parts = np.sin([(1 - t) * angle, t * angle]) / np.sin(angle)
    return float(parts[0]) * a + float(parts[1]) * b


def path(a: Points, b: Points, steps: int, how: Curve) -> tuple[Doubles, Points]:
    """Shares 0 to 1 [steps], and the points there [steps, Z], including both ends."""
    shares = np.linspace(0, 1, steps)
    between = {"lerp": lerp, "slerp": slerp}[how]
    inner = [between(a, b, float(t)) for t in shares[1:-1]]
    return shares, np.stack([a, *inner, b])


def solve_analogy(a: Points, b: Points, c: Points, degree: float) -> Points:
    """What relates to c as b relates to a: c + degree (b - a) (Optimus: arXiv 2004.04092, 5.2)."""
    return c + degree * (b - a)


def law(mean: Points, std: Points) -> tuple[Doubles, Doubles]:
    """The mean [Z] and covariance [Z, Z] of a mixture of N posteriors, given theirs [N, Z].

    They determine a normal law. With the posteriors of a label's texts, its draws are latents of
    the label. Optimus trains a generative adversarial network instead (section 5.2).
    """
    spread = np.atleast_2d(np.cov(mean.astype(np.float64).T, ddof=0))
    return mean.mean(axis=0, dtype=np.float64), spread + np.diag((std**2).mean(axis=0))


def move_along(z: Points, dimension: int, values: Doubles) -> Points:
    """Copies of z [Z] in which one dimension has each of the values."""
    points = np.repeat(z[None], len(values), axis=0)
    points[:, dimension] = values
    return points


def find_nearest(
    query: Points, points: Points, count: int, metric: Metric
) -> tuple[npt.NDArray[np.int64], Doubles]:
    """The numbers of the points [N, Z] nearest to the query [Z], and their distances.

    Of equally near points, the one with the lower number comes first. Cosine: one minus the cosine
    of the angle.
    """
    if metric == "cosine":
        points = _directions(points)
        query = _directions(query[None])[0]
        far = ((points - query) ** 2).sum(1, dtype=np.float64) / 2  # no loss of digits near 0
    else:
        far = np.sqrt(((points - query) ** 2).sum(1, dtype=np.float64))
    # stable, so that equally near ones keep their order
    best = np.argsort(far, kind="stable")[:count]
    return best, far[best]


def _directions(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    length = np.linalg.norm(points, axis=-1, keepdims=True)
    return points / np.maximum(length, np.finfo(np.float32).tiny)


def principal(points: Points, count: int) -> tuple[Points, Doubles]:
    """Coordinates [N, count] along the axes of greatest variance, and each axis' share of it.

    An axis points to where its largest component is positive.
    """
    centred = points - points.mean(0)
    _, spread, axes = np.linalg.svd(centred, full_matrices=False)
    # the decomposition leaves the sign open: without this a picture could be mirrored
    largest = np.abs(axes).argmax(1)
    axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    share = spread**2 / max(float((spread**2).sum()), np.finfo(np.float64).tiny)
    return centred @ axes[:count].T, share[:count]
