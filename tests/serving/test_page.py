"""The page in a browser: every panel of every kind of model answers; the console is silent."""

from __future__ import annotations

import json
import math
import shutil
import urllib.request
from contextlib import contextmanager

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

import unitk  # noqa: E402  (after what may be missing)
from unitk.files import seal  # noqa: E402  (after what may be missing)

pytestmark = pytest.mark.slow

PANELS = {
    "unitk-base-en": ["fill", "continue", "show"],
    "unitk-base-en-questions": ["ask", "show"],
    "unitk-base-en-summaries": ["write", "show"],
    "unitk-vae-en": ["walk", "show"],
}
TRAINED = {
    ("lm", False): ["continue", "show"],
    ("mlm", False): ["fill", "show"],
    ("mdlm", False): ["fill", "continue", "show"],
    ("mass", False): ["fill", "write", "show"],
    ("bart", False): ["fill", "write", "show"],
    ("t5", False): ["fill", "write", "show"],
    ("xlnet", False): ["continue", "show"],
    ("optimus", False): ["walk", "show"],
    ("unilm", True): ["write", "show"],
    ("seq2seq", True): ["write", "show"],
    ("classify", False): ["predict", "show"],
    ("regress", False): ["predict", "show"],
    ("tag", False): ["predict", "show"],
    ("span", False): ["predict", "show"],
    ("choice", False): ["predict", "show"],
}
"""What is trained on text, or on pairs of one part each, and the panels that it has."""


ODD = [
    "ein Straßenbahnüberführung [MASK]",
    "今天天气 [MASK]",
    "日本語 [MASK] です",
    "한국어 [MASK]",
    "مرحبا [MASK]",
    "שלום [MASK]",
    "Привет [MASK]",
    "Γειά [MASK]",
    "नमस्ते [MASK]",
    "สวัสดี [MASK]",
    "አማርኛ [MASK]",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 [MASK]",
    "e\u0301 [MASK] e\u0301",
    "\u202etxet [MASK]",
    "\u200b [MASK] \u200b",
    '<b>bold</b> [MASK] & "quotes"',
    "𝕌𝕟𝕚𝕥𝕜 [MASK]",
    "a\tb [MASK]",
    "გამა [MASK]",
    "[MASK]",
]


@contextmanager
def opened(browser, where, width=1200, scheme="light"):
    """The page, which must neither write to the console nor be wider than the window."""
    page, said = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(where)
    page.wait_for_selector("#show:visible")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    yield page
    # Chromium itself writes of a response with an error
    assert [one for one in said if "Failed to load resource" not in one] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def press(page, panel):
    """Press the button of a panel, by the keyboard, and wait for its answer."""
    page.focus(f"#{panel} form button")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#{panel}:not([aria-busy]) form button:enabled", timeout=60_000)


def panels_of(page):
    return [one.get_attribute("id") for one in page.query_selector_all("section:visible")]


def assert_panels_answer(page, name, panels):
    """Every panel answers; the mask is read by the keyboard."""
    assert panels_of(page) == panels
    for panel in panels:
        press(page, panel)
        assert page.inner_text("#error") == "", (name, panel)
        assert page.inner_text(f"#{panel} .answer"), (name, panel)
    page.focus("#show tbody tr")
    page.keyboard.press("ArrowDown")
    row = "document.querySelectorAll('#show tbody tr')[1]"
    assert page.evaluate(f"document.activeElement === {row}"), "the arrow chooses the next slot"
    assert " sees " in page.inner_text("#show .mask p:not(.more)")


@pytest.mark.parametrize("width, scheme", [(390, "dark"), (1200, "light")])
@pytest.mark.parametrize("name", PANELS)
def test_every_panel_answers(serving, browser, name, width, scheme):
    with serving(name) as where, opened(browser, where, width, scheme) as page:
        assert_panels_answer(page, name, PANELS[name])


@pytest.mark.parametrize("task, pairs", TRAINED)
def test_what_a_model_can_do_is_shown(serving, browser, trained, task, pairs):
    with serving(trained(task, pairs)) as where, opened(browser, where, 390) as page:
        assert_panels_answer(page, task, TRAINED[task, pairs])


