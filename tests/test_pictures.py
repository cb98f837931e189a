"""Pictures: fonts, characters, endings and folders."""

import logging
import warnings

import pytest
from matplotlib import font_manager, rc_context
from matplotlib.figure import Figure

from unitk.errors import UsageError
from unitk.pictures import check_picture, save

PLAIN = font_manager.findfont(font_manager.FontProperties())


def drawn(text, path):
    figure = Figure()
    label = figure.add_subplot().annotate(text, (0, 0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(figure, path)
    return label.get_fontfamily()


def test_a_font_that_has_the_characters_is_found(tmp_path, caplog):
    has = {*font_manager.get_font(PLAIN).get_charmap()}
    other = font_manager.findfont(
        font_manager.FontProperties(family=["STIXGeneral"])
    )  # matplotlib's
    beyond = sorted({*font_manager.get_font(other).get_charmap()} - has)
    only = next(code for code in beyond if chr(code).isprintable())
    families = drawn(f"a{chr(only)}", tmp_path / "a.png")
    fonts = [font_manager.findfont(font_manager.FontProperties(family=[name])) for name in families]
    assert any(only in font_manager.get_font(path).get_charmap() for path in fonts)
    assert not [one for one in caplog.records if one.name.startswith("unitk")]


def test_characters_of_no_font_are_told_once(tmp_path, caplog, monkeypatch):
    here = [one for one in font_manager.fontManager.ttflist if one.fname == PLAIN]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", here)
    with caplog.at_level(logging.WARNING):
        drawn("寿司 \U0001f363 寿", tmp_path / "a.png")
    (record,) = caplog.records
    assert record.getMessage().startswith("no installed font has 司寿\U0001f363:")


def test_dollars_are_characters_and_no_formula(tmp_path):
    with rc_context({"svg.fonttype": "none"}):
        drawn("from $5_ to $y^", tmp_path / "a.svg")
    assert "from $5_ to $y^</text>" in (tmp_path / "a.svg").read_text()


def test_a_picture_is_checked_by_its_ending_and_its_folder(tmp_path):
    check_picture(None, "--plot")
    check_picture(tmp_path / "a.svg", "--plot")
    check_picture(tmp_path / "a.html", "--plot", ".html")
    with pytest.raises(UsageError, match="--plot .*end.* .png, .svg or .pdf, got .*a.html"):
        check_picture(tmp_path / "a.html", "--plot")
    with pytest.raises(UsageError, match="--plot .*end.* .png, .svg, .pdf or .html, got .*a"):
        check_picture(tmp_path / "a", "--plot", ".html")
    with pytest.raises(UsageError, match="--plot .*none/a.png: .*write.*none"):
        check_picture(tmp_path / "none" / "a.png", "--plot")


def test_plain_text_stays_in_the_default_font(tmp_path):
    assert drawn("Größe", tmp_path / "a.png") == Figure().text(0, 0, "a").get_fontfamily()
