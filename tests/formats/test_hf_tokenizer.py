"""transformers' AutoTokenizer opens what is written, and gives unitk's ids for any text."""

import io
import json
import random

import pytest
import sentencepiece as library
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.conftest import toy_lines
from unitk.errors import DataError
from unitk.formats.hf.tokenizer import write_tokenizer
from unitk.registry import get
from unitk.vocab.base import SYMBOLS, adopt
from unitk.vocab.open import open_vocab
from unitk.vocab.subwords import Lowercased, SentencePiece, Unaccented
from unitk.vocab.train import train_vocab

LINES = [
    "The quick brown fox jumps over the lazy dog, again and again!",
    "Zwölf Boxkämpfer jagen Viktor über den Sylter Deich: 1234567890.",
    "寿司を食べる 漢字 한국어 <b>html</b> a[0] = x(1); e\u0301 é café",
    "Voix ambiguë d'un cœur qui au zéphyr préfère les jattes de kiwis",
] * 3
ODD = """|a| a|a |  a  b  |a\tb|a\nb\r\nc| \t \n |\u00a0x\u00a0|\u3000x\u3000y
▁|▁a|a▁|a▁▁b|é|e\u0301|q\u0307\u0323|z\u0351\u036b\u0343a\u0321lgo
ﬁne ²|Ⅷ ½|한국어 각|\u1112\u1161\u11ab|寿司を食べる|ｶﾞｷﾞ|Ａ～Ｂ|😀😀
👨‍👩‍👧‍👦|🇩🇪|\x00|\x01a\x7f|a\x0bb\x0cc|\x1c x \x1f|\x85
\u2028\u2029|ß ẞ İ ı|ﷺ|مرحبا|नमस्ते|\u200b|a\u200db|\ufeffx|\ud7a3
\u0958|\U0001d54f\U0010ffff|\ue000|’‘“”—…|don't I'll|aaaa aaa aaaaa
<0x41>|<0xE2><0x96><0x81>|un[MASK]able|the [MASK] sat|[CLS][SEP]|<s>
</s> x|x <unk>|<pad>|<mask> <s>|<|endoftext|>|@@ a@@ b
[PAD] [gMASK][sMASK]|<|startofpiece|> a <|endofpiece|>|...!!??""".replace("\n", "|").split("|")
LETTERS = ["abcdefg hij", "ABC xyz .,;!?", "äöüßéèçñ ", " \t\n", "日本語漢字 カナ", "😀🎉👍🏽❤️ "]
LETTERS += [
    "\x00\x01\x1f\x7f\x85 a",
    "[]<>|MASKCLS/s ",
    "абв אבג",
    "０１２ＡＢ ｶﾞ",
    "\u1112\u1161한 ",
]


def odd_texts(count=500):
    """Those above, every symbol, several of them in a row, and random ones."""
    rng = random.Random(1)
    texts = [*ODD, *SYMBOLS.values(), "1234567890" * 5, "a" * 300, "x" * 40 + " " + "y" * 40]
    while len(texts) < count:
        some = [rng.choice(LETTERS), "".join(LETTERS)][rng.randrange(2)]
        drawn = "".join(rng.choice(some) for _ in range(rng.randrange(30)))
        texts.append([drawn, " ".join(rng.choices(ODD, k=3))][rng.randrange(2)])
    return texts


def sentencepiece(kind, bytes_too, normalization="nmt_nfkc"):
    rng = random.Random(0)
    parts = [word[:cut] for line in LINES for word in line.split() for cut in (2, 3, 9)]
    lines = LINES + ["".join(rng.choices([*parts, " "], k=12)) for _ in range(300)]
    options = {"byte_fallback": bytes_too, "normalization": normalization, "coverage": 1.0}
    return lambda folder: train_vocab(lines, 600 if bytes_too else 350, kind, **options)


def pieces_of(names, **options):
    """The bytes of a sentencepiece model with pieces of the user, as ALBERT and XLNet have."""
    written = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=written,
        control_symbols=names,
        minloglevel=2,
        **{"vocab_size": 88, **options},
    )
    return written.getvalue()


def with_own_pieces(kind, **options):
    names = ["<cls>", "<sep>", "<pad>", "<mask>"]
    own = {"user_defined_symbols": [".", "(", ":", "@@"], **options}
    return lambda folder: adopt(kind(pieces_of(names, **own)))