def test_an_imported_model_writes_and_shows_pairs(serving, browser, trained, tmp_path):
    """It has seen no data, so nothing says that it was trained on pairs."""
    path, [checkpoint] = tmp_path / "model", (trained("seq2seq", True) / "checkpoints").iterdir()
    shutil.copytree(checkpoint, path)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"kind": "text", "parts": 0}))
    seal(path)
    with serving(path) as where, opened(browser, where) as page:
        assert_panels_answer(page, "imported", ["write", "show"])


def post(where, path, body):
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{where}/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_the_alignment_is_that_of_the_model(serving, browser, trained):
    text = "The bade of a babe."
    body = {"texts": [text], "beam": 2, "nbest": 2, "max_len": 6, "min_len": 3}
    body["no_repeat_ngram_size"] = 3
    with serving(trained("seq2seq", True)) as where, opened(browser, where) as page:
        page.fill("#write textarea", text)
        for name in ("beam", "max_len", "min_len"):
            page.fill(f"#write [name={name}]", str(body[name]))
        assert page.input_value("#write [name=alignment_layer]") == "2"
        for layer in (2, 1):
            page.fill("#write [name=alignment_layer]", str(layer))
            press(page, "write")
            outputs = post(where, "generate", body | {"alignment_layer": layer})["outputs"][0]
            assert len(page.query_selector_all("#write tbody tr")) == 2
            for number, output in enumerate(outputs):
                page.check(f"#write tbody tr:nth-child({number + 1}) input")
                page.focus("#write .output button")
                for at, row in enumerate(output["attention"]):
                    if at:
                        page.keyboard.press("ArrowRight")
                    pressed = page.query_selector_all("#write .output button[aria-pressed=true]")
                    assert [one.inner_text() for one in pressed] == [
                        output["tokens"][at].replace("▁", " ")
                    ]
                    weights = page.eval_on_selector_all(
                        "#write .source span",
                        "all => all.map(one => +one.style.getPropertyValue('--weight'))",
                    )
                    assert weights == pytest.approx([one / max(row) for one in row], rel=1e-3)
                    most = output["source_tokens"][row.index(max(row))].strip("▁")
                    told = page.inner_text("#write .alignment p[aria-live]")
                    assert f"looks at {most} {100 * max(row):.1f} %" in told
                page.keyboard.press("Home")
                first = "document.querySelector('#write .output button')"
                assert page.evaluate(f"document.activeElement === {first}")


DRAWN = r"""() => {
  const said = {
    tags: ["B-PER", "I-PER", "O", "O", "B-LOC"], probabilities: [0.5, 0.5, 1, 1, 0.9],
  };
  const words = tagged(["Ann", "Lee", "is", "in", "Rome"], said, ["B-LOC", "B-PER", "I-PER", "O"]);
  const hue = word => word.style.getPropertyValue("--hue");
  const passage = "\u{1f600} in Oslo, Oslo", found = {answer: "Oslo", start: 11, probability: 0.8};
  const [about, text] = marked(passage, found);
  return {
    tagged: words.textContent,
    hues: [...words.querySelectorAll("mark")].map(hue),
    about: about.textContent,
    text: text.innerHTML,
    pieces: [["▁a", "b", "▁c"], ["[CLS]", "un", "##it"], ["a", "b"]].map(spelled),
    untagged: tagged(["a", "b"], {tags: ["O", "O"], probabilities: [1, 1]}, ["O"]).textContent,
    none: marked("x", {answer: "", start: -1, probability: 0.8}).map(one => one.textContent),
  };
}"""


