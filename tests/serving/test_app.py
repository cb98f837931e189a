"""What the server answers is what the model says in Python; what it refuses, it explains."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import unitk

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

from unitk.api.drawing import drawings, lay_out_text  # noqa: E402  (after what may be missing)
from unitk.decoding.generator import Generator  # noqa: E402
from unitk.errors import UnitkError  # noqa: E402
from unitk.families.diffusion.mdlm import MDLM  # noqa: E402
from unitk.registry import get  # noqa: E402
from unitk.serving.app import Server  # noqa: E402
from unitk.serving.config import Limits  # noqa: E402
from unitk.serving.requests import Service  # noqa: E402
from unitk.serving.route import routes  # noqa: E402
from unitk.tasks.seq2seq import Seq2Seq  # noqa: E402
from unitk.vocab.base import MARKS, TYPED  # noqa: E402

TEXTS = ["It was a cold night", "The door", "She"]


@pytest.fixture(scope="module")
def mini():
    found = {name: unitk.load("unitk-base-en", task=name) for name in ("glm_infill", "lm")}
    for generator in found.values():
        generator.defaults = {}  # without the options of its generate.yaml
    return found


@pytest.fixture(scope="module")
def vae():
    return unitk.load("unitk-vae-en")


@pytest.fixture(scope="module")
def reader(toy_vocab):
    """A decoder with cross-attention."""
    task = Seq2Seq(Seq2Seq.Config(), toy_vocab)
    torch.manual_seed(0)
    arch = replace(get("arch", "bart_tiny")(), num_layers=2, width=32, num_heads=2, init_std=0.2)
    return Generator(arch.build(len(toy_vocab)).eval(), task)


@pytest.fixture
def serve(mini):
    def made(**limits):
        return Server(Service("mini", mini, Limits(**limits)))

    return made


def ask(server: Server, *requests: tuple[str, Any]) -> list[Any]:
    """The responses to requests that are sent at once: (address, what is posted, or None)."""

    async def main():
        app = server.app()
        transport = httpx.ASGITransport(app)
        async with (
            server.lifespan(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as client,
        ):
            return await asyncio.gather(*(send(client, *one) for one in requests))

    def send(client, path, body):
        if body is None:
            return client.get(path)
        data = body if isinstance(body, bytes) else json.dumps(body)
        return client.post(path, content=data, headers={"content-type": "application/json"})

    return asyncio.run(main())


def texts_of(outputs):
    return [[one.text for one in some] for some in outputs]


def answered(response):
    assert response.status_code == 200, response.text
    return [[one["text"] for one in some] for some in response.json()["outputs"]]


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "options",
    [
        {"beam": 3, "nbest": 2, "max_len": 6},
        {"sampling": True, "nbest": 2, "max_len": 6, "seed": 4},
        {"sampling": True, "best_of": 4, "sentences": 1, "max_len": 12},
        {"key_phrases": ["she", "door"], "beam": 2, "max_len": 4},
        {"prefixes": ["and", "", "of"], "beam": 2, "max_len": 4},
        {"constraints": [["cold"], [], ["door"]], "beam": 4, "max_len": 6},
        {"beam": 4, "diverse_beam_groups": 2, "nbest": 3, "max_len": 6},
    ],
)
def test_generate_is_that_of_python(serve, mini, options):
    [found] = ask(serve(), ("/generate", {"task": "lm", "texts": TEXTS, **options}))
    assert answered(found) == texts_of(mini["lm"].generate(TEXTS, **options))


def test_a_request_has_the_options_of_the_checkpoint_unless_it_gives_its_own(mini, monkeypatch):
    monkeypatch.setattr(UnitkError, "with_flags", False)  # as the command sets it
    meant = Generator(mini["glm_infill"].model, mini["glm_infill"].task, {"max_len": 3, "beam": 2})
    server = Server(Service("mini", {"glm_infill": meant}, Limits()))
    blank = {"texts": "The [MASK] sat.", "beam": 3}
    plain, own, draws, infill, model, wrong = ask(
        server,
        ("/generate", {"texts": TEXTS}),
        ("/generate", {"texts": TEXTS, "max_len": 5}),
        ("/generate", {"texts": TEXTS, "sampling": True}),
        ("/infill", blank),
        ("/model", None),
        ("/generate", {"texts": TEXTS, "nbest": 3}),
    )
    plainly = mini["glm_infill"]
    assert answered(plain) == texts_of(plainly.generate(TEXTS, beam=2, max_len=3))
    assert answered(plain) == texts_of(meant.generate(TEXTS))
    assert answered(own) == texts_of(plainly.generate(TEXTS, beam=2, max_len=5))
    assert answered(draws) == texts_of(plainly.generate(TEXTS, sampling=True, max_len=3))
    assert answered(infill) == texts_of(plainly.infill("The [MASK] sat.", beam=3, rerank="off"))
    assert model.json()["tasks"]["glm_infill"]["defaults"] == meant.defaults
    told = "nbest must be at most beam 2, got 3 (beam 2: the checkpoint's generate.yaml)"
    assert wrong.status_code == 400 and wrong.json()["error"] == told


def test_other_verbs_are_those_of_python(serve, mini):
    blanks, options = ["The [MASK] sat.", "A [MASK] and a [MASK]."], {"beam": 2, "max_len": 4}
    scored = {"texts": [*TEXTS, "", ""], "targets": ["one", "two words", "three", "four", ""]}
    infill, score, embed, empty = ask(
        serve(),
        ("/infill", {"texts": blanks, **options}),
        ("/score", {"task": "lm", **scored}),
        ("/embed", {"texts": TEXTS, "layer": 1}),
        ("/generate", {"texts": ["", "She"], "beam": 1, "max_len": 3}),
    )
    assert answered(infill) == texts_of(mini["glm_infill"].infill(blanks, **options))
    typed = [text.replace("[MASK]", "___") for text in blanks]
    [again] = ask(serve(), ("/infill", {"texts": typed, **options}))
    assert answered(again) == answered(infill)
    each = [one["log_prob"] for one in score.json()["outputs"]]
    wanted = [one.hypothesis.log_prob for one in mini["lm"].score(**scored)]
    np.testing.assert_allclose(each, wanted, rtol=1e-5)
    wanted = mini["glm_infill"].embed(TEXTS, layer=1)
    np.testing.assert_allclose(embed.json()["vectors"], wanted, rtol=1e-3, atol=1e-4)
    assert answered(empty)[0] == [""] and len(answered(empty)) == 2


def test_alignments_are_those_of_python(reader, serve, monkeypatch):
    monkeypatch.setattr(UnitkError, "with_flags", False)  # as the command sets it
    server = Server(Service("reader", {"seq2seq": reader}, Limits()))
    texts, options = ["The bade of a babe.", ["Ba", "Be bo"]], {"max_len": 5, "beam": 2, "nbest": 2}
    aligned, plain, low, deep, much, model = ask(
        server,
        ("/generate", {"texts": texts, "alignment_layer": 1, **options}),
        ("/generate", {"texts": texts, **options}),
        ("/generate", {"texts": texts, "alignment_layer": "x"}),
        ("/generate", {"texts": texts, "alignment_layer": 3}),
        ("/generate", {"texts": texts * 20, "alignment_layer": 0, "max_len": 1000, "nbest": 5}),
        ("/model", None),
    )
    found = reader.generate(texts, alignment_layer=1, **options)
    assert answered(aligned) == texts_of(found) == answered(plain)
    for some, outputs in zip(aligned.json()["outputs"], found, strict=True):
        for one, output in zip(some, outputs, strict=True):
            np.testing.assert_allclose(one["attention"], output.attention, atol=1e-5)
            assert one["source_tokens"] == reader.vocab.pieces(output.source)
            assert len(one["attention"]) == len(one["tokens"]) - 1
    assert "attention" not in plain.json()["outputs"][0][0]
    assert "whole number, got 'x'" in low.json()["error"]
    assert "alignment_layer must be 0 to 2, got 3" in deep.json()["error"]
    assert (
        much.status_code == 400
        and "weights, but an answer may have 1,000,000: ask for" in much.json()["error"]
    )
    assert model.json()["tasks"]["seq2seq"]["alignment_layers"]
    none, other = ask(
        serve(), ("/generate", {"texts": ["a"], "alignment_layer": 0}), ("/model", None)
    )
    assert none.status_code == 400 and "has no cross-attention; bart_*" in none.json()["error"]
    assert not any(one["alignment_layers"] for one in other.json()["tasks"].values())


def test_sources_are_as_long_as_in_training_unless_a_request_says_otherwise(reader, monkeypatch):
    monkeypatch.setattr(reader, "task", reader.task.with_trained(max_source=2))
    server = Server(Service("reader", {"seq2seq": reader}, Limits()))
    long, bare = {"texts": ["The bade of a babe."]}, {"max_source_len": None}
    pair, quick = long | {"targets": ["a mo"]}, {"max_len": 3}
    asked = [("/generate", long | quick), ("/generate", long | quick | bare)]
    asked += [("/generate", long | quick | {"max_source_len": 3}), ("/score", pair)]
    found = [one.json()["outputs"][0] for one in ask(server, *asked, ("/score", pair | bare))]
    limits = [2, None, 3]
    for some, limit in zip(found, limits, strict=False):
        [[best, *_]] = reader.generate(long["texts"], max_source_len=limit, **quick)
        assert some[0]["score"] == pytest.approx(best.hypothesis.score, rel=1e-5)
    for one, limit in zip(found[3:], limits, strict=False):
        [alone] = reader.score(long["texts"], pair["targets"], max_source_len=limit)
        assert one["score"] == pytest.approx(alone.hypothesis.score, rel=1e-5)
    assert found[0][0]["score"] != found[1][0]["score"] != found[2][0]["score"]
    assert found[3]["score"] != found[4]["score"]


@pytest.mark.slow
def test_predictions_are_those_of_python(trained):
    """Of each form; the page shows what is asserted here."""
    texts = {
        "classify": "dada lala",
        "regress": "dada",
        "tag": "dada lala dada",
        "span": ["where?", "dada lala"],
        "choice": ["dada", "lala", "dada lala"],
    }
    parts = {"classify": 1, "regress": 1, "span": 2, "choice": 3}
    for task, text in texts.items():
        model = unitk.load(trained(task))
        assert model.task.trained.parts == parts.get(task, model.task.trained.parts)
        own = {} if task in ("regress", "span") else {"probabilities": True}
        found, about, wrong = ask(
            Server(Service(task, {task: model}, Limits())),
            ("/predict", {"texts": [text], **own}),
            ("/model", None),
            ("/predict", {"texts": [text], "probabilities": "x"}),
        )
        [wanted] = model.predict([text], **own)
        assert found.json()["predictions"] == json.loads(json.dumps([wanted]))
        form = about.json()["tasks"][task]
        assert form["form"] == model.task.form and form["labels"] == list(model.task.trained.labels)
        assert wrong.status_code == 400 and "probabilities" in wrong.json()["error"]


def test_the_latent_space(vae):
    server, pair = (
        Server(Service("vae", {"optimus": vae}, Limits())),
        ["where do you live ?", "he ran home ."],
    )
    both = {"texts": pair, "steps": 3, "beam": 1}
    walk, points = ask(server, ("/latent/interpolate", both), ("/latent/encode", {"texts": pair}))
    ends = {"points": points.json()["points"], "beam": 1}
    [decoded] = ask(server, ("/latent/decode", ends))
    assert [answered(walk)[0], answered(walk)[2]] == answered(decoded)
    assert answered(decoded)[0] == ["where do you live ?"]
    far = {"points": [[1e10] * len(points.json()["points"][0])]}
    [refused] = ask(server, ("/latent/decode", far))
    assert refused.status_code == 400 and "numbers below 1e+09" in refused.json()["error"]


@pytest.mark.every(2)
@pytest.mark.parametrize("options", [{"beam": 2}, {"sampling": True, "seed": 3}])
def test_waiting_requests_are_joined_and_answered_as_alone(serve, mini, options):
    options |= {"max_len": 6}
    server = serve()
    requests = [("/generate", {"task": "lm", "texts": [one], **options}) for one in TEXTS * 3]
    found = ask(server, *requests)
    alone = [texts_of(mini["lm"].generate([one], **options)) for one in TEXTS * 3]
    assert [answered(one) for one in found] == alone
    assert server.batcher.joined == 9 and server.batcher.groups < 9


def test_requests_with_other_seeds_are_drawn_together_and_as_alone(serve, mini):
    server, options = serve(), {"sampling": True, "nbest": 2, "max_len": 6}
    own = [(one, options | {"seed": seed}) for one in TEXTS for seed in (0, 3, 2**40)]
    found = ask(server, *(("/generate", {"task": "lm", "texts": [one], **how}) for one, how in own))
    alone = [texts_of(mini["lm"].generate([one], **how)) for one, how in own]
    assert [answered(one) for one in found] == alone
    assert server.batcher.joined == 9 and server.batcher.groups < 9


def test_a_stream_grows_to_the_answer(serve):
    body = {"task": "lm", "texts": ["It was"], "sampling": True, "max_len": 12}
    plain, streamed, two = ask(
        serve(),
        ("/generate", body),
        ("/generate", body | {"stream": True}),
        ("/generate", body | {"stream": True, "nbest": 2}),
    )
    *grown, last = map(json.loads, streamed.text.splitlines())
    assert last == plain.json()
    texts = [one["text"] for one in grown]
    assert len(texts) > 5 and len(set(texts)) > 5
    assert all(last["outputs"][0][0]["text"].startswith(text) for text in texts)
    assert two.status_code == 400 and "stream needs one text" in two.json()["error"]


def nested(depth):
    """A list within a list, and so on."""
    return [nested(depth - 1)] if depth else 1


WRONG = {
    "generate": [
        ({"texts": ["a"], "beem": 3}, "no field 'beem'; did you mean beam?"),
        ({"sources": ["a"]}, "no field 'sources'; use texts"),
        ({"texts": ["a"], "beam": "x"}, "beam must be a whole number, got 'x'"),
        ({"texts": ["a"], "beam": {}}, "beam"),
        ({"texts": ["a"], "beam": 17}, "beam must be at most 16, got 17"),
        ({"texts": ["a"], "max_len": 2000}, "max_len must be at most 1024, got 2000"),
        ({"texts": ["a b c"], "max_len": "900x"}, "tokens of output"),
        ({"texts": ["a"], "bad_words": "/etc/passwd"}, "no field 'bad_words'"),
        ({"texts": ["a"], "task": "bert"}, "task must be one of glm_infill, lm, got 'bert'"),
        ({"texts": ["a"], "lenpen": float("inf")}, "must be"),
        ({"texts": ["a"], "unkpen": float("inf")}, "unkpen must be a finite number"),
        ({"texts": ["a"], "max_words": 10**40}, "max_words must be a whole number"),
        ({"texts": ["a"], "max_len": "9" * 400 + "x"}, "max_len"),
        ({"texts": ["a"], "min_len": "\ud800"}, "half a surrogate pair"),
        ({"texts": ["a"], "task": ["lm"]}, "task must be one of glm_infill, lm, got ['lm']"),
        ({"texts": ["a"] * 65}, "texts: 65 given; the server allows 64"),
        (
            {"texts": ["a" * 10_001]},
            "text 1 has 10001 characters; the server allows 10000",
        ),
        ({"texts": [3]}, "texts: text 1 must be a string, got 3"),
        ({"texts": ["\ud800"]}, "half a surrogate pair"),
        ({"\ud800": 1}, "half a surrogate pair"),
        ({"texts": []}, "texts must be a string or a list of one or more"),
        ({}, "texts must be a string or a list"),
        ([], "the request must be an object"),
        (b'{"texts": ["a"], "beam": 2, "beam": 3}', "'beam' twice"),
        (b'{"texts": ["a"], "beam": ' + b"9" * 5000 + b"}", "beam must be"),
        (b'{"texts": ["a"], "beam": 1e999}', "beam must be"),
        ({"texts": ["a"], "beam": [3]}, "beam must be one value, got a list"),
        ({"texts": ["a", "\U0001f469" * 3000]}, "text 2 has 12,0"),
        ({"texts": ["a", [""] * 20_000]}, "text 2 has 20000 parts"),
        (b"{" + b",".join(b'"%d":1' % (i % 59_000) for i in range(60_000)) + b"}", "' twice"),
        ({"texts": ["a"], "task": {"a": 1}}, "task must be one of glm_infill, lm"),
        ({"texts": ["a"], "constraints": [["a"] * 65]}, "constraints: 65 given"),
        *(
            ({"texts": ["a"]} | {name: nested(depth)}, said)
            for name in ("beam", "texts", "task", "constraints", "stream", "x")
            for depth, said in ((50, "nested too deeply"), (500, "deeply"), (900, "deeply"))
        ),
        ({"texts": {"a": 1}}, "texts must be a string or a list"),
        ({"texts": [[]]}, "texts: text 1 must be a string, got []"),
        ({"texts": ["a"], "prefixes": [["a", "b"]]}, "prefixes must be a list of strings"),
        ({"texts": ["a"], "constraints": ["a"]}, "constraints must be a list of phrases"),
        ({"texts": ["a"], "constraints": [[3]]}, "constraints: text 1 must be a string, got 3"),
        ({"texts": ["a"], "prefixes": ["a", "b"]}, "one for each source"),
        ({"texts": ["a"], "stream": 1}, "stream must be true or false"),
        (b"[1", "the request: not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "the request: not JSON"),
    ],
    "infill": [
        ({"texts": ["a [MASK]"], "sampling": True, "beam": 2}, "beam has no effect"),
        ({"texts": ["no blank"]}, "there is no blank in 'no blank'"),
        ({"texts": ["[MASK] " * 20]}, "tokens of output"),
        (
            {"texts": ["a [MASK]"], "task": "lm"},
            "lm can embed, generate, score, show; task glm_infill",
        ),
    ],
    "score": [({"texts": ["a"], "targets": []}, "targets must be a string or a list")],
    "show": [
        ({"texts": ["a"], "target": ["b", "c"]}, "target must be one string, got 2"),
    ],
    "predict": [({"texts": ["a"]}, "glm_infill can embed, generate, infill, score")],
    "embed": [
        (
            {"texts": ["word " * 1000] * 9, "pool": "none", "truncate": True},
            "numbers, but an answer may have 1,000,000",
        )
    ],
    "latent/decode": [({"points": [[0]]}, "/latent/decode: mini with task glm_infill can")],
}


def test_what_is_wrong_is_said(serve, monkeypatch):
    monkeypatch.setattr(UnitkError, "with_flags", False)  # as the command sets it
    cases = [(f"/{verb}", *case) for verb, some in WRONG.items() for case in some]
    found = ask(serve(), *((path, body) for path, body, _ in cases))
    for (path, body, words), response in zip(cases, found, strict=True):
        assert response.status_code == 400, (path, body, response.text)
        assert words in response.json()["error"], response.text
        assert "--" not in response.json()["error"]


def test_what_is_left_out_is_at_most_the_limit(mini, vae, monkeypatch):
    limits = Limits(max_beam=2, max_output=6)
    server = Server(Service("mini", mini, limits))
    own = {"texts": TEXTS, "task": "lm"}
    plain, drawn, filled, asked, scored = ask(
        server,
        ("/generate", own),
        ("/generate", own | {"sampling": True}),
        ("/infill", {"texts": ["The [MASK] sat."]}),
        ("/generate", own | {"beam": 3}),
        ("/score", own | {"targets": TEXTS}),
    )
    assert answered(plain) == texts_of(mini["lm"].generate(TEXTS, beam=2, max_len=6))
    assert answered(drawn) == texts_of(mini["lm"].generate(TEXTS, sampling=True, max_len=6))
    infilled = mini["glm_infill"].infill("The [MASK] sat.", beam=2, max_len=6)
    assert answered(filled) == texts_of(infilled)
    assert asked.status_code == 400 and "at most 2, got 3" in asked.json()["error"]
    assert scored.status_code == 200
    monkeypatch.setattr(mini["lm"], "defaults", {"beam": 8, "max_len": "2x+9", "lenpen": 0.0})
    [meant] = ask(server, ("/generate", own))
    own_options = {"beam": 2, "max_len": 6, "lenpen": 0}
    assert answered(meant) == texts_of(mini["lm"].generate(TEXTS, **own_options))
    [walked] = ask(
        Server(Service("vae", {"optimus": vae}, limits)),
        ("/latent/interpolate", {"texts": ["i know .", "he ran home ."], "steps": 3}),
    )
    assert len(walked.json()["outputs"]) == 3


def test_limits_have_their_status(serve):
    body = {"task": "lm", "texts": ["It was"], "beam": 16, "max_len": 1000, "min_len": 999}
    [late] = ask(serve(timeout=0.2), ("/generate", body))
    assert late.status_code == 504 and "0.2 seconds" in late.json()["error"]
    [large] = ask(serve(max_body=100), ("/generate", {"texts": ["a" * 200]}))
    assert large.status_code == 413 and "more than 100 bytes" in large.json()["error"]
    small = {"texts": ["a"], "max_len": 3}
    some = ask(serve(max_queue=1), *[("/generate", small | {"seed": i}) for i in range(9)])
    assert {one.status_code for one in some} == {200, 503}
    assert next(one for one in some if one.status_code == 503).headers["retry-after"] == "1"


def test_what_nobody_waits_for_is_not_computed_to_its_end(serve):
    body = {"task": "lm", "texts": ["It was"], "beam": 16, "max_len": 1000, "min_len": 999}
    begun = time.perf_counter()
    ask(serve(timeout=0.2), ("/generate", body))
    given_up = time.perf_counter() - begun
    short = body | {"max_len": 40, "min_len": 39}
    begun = time.perf_counter()
    ask(serve(), ("/generate", short))
    # 1,000 words take 25 times as long as 40, and more
    assert given_up < 0.2 + 10 * (time.perf_counter() - begun)


def test_the_passes_of_diffusion_end_when_nobody_waits(toy_vocab):
    torch.manual_seed(0)
    task = MDLM(MDLM.Config(), toy_vocab)
    made = Generator(get("arch", "mdlm_tiny")().build(len(toy_vocab)).eval(), task)

    def seconds(steps, timeout):
        """Until the thread of the model is free again."""
        server = Server(Service("mdlm", {"mdlm": made}, Limits(timeout=timeout)))
        body = {"texts": ["a"], "order": "ancestral", "steps": steps, "max_len": 8}
        begun = time.perf_counter()
        [found] = ask(server, ("/generate", body))
        server.batcher._thread.shutdown()
        return found.status_code, time.perf_counter() - begun

    short, (status, given_up) = seconds(100, 60), seconds(10_000, 0.2)
    assert status == 504 and given_up < 0.2 + 10 * short[1]


def test_addresses(serve):
    server = serve()
    health, model, lost, got, metrics = ask(
        server,
        ("/health", None),
        ("/model", None),
        ("/x", {}),
        ("/generate", None),
        ("/metrics", None),
    )
    assert health.json() == {"status": "ok", "model": "mini", "replaced": False, "waiting": 0}
    assert model.json()["tasks"]["glm_infill"]["blank"] == "[MASK]"
    assert model.json()["tasks"]["lm"]["verbs"] == ["embed", "generate", "score", "show"]
    assert lost.status_code == 404 and "/infill" in lost.json()["error"]
    assert got.status_code == 405 and "must be POST, got GET" in got.json()["error"]
    ask(server, ("/embed", {"texts": "a"}), ("/embed", {}))
    [metrics] = ask(server, ("/metrics", None))
    assert 'unitk_requests_total{verb="embed",status="200"} 1' in metrics.text
    assert 'unitk_requests_total{verb="embed",status="400"} 1' in metrics.text


def test_metrics_count_the_tokens_of_fills_and_of_walks(mini, vae):
    """Not what it costs to rank fills, and not the characters of texts."""
    server = Server(
        *(Service(name, one, Limits()) for name, one in [("mini", mini), ("vae", {"optimus": vae})])
    )
    blank, pair = "The [MASK] sat.", ["i know .", "he ran home ."]
    filled, walk, _ = ask(
        server,
        ("/infill", {"texts": blank, "nbest": 2}),
        ("/latent/interpolate", {"model": "vae", "texts": pair, "steps": 3}),
        ("/latent/encode", {"model": "vae", "texts": pair}),
    )
    [metrics] = ask(server, ("/metrics", None))
    read = sum(len(vae.vocab.encode(text)) for text in pair)
    wanted = {
        "infill": (len(mini["glm_infill"].encode_blanks(blank)[0]), filled),
        "latent/interpolate": (read, walk),
        "latent/encode": (read, None),
    }
    for verb, (tokens, response) in wanted.items():
        outputs = response.json()["outputs"] if response else []
        written = sum(len(one["tokens"]) for best in outputs for one in best)
        assert f'unitk_tokens_total{{verb="{verb}",kind="read"}} {tokens}\n' in metrics.text
        assert f'unitk_tokens_total{{verb="{verb}",kind="written"}} {written}\n' in metrics.text


def test_a_refusal_does_not_repeat_a_long_request(serve):
    long = "x" * 10_000
    found = ask(
        serve(),
        (f"/{long}", None),
        (f"/{long}", {}),
        (f"/v1/models/{long}", {}),
        (f"/v1/models/{long}", None),
        ("/generate", {"texts": "a", long: 1}),
        ("/generate", {"texts": "a", "task": long}),
    )
    assert [one.status_code for one in found] == [404, 404, 405, 404, 400, 400]
    assert all(len(one.content) < 1200 for one in found)


@pytest.mark.parametrize(
    "headers, wrong",
    [
        ({"content-type": "application/json"}, None),
        ({"content-type": 'Application/JSON; a=b;charset="UTF-8"'}, None),
        ({"content-type": "application/json ; charset=utf8; a=b"}, None),
        ({"content-encoding": "Identity"}, None),
        ({"content-type": "application/json; charset=latin-1"}, "content-type must be .* UTF-8"),
        ({"content-type": "application/json; a=b; Charset=UTF-16"}, "got '.*UTF-16'"),
        ({"content-type": "application/jsonl"}, "must be application/json .*'application/jsonl'"),
        ({"content-type": "x" * 9999}, "content-type"),
        *(
            ({"content-encoding": name}, f"content-encoding must be identity.*, got '{name}'")
            for name in ("gzip", "x-unknown", "gzip, identity", "identity, identity")
        ),
    ],
)
def test_a_body_that_is_not_plain_json_is_refused_by_its_headers(headers, wrong, serve):
    async def main():
        transport = httpx.ASGITransport(app := (server := serve()).app())
        given = {"content-type": "application/json"} | headers
        async with (
            server.lifespan(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as client,
        ):
            return await client.post("/embed", content=b'{"texts": "a"}', headers=given)

    found = asyncio.run(main())
    assert found.status_code == (415 if wrong else 200), found.text
    assert wrong is None or re.search(wrong, found.json()["error"])
    assert len(found.text) < 300 or not wrong


def test_a_form_of_another_site_is_refused(serve):
    async def main():
        transport = httpx.ASGITransport(serve().app())
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.post("/generate", data={"texts": "a"})

    assert asyncio.run(main()).status_code == 415


def test_the_page_needs_nothing_from_elsewhere(serve):
    page, style, draw, script = ask(
        serve(), *((path, None) for path in ("/", "/page.css", "/draw.js", "/page.js"))
    )
    for one in (page, style, draw, script):
        assert one.status_code == 200 and "http:" not in one.text and "https:" not in one.text
        assert "default-src 'self'" in one.headers["content-security-policy"]
    # every control is in a label, which screen readers say
    inside = "".join(re.findall(r"<label.*?</label>", page.text, re.S))
    assert len(re.findall(r"<(?:textarea|input)", page.text)) == len(
        re.findall(r"<(?:textarea|input)", inside)
    )
    # each part of the page is shown by the script, and what the script asks for is served
    panels = re.findall(r'panel\("(\w+)"', script.text)
    assert sorted(panels) == sorted(re.findall(r'<section id="(\w+)" hidden>', page.text)) != []
    # it marks the blanks that the server reads
    assert f"const BLANK = /{MARKS.pattern}|{TYPED.pattern}/;" in script.text
    asked = set(re.findall(r'(?:ask|answered)\("([\w/]+)"', script.text))
    assert asked and asked <= {*routes(), "models", "health"}


def test_the_objective_of_a_text_is_shown_as_on_the_command_line(serve, mini):
    body = {"texts": ["the quick brown fox"], "seed": 3}
    shown, missing, long, pair = ask(
        serve(),
        ("/show", body),
        ("/show", {"texts": [" "]}),
        ("/show", {"texts": ["word " * 200]}),
        ("/show", body | {"target": "a dog"}),
    )
    task, rng = mini["glm_infill"].task, np.random.default_rng([3, 0, 0])
    found = drawings("glm_infill", task, lay_out_text(task, body["texts"], None, rng))
    assert shown.json()["towers"] == [one.record() for one in found]
    assert missing.status_code == 400 and "the text has no words" in missing.text
    assert long.status_code == 400 and "can be shown" in long.text
    rng = np.random.default_rng([3, 0, 0])
    found = drawings("glm_infill", task, lay_out_text(task, body["texts"], "a dog", rng))
    assert pair.json()["towers"] == [one.record() for one in found]
