"""Marian's two sentencepiece models and ByT5's bytes: ids, words and files are AutoTokenizer's."""

import json

import pytest
import torch
from rounding import assert_near

import unitk
from tests.vocab.test_open import LINES, odd_texts, spiece
from unitk.errors import CheckpointError, DataError
from unitk.training.saving.checkpoint import load
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab

CODES = (">>fra<<", ">>deu<<")
SPELLED = ("</s>", "<pad>", "<unk>", "<extra_id_")
TEXTS = [text for text in odd_texts() if not any(name in text for name in SPELLED)]
TEXTS += ["", ">>fra<< The lazy dog", ">>xx<< dog", ">>dog", "a >>fra<< b", ">>deu<<"]
SIZES = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
SIZES |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
SIZES |= {"max_position_embeddings": 130, "scale_embedding": True, "activation_function": "swish"}


def marian(folder):
    """A folder with the files of an OPUS-MT model's tokenizer; its number of ids."""
    folder.mkdir(parents=True, exist_ok=True)
    models = spiece(), spiece(vocab_size=80, normalization_rule_name="identity")
    names = []
    for name, data in zip(("source", "target"), models, strict=True):
        (folder / f"{name}.spm").write_bytes(data)
        pieces = open_vocab_of(data)
        names += [piece for piece in pieces if piece not in ("<s>", "</s>", "<unk>")]
    names = ["</s>", "<unk>", *CODES, *dict.fromkeys(names), "<pad>"]
    text = json.dumps({name: index for index, name in enumerate(names)}, ensure_ascii=False)
    (folder / "vocab.json").write_text(text, encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "marian"}')
    (folder / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "fr"}')
    return len(names)


def open_vocab_of(data):
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(data)
    return [model.id_to_piece(index) for index in range(model.get_piece_size())]


def byt5(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "t5"}')
    about = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return 384


@pytest.mark.parametrize("make", [marian, byt5])
def test_the_ids_are_those_of_transformers(hf, tmp_path, make):
    make(tmp_path)
    theirs, ours = hf.AutoTokenizer.from_pretrained(tmp_path), open_vocab(tmp_path)
    found = [theirs(text, add_special_tokens=False).input_ids for text in TEXTS]
    assert [row.tolist() for row in ours.encode_batch(TEXTS)] == found
    assert [ours.encode(text) for text in TEXTS] == found
    for text in TEXTS:
        ids, places = ours.model.encode_offsets(text)
        assert len(ids) == len(places) and all(0 <= a <= b <= len(text) for a, b in places)
    assert [ours.symbols[name] for name in ("pad", "sep", "unk")] == [
        theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id
    ]  # fmt: skip
    for line in LINES[:4]:
        ids = [index for index in ours.encode(line) if index != ours.unk]
        assert ours.decode(ids) == theirs.decode(ids)
    ours.save(tmp_path / "saved")
    again = Vocab.load(tmp_path / "saved")
    assert again.hash == ours.hash and again.encode(LINES[1]) == ours.encode(LINES[1])


def there(hf, kit, make, folder):
    """A random model with such a vocabulary."""
    rows = make(folder)
    torch.manual_seed(0)
    if make is marian:
        ids = {"pad_token_id": rows - 1, "eos_token_id": 0, "decoder_start_token_id": rows - 1}
        ids |= {"forced_eos_token_id": 0, "bad_words_ids": None}
        model = hf.MarianMTModel(hf.MarianConfig(vocab_size=rows, **SIZES, **ids))
    else:
        config = hf.T5Config(
            vocab_size=rows, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
            feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0,
        )  # fmt: skip
        model = hf.T5ForConditionalGeneration(config)
    with torch.no_grad():  # they end now and then, and write what they can read
        for name, weight in model.named_parameters():
            if "positions" not in name:
                weight.add_(0.3 * torch.randn_like(weight))
    model.save_pretrained(folder)
    if make is byt5:  # config.json says nothing of it, as in the release
        about = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}
        (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return model.eval()


@pytest.mark.parametrize("make", [marian, byt5])
def test_they_write_the_same_and_go_back(hf, kit, tmp_path, make):
    model = there(hf, kit, make, tmp_path / "there")
    ours = unitk.load(kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours"))
    back = kit.from_unitk(tmp_path / "ours", "hf", tmp_path / "back")
    for folder in (tmp_path / "there", back):
        tokenizer = hf.AutoTokenizer.from_pretrained(folder)
        again = hf.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        row = tokenizer(["The lazy dog é"], return_tensors="pt")
        fed = torch.tensor([[model.config.decoder_start_token_id, 7, 9]])
        with torch.no_grad():
            found, wanted = (one(**row, decoder_input_ids=fed).logits for one in (again, model))
        assert_near(found, wanted)
        # all of one length: in a search there, what the limit cuts costs otherwise
        rules = {"max_new_tokens": 9, "min_new_tokens": 9, "forced_eos_token_id": None}
        rules["bad_words_ids"] = [[i] for i in ours.task.protocol.banned if i < wanted.shape[2]]
        for beam in (1, 5)[: 2 if make is marian else 1]:
            theirs = again.generate(**row, num_beams=beam, length_penalty=1.0, **rules)
            [[best]] = ours.generate(["The lazy dog é"], beam=beam, max_len=9, min_len=9)
            assert best.hypothesis.ids.tolist()[:9] == theirs[0].tolist()[1:10]
    files = {"marian": ("source.spm", "target.spm", "vocab.json")}.get(make.__name__, ())
    for name in files[:2]:
        assert (back / name).read_bytes() == (tmp_path / "there" / name).read_bytes()
    if make is byt5:
        vocab = load(tmp_path / "ours").task.vocab
        assert vocab.pieces(vocab.sentinels) == [f"<extra_id_{number}>" for number in range(125)]
        assert vocab.sentinels == tokenizer.convert_tokens_to_ids(vocab.pieces(vocab.sentinels))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("vocab.json", b"[1]", "an object vocab.json"),
        ("vocab.json", b'{"</s>": 0, "<unk>": -1}', "'<unk>' must have an id"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 0}', "two pieces of one id"),
        ("vocab.json", b"{", "not JSON"),
        ("source.spm", b"xx", "model as source.spm"),
    ],
)
def test_damaged_files_are_named(tmp_path, file, content, message):
    marian(tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        open_vocab(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)


def test_two_lists_of_numbers_are_refused(hf, kit, tmp_path):
    there(hf, kit, marian, tmp_path / "there")
    file = tmp_path / "there" / "config.json"
    about = json.loads(file.read_text()) | {"share_encoder_decoder_embeddings": False}
    file.write_text(json.dumps(about))
    with pytest.raises(CheckpointError, match="share_encoder_decoder_embeddings"):
        kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")


def test_half_a_character_is_named(tmp_path):
    byt5(tmp_path)
    with pytest.raises(DataError, match="surrogate"):
        open_vocab(tmp_path).encode("a\ud800")
