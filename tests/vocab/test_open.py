"""Folders of transformers: the ids of any text are those of AutoTokenizer, in every layout."""

import io
import json
import os
import random

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from unitk.errors import DataError
from unitk.foreign import read_json
from unitk.vocab.open import open_vocab

LINES = [
    "The quick brown fox jumps over the lazy dog, again and again!",
    "Zwölf Boxkämpfer jagen Viktor über den Sylter Deich: 1234567890.",
    "寿司を食べる 漢字 한국어 <b>html</b> a[0] = x(1); e\u0301 é café",
    "Voix ambiguë d'un cœur qui au zéphyr préfère les jattes de kiwis",
] * 3
PARTS = """The|quick|DOG|é|e\u0301|É|q\u0307\u0323|ﬁne|²|Ⅷ|½|각|\u1112\u1161\u11ab|漢字|ｶﾞ|Ａ～Ｂ
😀|👨‍👩‍👧|🇩🇪|\x00|\x01|\x7f|\x0b|\x1c|\x85|\u2028|ß|İ|ı|ﷺ|مرحبا|नमस्ते|\u200b|\u200c|\u200d|\ufeff|\u00ad|\u0958
\U0001d54f|\U0010ffff|\ue000|’|“x”|—|…|don't|``x''|aaaa|<0x41>|...!!??|1,000.5|a@b|<extra_id_0>
<extra_id_7>|<hl>|<HL>|<sep2>|[new]|<eop>|<eod>|<s>|</s>|<pad>|<mask>|[MASK]|[SEP]|<|endoftext|>
 |  |   |\t|\n|\r\n|\u00a0|\u3000|▁|▁▁|##a|@@|</w>|İ""".replace("\n", "|").split("|")
PARTS += ["a" * 120, " " * 40, "\n" * 9, "<|endoftext|>"]


def odd_texts(count=500):
    rng = random.Random(3)
    texts = [*PARTS, *(f"a{part}b" for part in PARTS), *(f"a {part} b" for part in PARTS)]
    while len(texts) < count:
        joint = rng.choice(["", " ", ""])
        texts.append(joint.join(rng.choices(PARTS, k=rng.randrange(1, 9))))
    return texts


def spiece(**options):
    written, options = io.BytesIO(), {"vocab_size": 88, "minloglevel": 2} | options
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=written, **options
    )
    return written.getvalue()


def t5(folder):
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "pad_piece": "<pad>"}
    (folder / "spiece.model").write_bytes(spiece(**ids))


def t5_raw(folder):
    """A T5 whose characters stay as they are."""
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "pad_piece": "<pad>"}
    (folder / "spiece.model").write_bytes(spiece(normalization_rule_name="identity", **ids))


def albert(folder):
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "pad_piece": "<pad>"}
    own = {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
    (folder / "spiece.model").write_bytes(spiece(**ids, **own, user_defined_symbols=["(", "."]))


def deberta(folder):
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]"}
    names = {"bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
    (folder / "spm.model").write_bytes(spiece(**ids, **names))


def xlnet(folder):
    names = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    own = {"control_symbols": names, "user_defined_symbols": [".", "("]}
    (folder / "spiece.model").write_bytes(spiece(unk_id=0, bos_id=1, eos_id=2, **own))


def bert(folder):
    words = {word: 0 for line in LINES for word in line.split()}
    words |= {word.lower(): 0 for word in words}
    letters = {letter: 0 for word in words for letter in (*word, *(f"##{one}" for one in word))}
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters]
    text = "".join(f"{name}\n" for name in dict.fromkeys(names))
    (folder / "vocab.txt").write_text(text, encoding="utf-8")


def byte_bpe(*special):
    def made(folder):
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=380,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=list(special),
            show_progress=False,
        )
        tokenizer.train_from_iterator(LINES, trainer)
        tokenizer.model.save(str(folder))

    return made


def fairseq(folder):
    """A file of XLM-R or CamemBERT, whose first pieces are not fairseq's."""
    (folder / "sentencepiece.bpe.model").write_bytes(spiece(unk_id=0, bos_id=1, eos_id=2))


def mpnet(folder):
    bert(folder)
    text = (folder / "vocab.txt").read_text(encoding="utf-8")
    for old, new in (("[PAD]", "<pad>"), ("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[MASK]", "<mask>")):
        text = text.replace(old, new)
    (folder / "vocab.txt").write_text(text, encoding="utf-8")


