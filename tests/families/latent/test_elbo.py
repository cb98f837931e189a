"""The bound against a few lines of plain torch in double precision, and what its switches mean."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from unitk import registry
from unitk.errors import UsageError
from unitk.families.latent.components import ELBOConfig
from unitk.optim.schedules import Constant, Cyclical, Linear
from unitk.slots import collate

V, LATENT, TEXTS, STEP, TOTAL = 60, 5, 3, 29, 40  # of 40 updates, beta is 0.9 in the 30th
INJECTIONS = ("both", "memory", "embedding")
MODES = ("sum", "mask", "hinge", "mean-hinge")


def build(inject="both", **settings):
    """A small model in double precision whose latents say something."""
    torch.manual_seed(3)
    config = replace(
        registry.get("arch", "optimus_tiny")(), inject=inject, latent=LATENT, init_std=0.2
    )
    model = replace(config, **settings).build(V).double()
    for parameter in model.reader.parameters():  # it tells texts apart
        if parameter.ndim > 1:
            parameter.data *= 6
    return model


@pytest.fixture(scope="module")
def texts(texts_of):
    return texts_of(7, 2, 4)


def reference(model, texts, noise, *, mode, limit, beta, weighted):
    """The loss: one text at a time, without slots, masks, packing or shared code."""
    config, w = model.config, dict(model.named_parameters())
    heads, width = config.num_heads, config.width

    def attend(x, prefix, stem, causal, memory):
        qkv = x @ w[f"{prefix}{stem}.qkv.weight"].T + w[f"{prefix}{stem}.qkv.bias"]
        query, key, value = qkv.split(width, -1)
        if memory is not None:
            key, value = torch.cat([memory[None], key]), torch.cat([memory[None], value])
        out = []
        for h in range(heads):
            k = slice(h * width // heads, (h + 1) * width // heads)
            score = query[:, k] @ key[:, k].T / math.sqrt(width // heads)
            if causal:
                seen = torch.ones(len(x), len(key)).tril(len(key) - len(x)).bool()
                score = score.masked_fill(~seen, -math.inf)
            out.append(score.softmax(-1) @ value[:, k])
        mixed = torch.cat(out, -1)
        return mixed @ w[f"{prefix}{stem}.out.weight"].T + w[f"{prefix}{stem}.out.bias"]

    def norm(x, name, eps):
        return F.layer_norm(x, (width,), w[f"{name}.weight"], w[f"{name}.bias"], eps)

    def ffn(x, prefix, approximate):
        up = x @ w[f"{prefix}ffn.up.weight"].T + w[f"{prefix}ffn.up.bias"]
        inner = F.gelu(up, approximate=approximate)
        return inner @ w[f"{prefix}ffn.down.weight"].T + w[f"{prefix}ffn.down.bias"]

    def encode(ids):  # BERT
        e = "encoder.embed."
        x = w[e + "tokens.weight"][ids] + w[e + "positions.weight"][: len(ids)]
        x = norm(x + w[e + "segments.weight"][0], e + "norm", 1e-12)
        for layer in range(2):
            p = f"encoder.layers.{layer}."
            x = norm(x + attend(x, p, "attention", False, None), p + "attention_norm", 1e-12)
            x = norm(x + ffn(x, p, "none"), p + "ffn_norm", 1e-12)
        pooled = torch.tanh(x[0] @ w["pool.weight"].T + w["pool.bias"])
        return (pooled @ w["bridge.weight"].T).split(LATENT)

    def decode(ids, z):  # GPT-2, positions from 1 where there is a memory
        first = int("memory.weight" in w)
        x = w["embed.tokens.weight"][ids] + w["embed.positions.weight"][first : first + len(ids)]
        memories = [None, None]
        if "embedding.weight" in w:
            x = x + z @ w["embedding.weight"].T
        if first:
            memories = (z @ w["memory.weight"].T).split(width)
        for layer in range(2):
            p = f"layers.{layer}."
            x = x + attend(
                norm(x, p + "attention_norm", 1e-5), p, "attention", True, memories[layer]
            )
            x = x + ffn(norm(x, p + "ffn_norm", 1e-5), p, "tanh")
        return norm(x, "norm", 1e-5) @ w["embed.tokens.weight"].T

    recs, kls = [], []
    for text, eps in zip(texts, noise, strict=True):
        ids = torch.tensor(text.towers["enc"].token)  # C x S
        mean, logvar = encode(ids)
        z = mean + torch.exp(0.5 * logvar) * eps
        rec = F.cross_entropy(decode(ids[:-1], z), ids[1:], reduction="sum")
        recs.append(rec / len(ids) if weighted else rec)
        kls.append(0.5 * (mean**2 + logvar.exp() - logvar - 1))
    kl = torch.stack(kls)
    counted = {
        "sum": lambda: kl.sum(1).mean(),
        "mask": lambda: (kl * (kl > limit)).sum(1).mean(),
        "hinge": lambda: torch.maximum(kl, kl.new_tensor(limit)).sum(1).mean(),
        "mean-hinge": lambda: torch.maximum(kl.mean(0), kl.new_tensor(limit)).sum(),
    }[mode]()
    return torch.stack(recs).mean() + beta * counted, kl


def noise_of(seed, count):
    torch.manual_seed(seed)
    return torch.randn(count, LATENT, dtype=torch.float64)


def run(model, texts, rows, **options):
    """The criterion's loss, with the same noise, as the loop divides it."""
    batch = collate([[texts[i] for i in row] for row in rows]).to("cpu")
    batch.asks["lm"] = replace(batch.asks["lm"], weight=batch.asks["lm"].weight.double())
    criterion = ELBOConfig(beta=Cyclical(cycles=1), **options).build(V)
    torch.manual_seed(5)
    loss = criterion(model.train(), batch, STEP, TOTAL)
    counts = criterion.counts(batch)
    return sum(loss.sums[name] / counts[name] for name in loss.sums), loss, counts