def test_predictions_are_drawn(serving, browser, trained):
    with serving(trained("classify")) as where, opened(browser, where) as page:
        page.fill("#predict textarea", "dada | lala")  # one part: the bar is a part of the text
        press(page, "predict")
        body = {"texts": ["dada | lala"], "probabilities": True}
        [said] = post(where, "predict", body)["predictions"]
        rows = page.eval_on_selector_all(
            "#predict tbody tr",
            "all => all.map(one => [one.cells[0].innerText, one.querySelector('meter').value])",
        )
        assert dict(rows) == said["probabilities"] and rows[0][0] == said["label"]
        drawn = page.evaluate(DRAWN)
        assert drawn["tagged"] == "Ann B-PER 50.0 % Lee I-PER 50.0 % is in Rome B-LOC 90.0 % "
        assert drawn["untagged"].startswith("a b ") and "No word" in drawn["untagged"]
        assert len(set(drawn["hues"][:2])) == 1 and len(set(drawn["hues"])) == 2
        assert drawn["text"] == "\U0001f600 in Oslo, <mark>Oslo</mark>"
        assert drawn["pieces"] == [[" a", "b", " c"], [" [CLS]", " un", "it"], [" a", " b"]]
        assert drawn["about"] == "Answer: Oslo (probability 80.0 %)"
        assert drawn["none"] == ["The passage has no answer (probability 80.0 %)", "x"]


def test_an_answer_is_selected_and_its_surroundings_are_asked_about(serving, browser):
    with serving("unitk-base-en-questions") as where, opened(browser, where) as page:
        text = " ".join(f"w{i}" for i in range(300)).replace("w200", "Oslo w200")
        page.fill("#ask textarea", text)
        at = text.index("Oslo")
        page.eval_on_selector(
            "#ask textarea", f"one => {{ one.focus(); one.setSelectionRange({at - 1}, {at + 4}); }}"
        )
        chosen = "() => document.querySelector('#ask [name=answer]').value === 'Oslo'"
        page.wait_for_function(chosen)
        page.focus("#ask textarea")
        page.keyboard.press("Control+A")  # to write another passage, not to ask about this one
        page.wait_for_timeout(100)
        assert page.evaluate(chosen)
        page.fill("#ask [name=answer]", "Rome" * 99)
        press(page, "ask")
        assert len(told := page.inner_text("#error")) < 200 and "Rome" in told
        page.fill("#ask [name=answer]", "Oslo")
        for place in (0, at, len(text) - 3):
            some = page.evaluate("([text, at]) => around(text, at, 96)", [text, place])
            assert some in text and text[place : place + 4] in some
            assert len(some.split()) == 64
        assert page.evaluate("around('a b  c', 0, 96)") == "a b  c"
        with page.expect_request("**/generate") as sent:
            press(page, "ask")
        [[answer, passage]] = sent.value.post_data_json["texts"]
        assert answer == "Oslo" and "Oslo w200" in passage and "w100" not in passage


CONTROLS = {
    "fill": {"text": "A ___ sat.", "beam": "2", "max_len": "5"},
    "continue": {
        **{"text": "He", "sentences": "2", "max_len": "3", "temperature": "1.2", "seed": "9"}
    },
    "ask": {
        **{"text": "Rome is old.", "answer": "Rome", "beam": "2", "max_len": "9"},
        "no_repeat_ngram_size": "2",
    },
    "write": {
        **{"text": "a | b", "beam": "2", "min_len": "1", "max_len": "3"},
        "no_repeat_ngram_size": "2",
    },
    "walk": {"from": "I know.", "to": "he ran home .", "steps": "9"},
    "show": {"task": "lm", "text": "a dog", "target": "a cat", "seed": "3"},
}
SENT = {
    "fill": {"task": "glm_infill", "texts": ["A ___ sat."], "beam": 2, "nbest": 2, "max_len": 5},
    "continue": {
        **{"task": "lm", "prompt": "He", "stream": True},
        **{"sentences": 2, "best_of": 8, "max_tokens": 3, "temperature": 1.2, "seed": 9},
    },
    "ask": {
        **{"task": "glm_infill", "texts": [["Rome", "Rome is old."]], "beam": 2, "nbest": 2},
        **{"max_len": 9, "no_repeat_ngram_size": 2},
    },
    "write": {
        **{"task": "glm_infill", "texts": [["a", "b"]], "beam": 2, "nbest": 2},
        **{"min_len": 1, "max_len": 3, "max_source_len": 96, "no_repeat_ngram_size": 2},
    },
    "walk": {"task": "optimus", "texts": ["i know .", "he ran home ."], "steps": 9, "beam": 1},
    "show": {"task": "lm", "texts": ["a dog"], "target": "a cat", "seed": 3},
}