def wordpiece(folder):
    words = {word: 0 for line in LINES for word in line.lower().split()}
    letters = {letter: 0 for word in words for letter in (*word, *(f"##{one}" for one in word))}
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters]
    (folder / "vocab.txt").write_text("".join(f"{name}\n" for name in dict.fromkeys(names)))
    return open_vocab(folder / "vocab.txt")


def byte_bpe(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=letters, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.model.save(str(folder))
    return open_vocab(folder)


def dropped(folder):
    """Pieces of bytes whose file leaves merges out by chance, which unitk never does."""
    data = json.loads(byte_bpe(folder).model.data)
    data["model"]["dropout"] = 0.5
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return open_vocab(folder / "tokenizer.json")


def listed(name, joint=""):
    def made(folder):
        words = {word + joint * (i % 2) for line in LINES for i, word in enumerate(line.split())}
        counts = " 1" if name == "dict.txt" else ""
        lines = [f"{word}{counts}\n" for word in sorted(words)]
        (folder / name).write_text("".join(lines))
        return open_vocab(folder / name)

    return made


SUFFIX = {"treat_whitespace_as_suffix": True, "normalization_rule_name": "identity"}
SUFFIX["remove_extra_whitespaces"] = False
VOCABS = {
    "unigram": sentencepiece("unigram", False),
    "unigram_bytes": sentencepiece("unigram", True),
    "unigram_lower": sentencepiece("unigram", True, "nmt_nfkc_cf"),
    "unigram_raw": sentencepiece("unigram", False, "identity"),
    "unigram_letters": lambda folder: train_vocab(toy_lines(400), 300),
    "bpe": sentencepiece("bpe", False),
    "bpe_bytes": sentencepiece("bpe", True, "nfkc"),
    "own_pieces": with_own_pieces(SentencePiece),
    "own_bpe": with_own_pieces(SentencePiece, model_type="bpe", vocab_size=110),
    "words_end": with_own_pieces(SentencePiece, **SUFFIX),
    "no_first_blank": with_own_pieces(SentencePiece, add_dummy_prefix=False),
    "unaccented": with_own_pieces(Unaccented),
    "lowercased": with_own_pieces(Lowercased),
    "wordpiece": wordpiece,
    "byte_bpe": byte_bpe,
    "dropout": dropped,
    "fairseq": listed("dict.txt"),
    "fairseq_joints": listed("dict.txt", "@@"),
    "words": listed("some.words"),
}


@pytest.mark.parametrize("name", VOCABS)
def test_the_ids_are_unitks(tmp_path, name):
    transformers = pytest.importorskip("transformers")
    there = tmp_path / "there"
    there.mkdir()
    vocab = VOCABS[name](there)
    task_type = get("task", "lm")
    task = task_type(task_type.Config(), vocab)
    write_tokenizer(task, tmp_path, len(vocab), {"split_special_tokens": True})
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = odd_texts()
    found = theirs(texts, add_special_tokens=False)["input_ids"]
    wrong = [text for text, ids in zip(texts, found, strict=True) if ids != vocab.encode(text)]
    assert not wrong
    # what is around a text is what a prompt of the task has
    ids = vocab.encode("over the lazy dog")
    prompt = task.prompt([vocab.model.encode_packed(["over the lazy dog"])[0]]).towers["x"]
    assert theirs("over the lazy dog")["input_ids"] == prompt.token.tolist()
    ids = [index for index in ids if index != vocab.unk]  # which sentencepiece writes as ⁇
    assert theirs.decode(ids) == vocab.decode(ids)
    # and symbols have the ids that they have here
    names = vocab.pieces(vocab.symbols.values())
    assert theirs.convert_tokens_to_ids(names) == list(vocab.symbols.values())
    marked = theirs("lazy [MASK]", add_special_tokens=False, split_special_tokens=False)
    if vocab.pieces([vocab.mask]) == ["[MASK]"]:
        assert marked["input_ids"] == vocab.encode_marked("lazy [MASK]")


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("name", ["unigram", "unigram_bytes", "bpe_bytes"])
def test_what_a_decoder_continues_has_the_blank_before_it(tmp_path, name, pairs):
    """As text-generation pipelines join it to its prompt; the answer to a source has none."""
    transformers = pytest.importorskip("transformers")
    there = tmp_path / "there"
    there.mkdir()
    vocab = VOCABS[name](there)
    task_type = get("task", "lm")
    task = task_type(task_type.Config(), vocab).with_trained(pairs=pairs)
    write_tokenizer(task, tmp_path, len(vocab), {}, alone=True)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    prompt, text = "over the", "over the lazy dog"
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    behind = theirs.decode(ids[len(theirs(prompt, add_special_tokens=False)["input_ids"]) :])
    assert behind == ("lazy dog" if pairs else " lazy dog")
    assert theirs.decode(ids).strip() == text


# its own normalizer loses Korean letters, and finds symbols that a text spells
LATIN = [
    *LINES[:2],
    LINES[3],
    "e\u0301 É ﬁne ² Ｂ ß ẞ İ",
    "``don't'' I'll...",
    "  Ñ\u0303 \t a",
    "",
]


@pytest.mark.parametrize("kind", ["albert", "xlnet"])
@pytest.mark.parametrize("says", [{}, {"do_lower_case": True}, {"do_lower_case": False}])
def test_case_and_accents_are_those_of_the_family(tmp_path, kind, says):
    """A folder of its first release has spiece.model alone, which keeps both."""
    transformers = pytest.importorskip("transformers")
    names = ["[CLS]", "[SEP]", "[MASK]"] if kind == "albert" else ["<cls>", "<sep>", "<mask>"]
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
    (tmp_path / "spiece.model").write_bytes(pieces_of(names, **ids))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    if says:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(says))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = open_vocab(tmp_path)
    assert ours.encode("Café") == ours.encode("Cafe")
    lowercase = says.get("do_lower_case", kind == "albert")
    assert (ours.encode("The") == ours.encode("the")) == lowercase
    found = theirs(LATIN, add_special_tokens=False)["input_ids"]
    assert [ours.encode(text) for text in LATIN] == found