def gradients(model, total):
    model.zero_grad()
    total.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    ("inject", "mode", "weighted"), list(product(INJECTIONS, MODES, (False, True)))
)
def test_loss_and_gradients_are_the_reference(texts, inject, mode, weighted):
    model = build(inject)
    free = {} if mode == "sum" else {"kl_threshold": 0.4}
    for rows in ([[0], [1], [2]], [[0, 1], [2]], [[0, 1, 2]]):  # padded, and packed
        ours, loss, counts = run(model, texts, rows, kl_mode=mode, length_weighted=weighted, **free)
        theirs, kl = reference(
            model, texts, noise_of(5, TEXTS), mode=mode, limit=0.4, beta=0.9, weighted=weighted
        )
        assert ours.item() == pytest.approx(theirs.item(), abs=1e-8)
        assert loss.parts["kl/raw"].item() == pytest.approx(kl.sum().item(), abs=1e-8)
        assert loss.parts["kl/beta"].item() / counts["kl"] == pytest.approx(0.9)
        here, there = gradients(model, ours), gradients(model, theirs)
        for name in here:
            assert torch.allclose(here[name], there[name], atol=1e-8), name
            assert here[name].any(), f"{name} has no gradient"
    assert (kl < 0.4).any() and (kl > 0.4).any()  # the threshold was put to use


def test_the_noise_can_be_given(texts):
    model, noise = build(), noise_of(7, TEXTS)
    batch = collate([[text] for text in texts]).to("cpu")
    criterion = ELBOConfig(kl_mode="sum").build(V)
    given = criterion(model.train(), batch, STEP, TOTAL, noise).sums
    torch.manual_seed(7)
    drawn = criterion(model.train(), batch, STEP, TOTAL).sums
    assert given == drawn
    other = criterion(model.train(), batch, STEP, TOTAL, -noise).sums
    assert other["rec"] != given["rec"] and other["kl"] == given["kl"]


def test_mask_and_hinge_have_one_gradient_and_two_values(texts):
    model = build()
    results = []
    for mode in ("mask", "hinge"):
        total, _, _ = run(model, texts, [[0], [1], [2]], kl_mode=mode, kl_threshold=0.4)
        results.append((total.item(), gradients(model, total)))
    (one, here), (other, there) = results
    assert other - one > 0.1
    assert all(torch.allclose(here[name], there[name], atol=1e-12) for name in here)