@pytest.mark.parametrize("name", PANELS)
def test_every_control_is_sent(serving, browser, name):
    with serving(name) as where, opened(browser, where) as page:
        for panel in PANELS[name]:
            controls, sent = dict(CONTROLS[panel]), dict(SENT[panel])
            if panel == "show" and name != "unitk-base-en":
                sent["task"] = controls["task"] = page.input_value("#show select")
            if panel == "write" and name == "unitk-base-en-summaries":  # sources of one part
                sent |= {"texts": [["a | b"]], "max_source_len": 384}
                for one in ("min_len", "max_len"):  # its own are formulas of the source
                    del sent[one], controls[one]
            kinds = ":is(input:not([type=checkbox]), select, textarea):visible"
            own = page.query_selector_all(f"#{panel} form {kinds}")
            assert {one.get_attribute("name") for one in own} == set(controls)
            for one, value in controls.items():
                place = f"#{panel} form [name={one}]"
                choose = page.select_option if one == "task" else page.fill
                choose(place, value)
            with page.expect_request(lambda request: request.method == "POST") as found:
                press(page, panel)
            assert found.value.post_data_json == sent
            assert page.inner_text("#error") == "" and page.inner_text(f"#{panel} .answer")
        if "walk" in PANELS[name]:
            outputs = [
                one["text"]
                for one, *_ in post(where, "latent/interpolate", SENT["walk"])["outputs"]
            ]
            steps = "all => all.map(one => one.innerText)"
            assert page.eval_on_selector_all("#walk .answer li", steps) == outputs
            page.focus("#walk input[type=range]")
            for text in outputs:
                assert page.inner_text("#walk .answer li[data-here]") == text
                spoken = page.get_attribute("#walk input[type=range]", "aria-valuetext")
                assert spoken == text
                page.keyboard.press("ArrowRight")


def test_a_walk_has_no_more_places_than_the_server_decodes(serving, browser):
    with serving("unitk-vae-en", max_texts=4) as where, opened(browser, where) as page:
        assert page.input_value("#walk [name=steps]") == "4"
        press(page, "walk")
        assert page.inner_text("#error") == ""
        assert len(page.query_selector_all("#walk .answer li")) == 4


def test_the_first_click_summarises_an_abstract(serving, browser):
    with serving("unitk-base-en-summaries") as where, opened(browser, where) as page:
        press(page, "write")
        best, *_ = page.eval_on_selector_all(
            "#write tbody td:first-child", "all => all.map(one => one.innerText)"
        )
        source = page.input_value("#write textarea")
        assert "single Transformer" in best and len(best) < len(source) / 2
        [[one, *_]] = unitk.load("unitk-base-en-summaries").generate(source)
        assert best == one.text, "the page asks for what the checkpoint is meant to write"


def test_fields_begin_with_the_options_of_the_checkpoint(serving, browser, trained, tmp_path):
    path, [checkpoint] = tmp_path / "model", (trained("seq2seq", True) / "checkpoints").iterdir()
    shutil.copytree(checkpoint, path)
    (path / "generate.yaml").write_text("beam: 2\nmin-len: 3\nmax-len: 0.5x+4\nlenpen: 0\n")
    with serving(path) as where, opened(browser, where) as page:
        assert page.input_value("#write [name=beam]") == "2"
        assert page.input_value("#write [name=min_len]") == "3"
        assert page.input_value("#write [name=no_repeat_ngram_size]") == "3"  # the page's own
        assert not page.is_visible("#write [name=max_len]"), "a number cannot say it"
        with page.expect_request("**/generate") as found:
            press(page, "write")
        sent = found.value.post_data_json
        assert (sent["beam"], sent["min_len"]) == (2, 3) and "max_len" not in sent
        whole = {"max_len": "0.5x+4", "lenpen": 0}
        outputs = post(where, "generate", sent | whole)["outputs"][0]
        told = page.eval_on_selector_all(
            "#write td.number span", "all => all.map(one => [one.innerText, one.title])"
        )
        for one, (share, title) in zip(outputs, told, strict=True):
            assert f"score {one['score']:.3f}" in title
            mean = 100 * math.exp(sum(one["token_log_probs"]) / len(one["token_log_probs"]))
            assert float(share.removesuffix(" %")) == pytest.approx(mean, abs=0.06)


