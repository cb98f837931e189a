"""Addresses of OpenAI's API answer what the model says in Python, in the shape of that API."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import pytest

import unitk

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

from unitk.errors import UnitkError  # noqa: E402  (after what may be missing)
from unitk.serving.app import Server  # noqa: E402
from unitk.serving.config import Limits  # noqa: E402
from unitk.serving.hosts import Guard  # noqa: E402
from unitk.serving.openai.spelling import Speller, find_stop, pieces_of, withhold_stops  # noqa: E402
from unitk.serving.requests import Service  # noqa: E402

PROMPT = "The water in the"
CELL = {"model": "mini", "prompt": "The cell is", "max_tokens": 12, "temperature": 0}
PASSAGE = "Oslo is the capital of Norway."


@pytest.fixture(scope="module")
def mini():
    return unitk.load("unitk-base-en", task="lm")


@pytest.fixture(scope="module")
def asker():
    return unitk.load("unitk-base-en-questions")


@pytest.fixture(scope="module")
def services(mini, asker):
    limits = Limits()
    return Service("mini", {"lm": mini}, limits), Service("asker", {"seq2seq": asker}, limits)


@pytest.fixture(autouse=True)
def as_served(monkeypatch):
    monkeypatch.setattr(UnitkError, "with_flags", False)


def ask(server, *requests, app=None):
    """The responses to requests that are sent at once: (address, what is posted, or None)."""

    async def main():
        inner = server.app()
        transport = httpx.ASGITransport(app(inner) if app else inner)
        async with (
            server.lifespan(inner),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            each = [
                client.get(path, **how) if body is None else client.post(path, json=body, **how)
                for path, body, how in ((*one, {})[:3] for one in requests)
            ]
            return await asyncio.gather(*each)

    return asyncio.run(main())


def complete(services, *bodies):
    found = ask(Server(*services), *(("/v1/completions", body) for body in bodies))
    assert [one.status_code for one in found] == [200] * len(bodies), found[0].text
    return [one.json()["choices"] for one in found]


def events(response):
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last = response.text.strip().split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_a_continuation_is_that_of_the_model(mini, services):
    [[[greedy]]] = [mini.generate(["The cell is"], beam=1, max_len=12, no_repeat_ngram_size=0)]
    body = CELL | {"no_repeat_ngram_size": 0, "logprobs": 2}
    [[found], [echoed]] = complete(services, body, body | {"echo": True})
    ids = greedy.hypothesis.ids
    whole = mini.vocab.decode([*mini.vocab.encode("The cell is"), *ids])
    assert "The cell is" + found["text"] == echoed["text"] == whole
    logprobs = found["logprobs"]
    assert "".join(logprobs["tokens"]) == found["text"]
    assert logprobs["token_logprobs"] == pytest.approx(
        greedy.hypothesis.token_log_probs[: len(logprobs["tokens"])].tolist(), rel=1e-4
    )
    # the most probable word was written, and it is among the alternatives
    for token, gain, tops in zip(*(logprobs[name] for name in NAMES), strict=True):
        assert tops[token] == gain == max(tops.values()) and len(tops) == 2


NAMES = "tokens", "token_logprobs", "top_logprobs"


def test_an_echo_has_the_log_probabilities_of_its_prompt(mini, services):
    text = "The cell is the basic  unit of life"
    body = {"model": "mini", "prompt": text, "max_tokens": 0, "echo": True, "logprobs": 1}
    ids = mini.vocab.encode(text)
    [[found], [same]] = complete(services, body, body | {"prompt": ids})
    [gains] = mini.likelihood([text])
    logprobs = found["logprobs"]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][1:] == pytest.approx(gains[1:].tolist(), rel=1e-4)
    assert found["text"] == "".join(logprobs["tokens"]) == text and len(ids) == len(gains)
    assert same["logprobs"]["token_logprobs"] == logprobs["token_logprobs"]
    offsets = logprobs["text_offset"]
    assert [text[a:b] for a, b in zip(offsets, [*offsets[1:], None], strict=True)] == (
        logprobs["tokens"]
    )


@pytest.mark.parametrize("prompt", ["The cell is the basic unit", "The"])
def test_an_echo_of_a_model_that_nothing_opens_has_all_but_the_first_token(prompt):
    model = unitk.load("unitk-base-en", task="lm", options={"task.lm.opening": "none"})
    body = {"model": "bare", "prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1}
    [[found]] = complete([Service("bare", {"lm": model}, Limits())], body)
    [gains] = model.likelihood([prompt])
    first, *others = found["logprobs"]["token_logprobs"]
    assert first is None and others == pytest.approx(gains.tolist(), rel=1e-4)
    assert len(found["logprobs"]["top_logprobs"]) == len(model.vocab.encode(prompt))


def test_draws_depend_on_the_seed_alone(services):
    body = {"model": "mini", "prompt": PROMPT, "max_tokens": 8, "seed": 5}
    two, again, both, best, other = complete(
        services,
        body | {"n": 2},
        body | {"n": 2},
        body | {"n": 2, "prompt": [PROMPT, "She"]},
        body | {"n": 1, "best_of": 2, "logprobs": 0},
        body | {"n": 2, "seed": -7},
    )
    texts = [one["text"] for one in two]
    assert texts == [one["text"] for one in again] == [one["text"] for one in both[:2]]
    assert [one["index"] for one in both] == [0, 1, 2, 3]
    assert best[0]["text"] in texts and len({*texts, *(one["text"] for one in other)}) > 2


def test_beams_are_those_of_the_search(mini, services):
    options = {"beam": 4, "nbest": 3, "max_len": 6}
    [best] = mini.generate([PROMPT], **options)
    body = {"model": "mini", "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "top_p": 0.5}
    [found] = complete(services, body | {"best_of": 4, "n": 3})
    assert [one["text"].strip() for one in found] == [one.text for one in best]


def approximately(values):
    """A list whose numbers, or tables of numbers, may differ by rounding."""
    kinds = float | dict
    return [pytest.approx(one, rel=1e-4) if isinstance(one, kinds) else one for one in values]


@pytest.mark.slow
def test_a_stream_adds_up_to_the_answer(services):
    draws = {"model": "mini", "prompt": PROMPT, "max_tokens": 12, "n": 2, "seed": 3}
    beam, told = {**CELL, "best_of": 3}, {"stream": True, "stream_options": {"include_usage": True}}
    chosen = draws | {"best_of": 4, "sentences": 1, "max_tokens": 40}
    bodies = [draws, CELL, beam, CELL | {"logprobs": 1}, chosen, chosen | {"best_of": 2}]
    bodies += [one | {"echo": True} for one in (draws, CELL, beam)]
    plain = complete(services, *bodies)
    found = ask(Server(*services), *(("/v1/completions", body | told) for body in bodies))
    for choices, response in zip(plain, found, strict=True):
        *parts, last = events(response)
        assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
        # of draws that are compared, only those that stay are told of
        assert {one["choices"][0]["index"] for one in parts} == set(range(len(choices)))
        for choice in choices:
            own = [
                one["choices"][0] for one in parts if one["choices"][0]["index"] == choice["index"]
            ]
            assert "".join(one["text"] for one in own) == choice["text"]
            # the last event is the answer but for its text, whatever either was computed beside
            assert own[-1].keys() == choice.keys()
            for name, value in choice.items():
                if name == "logprobs" and value:
                    for part, expected in value.items():
                        assert list(own[-1][name][part]) == approximately(expected)
                elif name != "text":
                    assert own[-1][name] == value
            assert {one["finish_reason"] for one in own[:-1]} <= {None}
    assert len(events(found[1])) > 8


def test_an_output_ends_before_a_stop_string(services):
    [[whole]] = complete(services, CELL)
    at = len(whole["text"]) // 2
    stop = whole["text"][at : at + 5]  # of several tokens, or parts of them
    body = CELL | {"stop": ["never", stop]}
    [[found], [seen]] = complete(services, body, body | {"logprobs": 0})
    assert found["text"] == whole["text"][: whole["text"].index(stop)] == seen["text"]
    assert (found["finish_reason"], whole["finish_reason"]) == ("stop", "length")
    assert found["text"] == "".join(seen["logprobs"]["tokens"])[: len(found["text"])]
    [streamed] = ask(Server(*services), ("/v1/completions", body | {"stream": True}))
    assert "".join(one["choices"][0]["text"] for one in events(streamed)) == found["text"]


def test_vectors_are_those_of_the_model(mini, services):
    texts = ["a cat", "The dog"]
    body = {"model": "mini", "input": texts}
    numbers, packed, ids = ask(
        Server(*services),
        ("/v1/embeddings", body),
        ("/v1/embeddings", body | {"encoding_format": "base64"}),
        ("/v1/embeddings", body | {"input": [mini.vocab.encode(text) for text in texts]}),
    )
    expected = mini.embed(texts)
    for response in (numbers, ids):
        found = [one["embedding"] for one in response.json()["data"]]
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-6)
    found = [base64.b64decode(one["embedding"]) for one in packed.json()["data"]]
    assert np.allclose([np.frombuffer(one, "<f4") for one in found], expected, 1e-5, 1e-6)
    assert packed.json()["usage"]["prompt_tokens"] == sum(
        len(mini.vocab.encode(one)) for one in texts
    )


def test_a_message_is_a_source(asker, services):
    [[expected, *_]] = asker.generate([["Oslo", PASSAGE]])
    parts = [{"type": "text", "text": part} for part in ("Oslo", PASSAGE)]
    found = ask(
        Server(*services),
        *(
            ("/v1/chat/completions", {"model": "asker", "messages": [message], **more})
            for message, more in (
                ({"role": "user", "content": f"Oslo\t{PASSAGE}"}, {}),
                ({"role": "user", "content": parts}, {"logprobs": True, "top_logprobs": 3}),
                ({"role": "user", "content": parts}, {"stream": True}),
            )
        ),
    )
    first, second = (one.json()["choices"][0] for one in found[:2])
    assert first["message"]["content"] == second["message"]["content"] == expected.text
    tokens = second["logprobs"]["content"]
    assert "".join(one["token"] for one in tokens) == expected.text
    assert all(len(one["top_logprobs"]) == 3 for one in tokens)
    deltas = [one["choices"][0]["delta"] for one in events(found[2])]
    assert "".join(one["content"] for one in deltas) == expected.text
    assert deltas[0]["role"] == "assistant"


USER = [{"role": "user", "content": f"Oslo\t{PASSAGE}"}]


@pytest.mark.parametrize(
    "address, body, status, param, said",
    [
        ("completions", {"model": "gpt-4"}, 404, "model", "must be one of mini, asker"),
        ("completions", {"n": 10**4}, 400, "n", "at most 16"),
        ("completions", {"n": True}, 400, "n", "an integer"),
        ("completions", {"n": 3, "best_of": 2}, 400, "best_of", "at least 3"),
        ("completions", {"best_of": 99}, 400, "best_of", "at most 16"),
        ("completions", {"prompt": ["a"] * 16, "n": 16}, 400, "n", "at most 4"),
        ("completions", {"max_tokens": 0}, 400, "max_tokens", "at least 1"),
        ("completions", {"max_tokens": 10**30}, 400, "max_tokens", ""),
        ("completions", {"max_tokens": "4"}, 400, "max_tokens", "an integer"),
        ("completions", {"temperature": "hot"}, 400, "temperature", "a number"),
        ("completions", {"temperature": -1}, 400, "temperature", "at least 0"),
        ("completions", {"top_p": 7}, 400, "top_p", "in (0, 1]"),
        ("completions", {"logprobs": -1}, 400, "logprobs", "at least 0"),
        ("completions", {"logprobs": 6}, 400, "logprobs", "at most 5"),
        ("completions", {"seed": 1.5}, 400, "seed", "an integer"),
        ("completions", {"stop": [""]}, 400, "stop", "none empty"),
        ("completions", {"stop": list("abcde")}, 400, "stop", "may have 4"),
        ("completions", {"stream": 1}, 400, "stream", "true or false"),
        ("completions", {"stream_options": {"include_usage": True}}, 400, "stream_options", ""),
        ("completions", {"stream_options": ""}, 400, "stream_options", ""),
        ("completions", {"suffix": "x"}, 400, "suffix", "left out"),
        ("completions", {"logit_bias": {"5": 1}}, 400, "logit_bias", "left out"),
        ("completions", {"frequency_penalty": 0.5}, 400, "frequency_penalty", "left out"),
        ("completions", {"max_len": 3}, 400, None, "'max_len'; use max_tokens"),
        ("completions", {"promt": "a"}, 400, None, "did you mean prompt"),
        ("completions", {"prompt": []}, 400, "prompt", "one or more"),
        ("completions", {"prompt": [1, 10**9]}, 400, "prompt", "the token 1000000000"),
        ("completions", {"prompt": [1, "a"]}, 400, "prompt", "a list of token ids"),
        ("completions", {"prompt": {"a": 1}}, 400, "prompt", "a string or a list"),
        ("completions", {"model": "asker", "prompt": "a\ta", "echo": True}, 400, "echo", "false"),
        ("completions", {"prompt": "a", "key_phrases": ["a"]}, 400, "key_phrases", "prompts"),
        ("chat/completions", {"messages": USER}, 400, None, "models that were trained on pairs"),
        ("chat/completions", {"model": "asker", "messages": []}, 400, "messages", "content"),
        ("chat/completions", {"model": "asker"}, 400, "messages", "content"),
        ("chat/completions", {"model": "asker", "messages": "a"}, 400, "messages", "user"),
        ("chat/completions", {"model": "asker", "messages": USER * 2}, 400, "messages", "2 given"),
        (
            "chat/completions",
            {"model": "asker", "messages": [{"role": "system", "content": "a"}]},
            *(400, "messages", "role 'system'"),
        ),
        (
            "chat/completions",
            {"model": "asker", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            *(400, "messages", "'image_url'"),
        ),
        (
            "chat/completions",
            {"model": "asker", "messages": USER, "tools": [{"type": "function"}]},
            *(400, "tools", "left out"),
        ),
        (
            "chat/completions",
            {"model": "asker", "messages": USER, "top_logprobs": 2},
            *(400, "top_logprobs", "without logprobs"),
        ),
        ("embeddings", {"input": ""}, 400, "input", "text 1 is empty"),
        ("embeddings", {"input": "a", "dimensions": 3}, 400, "dimensions", "384"),
        ("embeddings", {"input": "a", "encoding_format": "hex"}, 400, "encoding_format", "base64"),
        ("completions", ["a"], 400, None, "field 'prompt', got ['a']"),
        ("chat/completions", "a", 400, None, "field 'messages'"),
        ("embeddings", 3, 400, None, "field 'input'"),
        ("nothing", {}, 404, None, "/v1/completions"),
    ],
)
def test_what_cannot_be_is_refused_in_the_shape_of_the_api(
    services, address, body, status, param, said
):
    [found] = ask(Server(*services), (f"/v1/{address}", body))
    error = found.json()["error"]
    assert (found.status_code, error["param"]) == (status, param), error
    assert said in error["message"] and error["type"] == "invalid_request_error"


def test_models_are_listed(services):
    every, one, none = ask(
        Server(*services),
        *((f"/v1/models{name}", None) for name in ("", "/asker", "/gpt-4")),
    )
    assert [model["id"] for model in every.json()["data"]] == ["mini", "asker"]
    assert one.json() == every.json()["data"][1]
    assert none.status_code == 404 and none.json()["error"]["code"] == "model_not_found"


def test_a_character_comes_whole():
    text = "naïve — 日本語 🙂"

    def decode(ids):
        return bytes(ids).decode(errors="replace")

    speller = Speller(decode, b"so ")
    grown = [speller.add([byte]) for byte in text.encode()]
    assert all(text.startswith(one) for one in grown) and grown[-1] == text
    assert "".join(speller.pieces) == text == speller.end()
    half = Speller(decode)
    half.add("é".encode()[:1])
    assert half.text == "" and half.end() == "\ufffd" == "".join(half.pieces)


def test_no_part_of_a_stop_string_is_seen():
    text, stops = "one two three END four", ["END", "three X"]
    seen = [withhold_stops(text[:length], stops) for length in range(len(text) + 1)]
    assert seen[-1] == text[: find_stop(text, stops)] == text[:14]
    assert all(b.startswith(a) for a, b in zip(seen, seen[1:], strict=False))
    assert pieces_of("a  bc d", [(0, 1), (3, 5), (6, 7)]) == ["a", "  bc", " d"]


@pytest.mark.slow
def test_its_own_client_is_served(serving, tmp_path):
    openai = pytest.importorskip("openai")
    with serving("unitk-base-en") as where:
        client = openai.OpenAI(base_url=f"{where}/v1", api_key="any", max_retries=0)
        name = client.models.list().data[0].id
        body = {"model": name, "prompt": PROMPT, "max_tokens": 5, "temperature": 0}
        text = client.completions.create(**body).choices[0].text
        parts = client.completions.create(**body, stream=True)
        assert "".join(part.choices[0].text for part in parts) == text
        one, other = (
            client.embeddings.create(model=name, input="a", **form).data[0].embedding
            for form in ({}, {"encoding_format": "float"})
        )
        assert one == pytest.approx(other, rel=1e-5)
        with pytest.raises(openai.NotFoundError, match="unitk-base-en"):
            client.completions.create(model="gpt-4", prompt="a")
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=name, messages=USER)
        assert "pairs" in caught.value.body["message"]


def test_addresses_below_a_root(services):
    found = ask(
        Server(*services),
        *(
            (path, None)
            for path in ("/at/v1/models", "/v1/models", "/at/", "/at", "/atv1", "/at/health/")
        ),
        app=lambda inner: Guard(inner, ["localhost"], root="/at"),
    )
    assert [one.status_code for one in found] == [200, 200, 200, 307, 404, 404]
    assert found[3].headers["location"] == "/at/"