def test_the_nats_of_a_text_are_those_of_its_tokens(texts):
    model = build()
    total, loss, counts = run(model, texts, [[0, 1], [2]], kl_mode="sum")
    assert counts == {"rec": 3, "kl": 3, "lm": 8 + 3 + 5}  # each text's words and its end
    assert loss.sums["rec"].item() == pytest.approx(loss.parts["lm/nll"].item())
    _, weighted, _ = run(model, texts, [[0, 1], [2]], kl_mode="sum", length_weighted=True)
    assert weighted.parts["lm/nll"].item() == pytest.approx(loss.parts["lm/nll"].item())


def test_validation_takes_the_beta_that_is_risen_to(texts):
    model = build().eval()
    batch = collate([[text] for text in texts]).to("cpu")
    criterion = ELBOConfig(beta=Cyclical(value=0.5, cycles=1), kl_mode="sum").build(V)
    loss = criterion(model, batch, 0, TOTAL)  # the first update of the run, where beta is 0
    assert loss.sums["kl"].item() == pytest.approx(0.5 * loss.parts["kl/raw"].item())
    assert criterion(model.train(), batch, 0, TOTAL).sums["kl"] == 0


def test_where_beta_is_0_both_networks_train(texts):
    model = build()
    batch = collate([[text] for text in texts]).to("cpu")
    loss = ELBOConfig(kl_mode="sum").build(V)(model.train(), batch, 0, TOTAL)
    grads = gradients(model, loss.sums["rec"] + loss.sums["kl"])
    assert all(grad.any() for grad in grads.values())


def test_aggressive_updates_leave_the_decoder_alone(texts):
    model = build()
    batch = collate([[text] for text in texts]).to("cpu")
    criterion = ELBOConfig(aggressive_steps=2, aggressive_share=0.5).build(V)
    decoder = {id(p) for p in model.generator_parameters()}
    assert len(decoder) < len(list(model.parameters()))
    for step in range(12):
        model.zero_grad()
        loss = criterion(model.train(), batch, step, 12)
        loss.sums["rec"].backward()
        both = step in (2, 5) or step >= 6  # every third one, and all in the second half
        for name, parameter in model.named_parameters():
            assert (parameter.grad is not None) == (both or id(parameter) not in decoder), name


def test_aggressive_updates_keep_frozen_weights_frozen(texts):
    model = build()
    frozen = model.decoder.requires_grad_(False)
    batch = collate([[text] for text in texts]).to("cpu")
    criterion = ELBOConfig(aggressive_steps=1, aggressive_share=0.5).build(V)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    with torch.no_grad():
        criterion(model.train(), batch, 0, 4)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == trained
    for step in range(4):
        criterion(model.train(), batch, step, 4)
        assert not any(p.requires_grad for p in frozen.parameters())
    assert {name for name, p in model.named_parameters() if p.requires_grad} == trained


def test_a_run_of_aggressive_updates_needs_an_end(texts):
    batch = collate([[text] for text in texts]).to("cpu")
    criterion = ELBOConfig(beta=Constant(), aggressive_steps=1).build(V)
    with pytest.raises(UsageError, match="--max-steps"):
        criterion(build().train(), batch, 0, None)


def test_what_is_refused():
    with pytest.raises(UsageError, match="--criterion.beta linear.* 0.*constant:warmup"):
        ELBOConfig(beta=Linear())
    with pytest.raises(UsageError, match="--criterion.kl-threshold "):
        ELBOConfig(kl_mode="sum", kl_threshold=0.1)
    with pytest.raises(UsageError, match="--criterion.aggressive-share "):
        ELBOConfig(aggressive_share=0.5)
    with pytest.raises(UsageError, match="--arch .*latent.* optimus_small"):
        model = registry.get("arch", "glm_tiny")().build(V)
        ELBOConfig().build(V)(model, None, 0, 1)