def test_the_question_and_the_parts_of_a_text_are_sent(serving, browser, trained):
    texts = {"span": ["who?", "dada lala"], "choice": ["a", "b", "c"], "tag": ["dada", "lala"]}
    for task, text in texts.items():
        with serving(trained(task)) as where, opened(browser, where) as page:
            if task == "span":
                page.fill("#predict [name=question]", text[0])
            between = {"span": "", "choice": "|", "tag": "\n "}[task]
            page.fill("#predict textarea", between.join(text[task == "span" :]))
            with page.expect_request("**/predict") as found:
                press(page, "predict")
            assert found.value.post_data_json["texts"] == [text]
            assert page.inner_text("#error") == "" and page.inner_text("#predict .answer")


def test_what_is_wrong_is_shown(serving, browser):
    with serving("unitk-base-en", max_beam=2, max_chars=200, max_output=100) as where:
        with opened(browser, where) as page:
            assert page.input_value("#fill [name=beam]") == "2"
            for text, said in {
                "no blank": "blank",
                " ": "Text: nothing",
                "[MASK] " * 40: "280 characters",
            }.items():
                page.fill("#fill textarea", "A [MASK].")
                press(page, "fill")
                assert page.inner_text("#error") == "" and page.inner_text("#fill .answer")
                page.fill("#fill textarea", text)
                press(page, "fill")
                assert said in page.inner_text("#error")
                assert page.inner_text("#fill .answer") == "", "an old answer is no answer"
            page.fill("#fill textarea", "[MASK] " * 20)
            press(page, "fill")
            assert "allows 100" in page.inner_text("#error")
            page.fill("#fill textarea", "x" * 201)
            assert page.inner_text("#fill .count.over").startswith("201 of 200")
            page.route("**/show", lambda route: route.abort())
            press(page, "show")
            assert "server" in page.inner_text("#error")


WITH_BLANKS = "The ___ sat on the [MASK],\nshe said."


