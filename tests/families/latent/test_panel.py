"""The collapse panel and what it is made of, against direct computation and extreme decoders."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from unitk import registry
from unitk.families.latent.components import ELBOConfig
from unitk.families.latent.measures.evidence import (
    TEXT,
    gather_evidence,
    importance_bound,
    log_weight,
    mutual_information,
    noise,
    partners,
)
from unitk.families.latent.measures.panel import BARS, WIDTH, bars
from unitk.families.latent.model import Posterior
from unitk.models.heads.base import Answers, Categorical
from unitk.optim.schedules import Constant, Cyclical, Linear
from unitk.slots import collate

V, LATENT, LATE, TOTAL = 60, 5, 800, 1000


@pytest.fixture(scope="module")
def texts(texts_of):
    return texts_of(9, 7, 6, 4, 4, 2, 1)


@pytest.fixture
def model():
    torch.manual_seed(3)
    config = replace(registry.get("arch", "optimus_tiny")(), latent=LATENT, init_std=0.2)
    made = config.build(V).eval()
    for parameter in made.reader.parameters():  # it tells texts apart
        if parameter.ndim > 1:
            parameter.data *= 6
    return made


def batches(texts, *sizes):
    edges = np.cumsum([0, *sizes])
    lots = [texts[a:b] for a, b in zip(edges, edges[1:], strict=False)]
    return [collate([[text] for text in lot]).to("cpu") for lot in lots]


def panel(model, some, step=LATE, total=TOTAL, **config):
    return ELBOConfig(**config).build(V).panel(model, some, step, total)


@torch.no_grad()
def direct(model, text, number, latent=None, draws=1):
    """One text alone: posterior, draws, and nats given each draw, from the model's own parts."""
    batch = collate([[text]]).to("cpu")
    posterior = model.posterior(batch)
    mean, logvar = posterior.mean, posterior.logvar
    source = np.random.default_rng([20040092, number])
    eps = torch.from_numpy(source.standard_normal((draws, 1, LATENT)))
    z = [mean + (logvar / 2).exp() * one for one in eps]
    z = z if latent is None else [latent]
    nll = []
    for one in z:
        states, _ = model(batch, model.latent(one.float(), batch))
        logits = model.head(states["dec"][0, batch.asks[TEXT].rows[:, 0]])
        nll.append(float(F.cross_entropy(logits, batch.asks[TEXT].label, reduction="sum")))
    return mean, logvar, torch.cat(z), nll


def test_panel_equals_direct_computation(model, texts):
    found = panel(model, batches(texts, 4, 3), kl_threshold=0.3).values
    own = [direct(model, text, i) for i, text in enumerate(texts)]
    mean, logvar, z = (torch.cat([one[part] for one in own]) for part in range(3))
    nll = np.array([one[3][0] for one in own])
    other = partners(len(texts))
    moved = [direct(model, text, 0, z[other[i]][None])[3][0] for i, text in enumerate(texts)]
    kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar)
    assert found["panel/reconstruction"] == pytest.approx(nll.mean(), rel=1e-5)
    assert found["panel/kl"] == pytest.approx(float(kl.sum(1).mean()), rel=1e-5)
    above = float((kl * (kl > 0.3)).sum(1).mean())
    assert found["panel/kl_objective"] == pytest.approx(above, rel=1e-5)
    assert found["panel/mi"] == pytest.approx(
        mutual_information(z, mean, logvar), rel=1.5e-5, abs=1.5e-5
    )
    assert found["panel/mi_ceiling"] == pytest.approx(math.log(7))
    assert found["panel/active"] == int((mean.var(0) >= 0.01).sum()) > 0
    assert found["panel/z_gap"] == pytest.approx(np.mean(moved - nll), rel=1e-4)
    assert abs(found["panel/z_gap"]) > 0.01
    each = [found[f"panel_kl/{i}"] for i in range(LATENT)]
    assert each == pytest.approx(kl.mean(0).tolist(), rel=1e-5)


@pytest.mark.parametrize("sizes", [(7,), (1, 2, 4), (1,) * 7])
def test_nothing_depends_on_the_batches(model, texts, sizes):
    whole, parts = (gather_evidence(model, batches(texts, *s), draws=3) for s in ((4, 3), sizes))
    for name in ("mean", "z", "kl", "nll", "bound"):
        assert torch.allclose(getattr(whole, name), getattr(parts, name), rtol=1e-5, atol=1e-5)