KIN = {"xlm-roberta": fairseq, "camembert": fairseq, "mpnet": mpnet}
ROBERTA = byte_bpe("<s>", "<pad>", "</s>", "<unk>", "<mask>")
FAMILIES = {
    "t5": t5,
    "pegasus": t5,
    "deberta-v2": deberta,
    "albert": albert,
    "xlnet": xlnet,
    "bert": bert,
    "ernie": bert,
    "roberta": ROBERTA,
    "bart": ROBERTA,
    "gpt2": byte_bpe("<|endoftext|>"),
    "gpt_neo": byte_bpe("<|endoftext|>"),
}
HL = {"content": "<hl>", "lstrip": True, "rstrip": True, "normalized": False, "single_word": False}
NEW = {"content": "[new]", "lstrip": False, "rstrip": False, "normalized": True}
SETTINGS = {
    "plain": {},
    "lower": {"do_lower_case": True, "add_prefix_space": True},
    "kept": {
        "do_lower_case": False,
        "keep_accents": True,
        "strip_accents": False,
        "tokenize_chinese_chars": False,
    },
    "more": {"additional_special_tokens": ["<hl>", "<sep2>"]},
    "decoder": {"added_tokens_decoder": [HL | {"special": True}, NEW | {"special": False}]},
}


def write(folder, kind, settings, layout, hf):
    (FAMILIES | KIN)[kind](folder)
    config = {"model_type": kind}
    (folder / "config.json").write_text(json.dumps(config))
    slow = hf.AutoTokenizer.from_pretrained(folder)
    settings = dict(SETTINGS[settings])
    size = len(slow)
    if "added_tokens_decoder" in settings:
        tokens = settings["added_tokens_decoder"]
        settings["added_tokens_decoder"] = {str(size + i): one for i, one in enumerate(tokens)}
        if kind == "deberta-v2":  # its file of pieces lacks the mask, which saved folders declare
            mask = {"content": "[MASK]", "special": True, "normalized": False}
            settings["added_tokens_decoder"][str(size - 1)] = mask
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = hf.AutoTokenizer.from_pretrained(folder)
    if layout != "slow":
        fast = folder / "fast"
        theirs.save_pretrained(fast)
        if layout == "fast":
            for file in folder.iterdir():
                if file.is_file() and file.name != "config.json":
                    file.unlink()
        for file in fast.iterdir():
            file.rename(folder / file.name)
        fast.rmdir()
    return hf.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("layout", ["slow", "fast"])
def test_a_model_without_a_table_of_characters(tmp_path, monkeypatch, layout):
    hf = pytest.importorskip("transformers")
    monkeypatch.setitem(FAMILIES, "t5", t5_raw)
    theirs, ours = write(tmp_path, "t5", "plain", layout, hf), open_vocab(tmp_path)
    texts = [text for text in odd_texts(200) if not any(s in text for s in ("</s>", "<pad>"))]
    assert [ours.encode(text) for text in texts] == theirs(
        texts, add_special_tokens=False
    ).input_ids


def assert_same_ids(theirs, ours):
    """Ids of texts in which no symbol is spelled are theirs; of others, no symbol is found."""
    symbols = {ours.pieces([index])[0] for index in ours.symbols.values()}
    wrong, spelled = [], 0
    texts = [*odd_texts()]
    for text, expected in zip(
        texts, theirs(texts, add_special_tokens=False).input_ids, strict=True
    ):
        found = ours.encode(text)
        if any(symbol in text for symbol in symbols):
            spelled += 1
            plain = [index for name, index in ours.symbols.items() if name != "unk"]
            assert not {*plain}.intersection(found), text
        elif found != expected:
            wrong.append(text)
    assert not wrong
    assert spelled < 250


@pytest.mark.parametrize("layout", ["slow", "fast", "both"])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", FAMILIES)
def test_the_ids_are_those_of_transformers(tmp_path, kind, settings, layout):
    hf = pytest.importorskip("transformers")
    theirs = write(tmp_path, kind, settings, layout, hf)
    assert_same_ids(theirs, open_vocab(tmp_path))


@pytest.mark.parametrize("layout", ["slow", "fast", "both"])
@pytest.mark.parametrize(
    ("kind", "settings"), [*zip(KIN, ("decoder", "more", "kept"), strict=True)]
)
def test_pieces_have_the_places_of_the_model(tmp_path, kind, settings, layout):
    """No file names a class; models of fairseq have other ids than files of sentencepiece."""
    hf = pytest.importorskip("transformers")
    theirs, ours = write(tmp_path, kind, settings, layout, hf), open_vocab(tmp_path)
    assert_same_ids(theirs, ours)
    names = (theirs.pad_token, theirs.cls_token, theirs.sep_token, theirs.mask_token)
    assert ours.pieces([ours.pad, ours.cls, ours.sep, ours.mask]) == [*names]
    assert [ours.pad, ours.mask] == [theirs.pad_token_id, theirs.mask_token_id]