def test_what_was_filled_in_is_marked_and_a_link_restores_it(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        page.fill("#fill textarea", WITH_BLANKS)
        page.focus("#fill textarea")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#fill .answer tr:nth-child(4)", timeout=60_000)
        for row in page.query_selector_all("#fill tbody tr"):
            marks = [one.inner_text() for one in row.query_selector_all("mark")]
            text = row.query_selector("td").inner_text()
            assert len(marks) == 2
            assert text == WITH_BLANKS.replace("___", marks[0]).replace("[MASK]", marks[1])
        shares = page.eval_on_selector_all("#fill meter", "all => all.map(one => one.value)")
        assert sum(shares) == pytest.approx(1) and shares == sorted(shares)[::-1]
        with opened(browser, page.url) as other:
            assert other.input_value("#fill textarea") == WITH_BLANKS
        page.fill("#fill textarea", "The [MASK] sat on the [MASK].")
        press(page, "fill")
        shares = page.eval_on_selector_all("#fill meter", "all => all.map(one => one.value)")
        assert shares == sorted(shares)[::-1], "the bars are of what ranks the texts"
        page.click("#fill .tools button:has-text('Clear')")
        assert page.inner_text("#fill .answer") == "" == page.input_value("#fill textarea")


def test_an_answer_that_is_not_in_the_passage_is_refused(serving, browser):
    models = ("unitk-base-en-questions", "unitk-vae-en")
    with serving(models) as where, opened(browser, where) as page:
        assert "question" in page.inner_text("#about")
        assert "Limits" in page.inner_text("#card")
        page.fill("#ask [name=answer]", "Napoleon")
        press(page, "ask")
        assert "“Napoleon”" in page.inner_text("#error")
        page.select_option("#models", "unitk-vae-en")
        assert panels_of(page) == ["walk", "show"] and page.inner_text("#error") == ""
        press(page, "walk")
        assert page.inner_text("#walk .answer")


def test_whatever_a_link_says_the_page_opens(serving, browser):
    models = ("unitk-base-en", "unitk-vae-en")
    with serving(models) as where, opened(browser, where) as page:
        said = {
            "model=other&panel=fill": "model other, which is not served",
            "panel=ask&text=x": "this model does not do",
            "panel=__proto__": "this model does not do",
            "panel=show&task=none&seed=-3&text=a": "",
            "=&&%FF": "",
        }
        for link, error in said.items():
            page.evaluate("link => { location.hash = link; }", link)
            page.wait_for_timeout(100)
            shown = page.inner_text("#error")
            assert error in shown if error else shown == ""
            assert panels_of(page) == ["fill", "continue", "show"]
        assert page.input_value("#show select") == "glm_infill"
        page.evaluate("location.hash = 'model=unitk-vae-en&panel=walk&from=i+go&to=a'")
        page.wait_for_selector("#walk:visible")
        assert page.input_value("#walk [name=from]") == "i go"


def test_another_model_ends_what_is_under_way(serving, browser):
    models = ("unitk-base-en", "unitk-vae-en")
    with serving(models) as where, opened(browser, where) as page:
        page.fill("#continue [name=max_len]", "200")
        page.fill("#continue [name=sentences]", "0")  # it is shown as it grows
        page.focus("#continue form button")
        page.keyboard.press("Enter")
        page.wait_for_selector("#continue strong")
        page.select_option("#models", "unitk-vae-en")
        page.select_option("#models", "unitk-base-en")
        page.wait_for_selector("#continue:not([aria-busy]) form button:enabled")
        assert page.inner_text("#continue .answer") == page.inner_text("#error") == ""
        press(page, "fill")
        assert page.inner_text("#fill .answer")


def test_a_text_is_continued_as_openai_s_api_continues_it(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        page.fill("#continue textarea", "It was a cold night")
        page.fill("#continue [name=max_len]", "12")
        with page.expect_request("**/v1/completions") as sent:
            press(page, "continue")
        body = {**sent.value.post_data_json, "stream": False}
        [choice] = post(where, "v1/completions", body)["choices"]
        assert page.inner_text("#continue strong") == choice["text"]
        assert page.inner_text("#continue .answer") == "It was a cold night" + choice["text"]
        # what the server refuses is told as elsewhere
        page.evaluate("document.querySelector('#continue [name=seed]').max = ''")
        page.fill("#continue [name=seed]", "1e30")
        press(page, "continue")
        assert "“Seed”" in page.inner_text("#error")
        page.fill("#continue [name=seed]", "1.5")
        press(page, "continue")
        assert "whole" in page.inner_text("#error")


def test_a_panel_has_the_words_of_its_model(serving, browser, trained):
    models = ("unitk-base-en-summaries", trained("unilm", True))
    with serving(models) as where, opened(browser, where) as page:
        assert "Summarise" in page.inner_text("#write h2")
        assert len(page.query_selector_all("#write .example")) == 3
        assert "CC BY" in page.inner_text("#card")


def test_a_mask_that_is_too_wide_says_so(serving, browser):
    with serving("unitk-vae-en") as where:
        for width, wide in ((390, True), (1200, False)):
            with opened(browser, where, width) as page:
                if wide:
                    page.fill(
                        "#show [name=text]", "we went home by bus . the train was late . " * 2
                    )
                press(page, "show")
                more = page.query_selector("#show .mask .more")
                shown = "([one, wide]) => one.hidden !== wide"
                page.wait_for_function(shown, arg=[more, wide])


def test_a_long_answer_is_stopped(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        page.fill("#continue [name=max_len]", "200")
        page.fill("#continue [name=sentences]", "0")  # it is shown as it grows
        page.focus("#continue textarea")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector("#continue .answer strong")
        page.click("#continue .stop")
        page.wait_for_selector("#continue .note")
        assert page.inner_text("#continue .note") == "Stopped."
        assert page.inner_text("#continue .answer strong")


def test_what_is_stopped_leaves_no_answer_to_another_text(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        press(page, "fill")
        page.route("**/infill", lambda route: None)  # it never answers
        for _ in range(2):
            page.fill("#fill textarea", "Another [MASK].")
            page.focus("#fill form button")
            page.keyboard.press("Enter")
            page.click("#fill .stop")
            page.wait_for_selector("#fill:not([aria-busy]) .note")
            assert page.inner_text("#fill .answer") == "Stopped."


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_answers_within_low_limits(serving, browser, name):
    """A page asks for no more than its server grants."""
    low = {"max_beam": 1, "max_texts": 2, "max_output": 32}
    with serving(name, **low) as where, opened(browser, where) as page:
        assert_panels_answer(page, name, PANELS[name])


def test_an_answer_of_something_else_is_told(serving, browser):
    """A proxy that wants a password sends a page of its own, and no error."""
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        page.route("**/infill", lambda route: route.fulfill(body="<html>Log in</html>"))
        press(page, "fill")
        assert "proxy" in page.inner_text("#error")
        page.route("**/models", lambda route: route.fulfill(body="<html>Log in</html>"))
        page.goto("about:blank")
        page.goto(where)
        page.wait_for_function("document.getElementById('error').textContent.includes('proxy')")
        assert "Reload" in page.inner_text("#about")


def test_a_text_that_is_not_continued_is_told(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        press(page, "continue")
        nothing = 'data: {"choices": [{"text": "", "index": 0}]}\n\ndata: [DONE]\n\n'
        page.route("**/v1/completions", lambda route: route.fulfill(body=nothing))
        press(page, "continue")
        assert "nothing" in page.inner_text("#continue .answer") and not page.inner_text("#error")


@pytest.mark.parametrize("clipboard", ["refuses", "takes", "none"])
def test_buttons_that_copy_say_whether_it_was_done(serving, browser, clipboard):
    """A page of another machine has no `navigator.clipboard`, unless it came by https."""
    writes = {"takes": "resolve()", "refuses": "reject()"}.get(clipboard)
    value = f"{{writeText: async text => Promise.{writes}}}" if writes else "undefined"
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        press(page, "fill")
        page.evaluate(f"Object.defineProperty(navigator, 'clipboard', {{value: {value}}})")
        button = "#fill .tools button:first-child"
        said = "The browser refuses" if clipboard == "refuses" else "Copied"
        for _ in range(2):
            page.click(button)
            page.wait_for_function(
                f"document.querySelector('{button}').textContent === '{said}'",
            )
        page.wait_for_function(f"document.querySelector('{button}').textContent === 'Copy'")


RIGHT = """name => {
    const answer = document.querySelector(`#${name} .answer`), range = document.createRange();
    const place = answer.querySelector("tbody td") ?? answer, all = place.getBoundingClientRect();
    range.selectNodeContents(place);
    const text = range.getBoundingClientRect();
    return text.left - all.left > 2 * (all.right - text.right);
}"""
"""Whether an answer is on the right."""


def test_a_text_from_right_to_left_is_on_the_right(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where) as page:
        for panel, text in {"fill": "שלום [MASK] טוב", "continue": "שלום"}.items():
            page.fill(f"#{panel} [name=max_len]", "3")
            page.fill(f"#{panel} textarea", text)
            press(page, panel)
            assert page.evaluate(RIGHT, panel), panel
            page.fill(f"#{panel} textarea", "A [MASK] sat.")
            press(page, panel)
            assert not page.evaluate(RIGHT, panel), panel


def test_texts_in_any_script_are_filled_and_shown(serving, browser):
    with serving("unitk-base-en") as where, opened(browser, where, 390) as page:
        for text in ODD:
            for panel in ("fill", "show"):
                page.evaluate(f"document.querySelector('#{panel} .answer').replaceChildren()")
                page.fill(f"#{panel} textarea", text)
                press(page, panel)
                assert page.inner_text("#error") == "", text
                assert page.inner_text(f"#{panel} .answer"), text
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), text