def test_bound_and_reconstruction_over_several_draws(model, texts):
    seen = gather_evidence(model, batches(texts, 7), draws=20)
    for i, text in enumerate(texts):
        mean, logvar, z, nll = direct(model, text, i, draws=20)
        weights = log_weight(torch.tensor(nll), z, mean, logvar)
        assert float(seen.nll[i]) == pytest.approx(np.mean(nll), rel=1e-5)
        assert float(seen.bound[i]) == pytest.approx(
            float(importance_bound(weights[:, None])), rel=1e-5
        )
        assert torch.allclose(seen.z[i].float(), z[0].float(), atol=1e-5)


def test_a_decoder_cut_off_from_its_latent(model, texts):
    some = batches(texts, 7)
    torch.nn.init.zeros_(model.memory.weight)
    torch.nn.init.zeros_(model.embedding.weight)
    found = panel(model, some, beta=Constant())
    assert found.values["panel/z_gap"] == 0
    assert found.values["panel/mi"] > 0.1  # the encoder is as it was
    assert "the decoder ignores the latent" in found.warning
    assert "--criterion.beta cyclical" in found.warning


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        ({"beta": Constant(), "kl_mode": "sum"}, ["beta cyclical", "kl-threshold"]),
        ({"beta": Constant(), "kl_threshold": 0.0}, ["beta cyclical", "kl-threshold"]),
        ({"beta": Cyclical(cycles=1)}, ["raise --criterion.kl-threshold"]),
        ({"beta": Cyclical(cycles=1), "kl_mode": "sum"}, ["kl-mode mask"]),
    ],
)
def test_the_remedy_fits_the_run(model, texts, config, warned):
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    text = panel(model, batches(texts, 7), **config).warning
    assert all(words in text for words in warned)
    assert ("cyclical" in text) == ("beta cyclical" in warned)


def test_no_warning_while_the_latent_need_not_be_used(model, texts):
    some = batches(texts, 7)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    assert panel(model, some, step=98, beta=Constant()).warning == ""
    assert panel(model, some, step=100, beta=Constant()).warning != ""
    assert panel(model, some, step=999, total=None, beta=Constant()).warning == ""
    assert panel(model, some, step=1000, total=None, beta=Constant()).warning != ""
    assert panel(model, some, beta=Constant(value=0.0)).warning == ""
    assert panel(model, some, step=400, beta=Cyclical(cycles=1)).warning == ""
    assert panel(model, some, step=900, beta=Cyclical(cycles=1)).warning != ""
    assert panel(model, some, step=400, beta=Linear(warmup=0.9, floor=1.0)).warning != ""


class Copier(Answers):
    """Knows each text by its first word: the latent is that word, the decoder writes only it."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(20.0))
        self.heads = SimpleNamespace(get=lambda name: Categorical(None, 0, None))

    def posterior(self, batch):
        word = F.one_hot(batch.towers["enc"][0, :, 1], V).float()
        return Posterior(self.scale * word, torch.full_like(word, -8.0))

    def latent(self, z_NZ, batch):
        return z_NZ

    def forward(self, batch, z_NZ):
        slots = batch.towers["dec"]
        return {"dec": z_NZ[slots[7]]}, SimpleNamespace()

    def head(self, asked, name):
        return asked.states[:, 0]


def test_a_latent_that_is_used_gives_a_gap_and_no_warning(toy_vocab):
    cls = registry.get("task", "optimus")
    task, rng = cls(cls.Config(), toy_vocab), np.random.default_rng(0)
    texts = [task.finetune([np.array([w])], np.array([w]), rng) for w in range(30, 46)]
    found = panel(Copier(), batches(texts, 16), beta=Constant())
    assert found.values["panel/z_gap"] == pytest.approx(20, rel=0.01)
    assert found.values["panel/mi"] == pytest.approx(math.log(16))
    assert found.values["panel/active"] == 16 and found.warning == ""


def test_one_text_has_nothing_to_compare(model, texts):
    assert panel(model, batches(texts, 1)) is None


def test_everyone_gets_the_latent_of_another():
    for count in (2, 3, 50):
        found = partners(count).tolist()
        assert sorted(found) == list(range(count))
        assert all(i != other for i, other in enumerate(found))


def test_draws_are_those_of_the_number():
    draws = noise([4, 2], LATENT)
    first, second = next(draws), next(draws)
    assert torch.equal(next(noise([2], LATENT)), first[1:])
    assert not torch.equal(first, second)


def test_bars_are_sorted():
    assert bars([0.0, 2.0, 1.0]) == f"2.000 {BARS[7]}{BARS[3]}{BARS[0]} 0.000"
    assert len(bars(list(range(768))).split()[1]) == WIDTH
    assert set(bars([0.0] * 4).split()[1]) == {BARS[0]}
    # of a model that diverges
    assert bars([1.0, math.inf, math.nan]) == f"inf {BARS[7] * 2}{BARS[0]} 1.000"