SAID = {
    "no further token": ("albert", {"tokenizer_config": {"additional_special_tokens": []}}),
    "no sentinels": ("t5", {"tokenizer_config": {"additional_special_tokens": []}}),
    "a role of its own": (
        "albert",
        {"tokenizer_config": {"hl_token": "<hl>"}, "added_tokens": {"<hl>": 88}},
    ),
    "a role of its own, not normalized": (
        "bert",
        {
            "tokenizer_config": {
                "hl_token": "<hl>",
                "added_tokens_decoder": {"202": {"content": "<hl>", "special": False}},
            }
        },
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_a_list_without_tokens_and_roles_of_a_model_alone(tmp_path, said):
    hf = pytest.importorskip("transformers")
    kind, files = SAID[said]
    folder = folder_of(tmp_path, kind, hf, **files)
    assert_same_ids(hf.AutoTokenizer.from_pretrained(folder), open_vocab(folder))


def test_what_a_class_replaces_brings_no_tokens(tmp_path):
    """The tokens of its tokenizer.json do not count where tokenizer_config.json has some."""
    hf = pytest.importorskip("transformers")
    folder = folder_of(tmp_path, "gpt2", hf)
    tokenizer = Tokenizer.from_str(
        hf.AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()
    )
    tokenizer.add_tokens(["the lazy"])
    tokenizer.save(str(folder / "tokenizer.json"))
    listed = {"0": {"content": "<|endoftext|>", "special": True}}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    theirs, ours = hf.AutoTokenizer.from_pretrained(folder), open_vocab(folder)
    assert len(ours.encode("the lazy")) > 1
    assert ours.encode("the lazy") == theirs("the lazy").input_ids


def test_the_pad_is_that_of_padding(tmp_path):
    hf = pytest.importorskip("transformers")
    folder = folder_of(tmp_path, "gpt2", hf)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    tokenizer.add_special_tokens(["<filler>"])
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("<filler>"), pad_token="<filler>")
    tokenizer.enable_truncation(3)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}'
    )
    theirs, ours = hf.AutoTokenizer.from_pretrained(folder), open_vocab(folder)
    assert ours.pad == theirs.pad_token_id == tokenizer.token_to_id("<filler>")
    assert ours.encode("the dog jumps over") == theirs("the dog jumps over").input_ids


def folder_of(tmp_path, kind, hf, **files):
    """A folder of slow files, with these objects in files of json."""
    FAMILIES[kind](tmp_path)
    files = {"config": {"model_type": kind}, **files}
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_symbols_are_those_that_have_a_role(tmp_path):
    hf = pytest.importorskip("transformers")
    write(tmp_path, "t5", "more", "fast", hf)
    vocab = open_vocab(tmp_path)
    assert (vocab.pad, vocab.sep, vocab.unk) == (0, 1, 2)
    assert vocab.pieces(vocab.encode("<hl> the </s>"))[0] == "<hl>"
    assert 1 not in vocab.encode("the </s>") and vocab.decode([0, 1]) == ""
    # ids that the model itself uses, where no token has the role
    about = {"model_type": "t5", "decoder_start_token_id": 5, "eos_token_id": 1}
    (tmp_path / "config.json").write_text(json.dumps(about))
    assert open_vocab(tmp_path).pad == 5


