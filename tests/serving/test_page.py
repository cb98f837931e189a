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
    "unitk-mini-en": ["fill", "continue"],
    "unitk-mini-en-questions": ["fill", "ask", "write"],
    "unitk-vae-en": ["walk"],
}


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
        assert page.inner_text("#error") == "" and said == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if "fill" in PANELS[name]:
            page.fill("#fill textarea", "no blank")
            page.click("#fill button")
            page.wait_for_selector("#error:not(:empty)")
            assert "there is no blank" in page.inner_text("#error")
        browser.close()