@pytest.mark.parametrize("model_type", [SentencePiece, Unaccented, Lowercased])
def test_a_model_of_ours_comes_in_as_it_went_out(tmp_path, model_type):
    vocab, task_type = with_own_pieces(model_type)(None), get("task", "mlm")
    write_tokenizer(task_type(task_type.Config(), vocab), tmp_path, len(vocab), {})
    again = open_vocab(tmp_path)
    assert again.model.kind == vocab.model.kind
    assert again.encode("É the E") == vocab.encode("É the E")


def test_bert_reads_case_and_accents_as_its_folder_says(tmp_path):
    transformers = pytest.importorskip("transformers")
    words = wordpiece(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert open_vocab(tmp_path).encode("Über") == words.encode("uber")
    file = tmp_path / "tokenizer_config.json"
    file.write_text('{"do_lower_case": true, "strip_accents": false}')
    ours = open_vocab(tmp_path)
    assert ours.encode("Über") == ours.encode("über") != ours.encode("uber")
    found = transformers.AutoTokenizer.from_pretrained(tmp_path)(LATIN, add_special_tokens=False)
    assert [ours.encode(text) for text in LATIN] == found["input_ids"]
    file.write_text('{"do_lower_case": "no"}')
    with pytest.raises(DataError, match="tokenizer_config.json: do_lower_case must be.*false"):
        open_vocab(tmp_path)


def test_gpts_pieces_end_words(tmp_path):
    """Its vocab.json and merges.txt have GPT-2's names, but their pieces are of characters."""
    transformers = pytest.importorskip("transformers")
    letters = sorted({letter for line in LINES for letter in line.lower()} - {" "})
    merges = ["t h", "th e</w>", "o v", "ov e", "ove r</w>", "a g"]
    joined = [pair.replace(" ", "") for pair in merges]
    pieces = ["<unk>", *letters, *(f"{letter}</w>" for letter in letters), *joined]
    (tmp_path / "vocab.json").write_text(json.dumps({one: i for i, one in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    (tmp_path / "config.json").write_text('{"model_type": "openai-gpt"}')
    ours = open_vocab(tmp_path)
    assert ours.pieces(ours.encode("The AGE over")) == ["the</w>", "ag", "e</w>", "over</w>"]
    assert ours.decode(ours.encode("The AGE over")) == "the age over"
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    found = theirs(LATIN, add_special_tokens=False)["input_ids"]
    assert [ours.encode(text) for text in LATIN] == found