def test_a_role_without_a_token_is_that_of_the_model(tmp_path):
    byte_bpe("<end>", "<other>")(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "eos_token_id": 1}')
    assert open_vocab(tmp_path).sep == 1
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    with pytest.raises(
        DataError, match=r"config\.json: eos_token_id is 1 .*eos_token '<end>' is 0"
    ):
        open_vocab(tmp_path)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"<hl>": 400}}, r"added_tokens\.json: '<hl>' gives .* 400, but .* 188"),
        ({"added_tokens": {"<hl>": "x"}}, r"added_tokens\.json: '<hl>' must be a whole number"),
        (
            {
                "added_tokens": {"<hl>": 188},
                "tokenizer_config": {"added_tokens_decoder": {"189": {"content": "<hl>"}}},
            },
            r"added_tokens\.json: .* 188, but .*tokenizer_config\.json: added_tokens_decoder",
        ),
        ({"tokenizer_config": {"added_tokens_decoder": {"188": "<hl>"}}}, "added_tokens_decoder"),
        ({"tokenizer_config": {"extra_ids": "many"}}, "extra_ids must be a whole number"),
        ({"tokenizer_config": {"extra_ids": 10**9}}, "extra_ids must be from 0 to"),
        ({"tokenizer_config": {"extra_special_tokens": "<hl>"}}, "extra_special_tokens must be a"),
        ({"special_tokens_map": {"additional_special_tokens": 3}}, "additional_special_tokens"),
        (
            {"special_tokens_map": {"eos_token": {"content": "</s>", "lstrip": "yes"}}},
            "special_tokens_map.json: eos_token: lstrip must be true or false",
        ),
        ({"tokenizer_config": {"eos_token": 3}}, "tokenizer_config.json: eos_token must be a text"),
        ({"special_tokens_map": {"eos_token": 3}}, "special_tokens_map.json: eos_token must be"),
        (
            {"tokenizer_config": {"tokenizer_class": "Mine"}},
            "tokenizer_class .*BertTokenizer.*Mine",
        ),
        ({"config": {"model_type": "t5", "vocab_size": 188}, "added_tokens": {"<hl>": 188}}, "188"),
    ],
)
def test_what_disagrees_is_named(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        open_vocab(folder_of(tmp_path, "t5", None, **files))


def test_two_files_of_pieces_must_agree(tmp_path):
    hf = pytest.importorskip("transformers")
    write(tmp_path, "bert", "plain", "both", hf)
    lines = (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    lines[7], lines[8] = lines[8], lines[7]
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json: .*in model\.vocab, but .*vocab\.txt"):
        open_vocab(tmp_path)


def test_a_piece_that_is_there_twice_is_named(tmp_path):
    hf = pytest.importorskip("transformers")
    write(tmp_path, "albert", "plain", "fast", hf)
    file = tmp_path / "tokenizer.json"
    spec = json.loads(file.read_text(encoding="utf-8"))
    spec["model"]["vocab"].append(spec["model"]["vocab"][9])
    file.write_text(json.dumps(spec), encoding="utf-8")
    with pytest.raises(DataError, match=r"tokenizer\.json .*twice"):
        open_vocab(tmp_path)


def test_what_a_class_replaces_is_told(tmp_path, caplog):
    hf = pytest.importorskip("transformers")
    write(tmp_path, "bert", "plain", "fast", hf)
    file = tmp_path / "tokenizer.json"
    spec = json.loads(file.read_text(encoding="utf-8"))
    spec["normalizer"]["lowercase"] = False
    file.write_text(json.dumps(spec), encoding="utf-8")
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path)("The Dog", add_special_tokens=False)
    assert open_vocab(tmp_path).encode("The Dog") == theirs.input_ids
    assert "tokenizer.json: texts are prepared as BertTokenizer does" in caplog.text
    (tmp_path / "tokenizer_config.json").write_text(
        '{"tokenizer_class": "PreTrainedTokenizerFast"}'
    )
    own = Tokenizer.from_file(str(file)).encode("The Dog", add_special_tokens=False).ids
    assert open_vocab(tmp_path).encode("The Dog") == own != theirs.input_ids


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("t5", "config.json"),
        ("t5", "spiece.model"),
        ("bert", "vocab.txt"),
        ("gpt2", "vocab.json"),
        ("gpt2", "merges.txt"),
    ],
)
def test_a_link_to_a_device_or_a_pipe_is_not_read(tmp_path, kind, name):
    """Both have no end, and a folder from elsewhere may have a link to one."""
    os.mkfifo(tmp_path / "pipe")
    for end in ("/dev/zero", str(tmp_path / "pipe")):
        folder = tmp_path / end.replace("/", "_")
        folder.mkdir()
        folder_of(folder, kind, None)
        (folder / name).unlink()
        (folder / name).symlink_to(end)
        for path in (folder, folder / name):
            with pytest.raises(DataError, match=f"{name}.* a pipe or"):
                read_json(path) if path.suffix == ".json" else open_vocab(path)


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_special_tokens_are_split_where_a_folder_says_so(tmp_path, kind, split):
    hf = pytest.importorskip("transformers")
    write(tmp_path, kind, "more", "fast", hf)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"split_special_tokens": split}))
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path)
    vocab = open_vocab(tmp_path)
    vocab.save(tmp_path / "saved")
    text = "the <hl> cat"
    wanted = theirs(text, add_special_tokens=False)["input_ids"]
    for one in (vocab, open_vocab(tmp_path / "saved")):
        assert one.encode(text) == wanted
        assert one.decode(one.encode("the cat")) == "the cat"
