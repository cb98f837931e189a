"""mBART: where languages are, what is refused, and transformers' ids, logits and outputs."""

import json

import numpy as np
import pytest
import torch
from rounding import assert_near

import unitk
from tests.vocab.test_open import LINES, odd_texts, spiece
from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.formats.hf.vocabularies.fairseq import LANGUAGES
from unitk.training.saving.checkpoint import load
from unitk.vocab.open import open_vocab

from ...formats.conftest import hf, kit  # noqa: F401

SPELLED = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")
TEXTS = [text for text in odd_texts() if not any(name in text for name in SPELLED)]
TEXTS += ["", "en_XX", "a ro_RO b", "de_DE\tx", "two  blanks", "a\n b", "①² ﬁ Å"]
SHAPES = {"MBartTokenizer": 25, "MBart50Tokenizer": 52}
"""Class of the tokenizer -> how many languages it has."""
SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4}
SIZES |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
SIZES |= {"max_position_embeddings": 40, "scale_embedding": True}


def files(folder, name, **about):
    """A released tokenizer: a file of pieces and what tokenizer_config.json says."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sentencepiece.bpe.model").write_bytes(spiece())
    (folder / "config.json").write_text('{"model_type": "mbart"}')
    text = json.dumps({"tokenizer_class": name, **about})
    (folder / "tokenizer_config.json").write_text(text)


def task(vocab, **options):
    found = registry.get("task", "mbart")
    return found(found.Config(**options), vocab)


def tokens(example):
    return {name: slots.token.tolist() for name, slots in example.towers.items()}


@pytest.mark.parametrize(
    ("opening", "enc", "dec"), [("both", "LabS", "STcd"), ("cls", "abSL", "Tcd")]
)
def test_the_layout_is_the_table(toy_vocab, opening, enc, dec):
    made = task(toy_vocab, languages=("en_XX", "ro_RO"), opening=opening)
    assert made.virtual == ("en_XX", "ro_RO")
    a, b, c, d = (int(word) for word in np.flatnonzero(toy_vocab.starts)[-4:])
    by = dict(zip("abcdSLT", (a, b, c, d, toy_vocab.sep, *made.codes), strict=True))
    found = made.finetune([np.array([a, b])], np.array([c, d]), np.random.default_rng(0))
    assert tokens(found) == {"enc": [by[x] for x in enc], "dec": [by[x] for x in dec]}
    [ask] = found.asks
    assert ask.label.tolist() == [c, d, by["S"]]
    assert ask.rows[:, 0].tolist() == [len(dec) - 3 + i for i in range(3)]


def test_texts_are_written_in_their_own_language(toy_vocab):
    made = task(toy_vocab, languages=("en_XX", "ro_RO"), mask_ratio=0.2)
    words = np.flatnonzero(toy_vocab.starts)[-9:]
    found = tokens(made.pretrain(Text([words], np.zeros(1, int)), np.random.default_rng(0)))
    assert found["enc"][0] == found["dec"][1] == made.codes[0]


def test_options_that_mbart_does_not_have_are_named(toy_vocab, tmp_path):
    with pytest.raises(UsageError, match=r"--task\.opening.*pad"):
        task(toy_vocab, opening="pad")
    files(tmp_path, "MBartTokenizer")
    with pytest.raises(UsageError, match=r"--task\.languages.*xx_XX.*ar_AR"):
        task(open_vocab(tmp_path), languages=("en_XX", "xx_XX"))


@pytest.mark.parametrize("name", SHAPES)
def test_the_ids_are_those_of_transformers(hf, tmp_path, name):  # noqa: F811
    files(tmp_path, name)
    theirs, ours = hf.AutoTokenizer.from_pretrained(tmp_path), open_vocab(tmp_path)
    found = theirs(TEXTS, add_special_tokens=False).input_ids
    assert [row.tolist() for row in ours.encode_batch(TEXTS)] == found
    assert [ours.symbols[one] for one in ("cls", "pad", "sep", "unk", "mask")] == [
        theirs.cls_token_id, theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id,
        theirs.mask_token_id,
    ]  # fmt: skip
    codes = LANGUAGES[: SHAPES[name]]
    assert [ours.model.find(code) for code in codes] == theirs.convert_tokens_to_ids(list(codes))
    assert len(theirs) == ours.model.size == ours.mask + 1
    for line in LINES[:4]:
        ids = [index for index in ours.encode(line) if index != ours.unk]
        assert ours.decode(ids) == theirs.decode(ids)
    theirs.save_pretrained(tmp_path / "fast")  # with tokenizer.json
    (tmp_path / "fast" / "config.json").write_text('{"model_type": "mbart"}')
    again = open_vocab(tmp_path / "fast")
    assert [row.tolist() for row in again.encode_batch(TEXTS)] == found


def there(hf, name, folder):  # noqa: F811
    """A random model that writes Romanian."""
    files(folder, name, src_lang="en_XX", tgt_lang="ro_RO")
    vocab = open_vocab(folder)
    torch.manual_seed(0)
    code, fifty = vocab.model.find("ro_RO"), name == "MBart50Tokenizer"
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    ids |= {"decoder_start_token_id": 2 if fifty else code}
    ids |= {"forced_bos_token_id": code} if fifty else {}
    config = hf.MBartConfig(vocab_size=vocab.model.size, **SIZES, **ids)
    model = hf.MBartForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
        model.final_logits_bias.normal_()
    model.save_pretrained(folder)
    return model


@pytest.mark.every(2)
@pytest.mark.parametrize("name", SHAPES)
def test_a_model_comes_in_and_goes_back(hf, kit, tmp_path, name):  # noqa: F811
    model = there(hf, name, tmp_path / "there")
    ours = unitk.load(kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours"))
    options, network = ours.task.config, load(tmp_path / "ours").model
    assert options.languages == ("en_XX", "ro_RO")
    assert options.opening == ("both" if name == "MBart50Tokenizer" else "cls")
    back = kit.from_unitk(tmp_path / "ours", "hf", tmp_path / "back")
    text = "The lazy dog é"
    for folder in (tmp_path / "there", back):
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        again = hf.MBartForConditionalGeneration.from_pretrained(folder).eval()
        row = tokenizer([text], return_tensors="pt")
        source = [np.array(ours.task.vocab.encode(text))]
        assert row.input_ids[0].tolist() == ours.task.prompt(source).towers["enc"].token.tolist()
        fed = torch.tensor([[*ours.task.start, 7, 9]])
        with torch.no_grad():
            found, wanted = (one(**row, decoder_input_ids=fed).logits for one in (again, model))
        assert_near(found, wanted)
        own = kit.logits(network, kit.pair(row.input_ids[0].numpy(), fed[0].numpy()))
        assert_near(own[:, : wanted.shape[2]], wanted[0])
        first, *more = ours.task.start
        size = 9 + len(more)
        rules = {"max_new_tokens": size, "min_new_tokens": size, "forced_eos_token_id": None}
        rules |= {"forced_bos_token_id": more[0] if more else None, "decoder_start_token_id": first}
        rules["bad_words_ids"] = [[i] for i in ours.task.protocol.banned]
        theirs = again.generate(**row, num_beams=2, length_penalty=1.0, **rules)
        [[best]] = ours.generate([text], beam=2, max_len=9, min_len=9)
        assert best.hypothesis.ids.tolist()[:9] == theirs[0].tolist()[1 + len(more) :][:9]
    about = json.loads((back / "generation_config.json").read_text())
    assert about["decoder_start_token_id"] == first
    assert about["forced_bos_token_id"] == (more[0] if more else None)
    again = unitk.load(kit.to_unitk("hf", back, tmp_path / "again"))
    assert again.task.config == options
