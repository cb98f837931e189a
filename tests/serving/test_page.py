"""The page in a browser: every panel of the bundled models answers; the console is silent."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")

PANELS = {
    "unitk-mini-en": ["fill", "continue", "show"],
    "unitk-mini-en-questions": ["fill", "ask", "write", "show"],
    "unitk-vae-en": ["walk", "show"],
}


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


@pytest.fixture
def address(request):
    command = [sys.executable, "-m", "unitk_cli", "serve", "--port", "0", "--checkpoint"]
    server = subprocess.Popen([*command, request.param], stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    yield request.param, server.stderr.readline().strip()
    server.terminate()
    server.wait(60)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
@pytest.mark.parametrize("address", PANELS, indirect=True)
@pytest.mark.parametrize("width", [390, 1200])
def test_every_panel_answers(address, width):
    name, where = address
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, said = browser.new_page(viewport={"width": width, "height": 800}), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(where)
        page.wait_for_selector("section:visible")
        shown = [one for one in page.query_selector_all("section") if one.is_visible()]
        assert [one.get_attribute("id") for one in shown] == PANELS[name]
        for panel in shown:
            area, button = panel.query_selector("textarea"), panel.query_selector("button")
            if area and not area.input_value():
                area.fill("Oslo | Oslo is the capital of Norway.")
            button.focus()
            page.keyboard.press("Enter")
            page.wait_for_function("button => !button.disabled", arg=button, timeout=60_000)
            assert panel.query_selector(".answer").inner_text()
        row = page.query_selector("#show tbody tr")
        row.focus()
        page.keyboard.press("ArrowDown")
        below = page.evaluate(
            "document.activeElement === document.querySelectorAll('#show tbody tr')[1]"
        )
        assert below, "the arrow chooses the next slot"
        assert " sees " in page.inner_text("#show .mask p")
        assert page.inner_text("#error") == "" and said == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if "fill" in PANELS[name]:
            page.fill("#fill textarea", "no blank")
            page.click("#fill button")
            page.wait_for_selector("#error:not(:empty)")
            assert "there is no blank" in page.inner_text("#error")
        browser.close()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
@pytest.mark.parametrize("address", ["unitk-mini-en"], indirect=True)
def test_texts_in_any_script_are_filled_and_shown(address):
    _, where = address
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, said = browser.new_page(viewport={"width": 390, "height": 800}), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(where)
        page.wait_for_selector("#show:visible")
        for text in ODD:
            for panel in ("fill", "show"):
                page.evaluate(f"document.querySelector('#{panel} .answer').replaceChildren()")
                page.fill(f"#{panel} textarea", text)
                page.click(f"#{panel} button")
                page.wait_for_selector(f"#{panel} button:enabled", timeout=60_000)
                assert page.inner_text("#error") == "", text
                assert page.inner_text(f"#{panel} .answer"), text
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), text
        assert said == []
        browser.close()
