"""A folder of transformers in each of its layouts: symbols and log-probabilities are the same."""

import json

import pytest
import torch

import unitk
from tests.vocab.test_open import FAMILIES, odd_texts, write
from unitk.data.corpus.folders import check_alike, open_corpus
from unitk.data.corpus.writer import write_manifest
from unitk.errors import DataError
from unitk.formats.hf.families import families
from unitk.formats.vocabs import same_vocab
from unitk.models.archs import preset
from unitk.registry import get
from unitk.tasks.seq2seq import Seq2Seq
from unitk.training.saving.checkpoint import Loaded
from unitk.verbs import preprocess
from unitk.vocab.base import Vocab
from unitk.vocab.open import open_vocab
from unitk.vocab.tokenizer_files import AS_IT_IS, FIXED, USUAL
from unitk.vocab.tokenizer_json import Tokenizers

MODELS = {
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "gpt2": "GPT2LMHeadModel",
    "bert": "BertForMaskedLM",
    "ernie": "ErnieForMaskedLM",
    "roberta": "RobertaForMaskedLM",
    "albert": "AlbertForMaskedLM",
    "xlnet": "XLNetLMHeadModel",
    "xlm-roberta": "XLMRobertaForMaskedLM",
}
SIZES = dict.fromkeys(("hidden_size", "d_model", "n_embd"), 32)
SIZES |= dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer"), 2)
SIZES |= dict.fromkeys(("encoder_layers", "decoder_layers"), 2)
SIZES |= dict.fromkeys(("num_attention_heads", "num_heads", "n_head"), 4)
SIZES |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
SIZES |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "intermediate_size"), 48)
SIZES |= {"d_ff": 48, "d_inner": 48, "d_kv": 8, "embedding_size": 16, "n_positions": 64}
SIZES |= {"max_position_embeddings": 64, "decoder_start_token_id": 0}
TEXT, TARGET = "<hl> the lazy <hl> fox, [new] 1,234", "jumps over é <sep2>\n"
IDS = {"t5": (None, 1, 0), **dict.fromkeys(("bart", "roberta", "xlm-roberta"), (0, 2, 1))}
IDS |= {"gpt2": (0, 0, None), "xlnet": (1, 2, 5)}


def made(hf, kit, folder, kind, settings, layout, spare=0):
    """A random model with a tokenizer in a layout, and with spare rows."""
    theirs = write(folder, kind, settings, layout, hf)
    model_class = getattr(hf, MODELS[kind])
    given = {"vocab_size": len(theirs) + spare, **SIZES}
    config = model_class.config_class()
    bos, eos, pad = IDS.get(kind, (None, None, 0))
    known = {key: value for key, value in given.items() if key in config.to_dict()}
    known |= {key: value for key, value in SIZES.items() if key in config.attribute_map}
    known |= {"bos_token_id": bos, "eos_token_id": eos, "pad_token_id": pad}
    known |= {"decoder_start_token_id": {"t5": 0, "bart": 2}.get(kind)}
    torch.manual_seed(0)
    model = kit.perturbed(model_class(model_class.config_class(**known)))
    model.save_pretrained(folder)
    return model, theirs


@torch.no_grad()
@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        *((kind, "both") for kind in FAMILIES if kind in MODELS),
        ("t5", "slow"),
        ("t5", "fast"),
        ("xlm-roberta", "slow"),
    ],
)
def test_the_log_probabilities_are_theirs(hf, kit, tmp_path, kind, layout):
    model, tokenizer = made(hf, kit, tmp_path, kind, "decoder", layout)
    module = unitk.load_module(tmp_path, format="hf")
    rows = model.config.vocab_size
    read = tokenizer(TEXT, return_tensors="pt")
    if kind == "xlnet":  # <cls> is a segment of its own, which their tokenizer leaves out
        read["token_type_ids"] = 2 * (read.input_ids == tokenizer.cls_token_id).long()
    if kind in ("t5", "bart"):
        labels = tokenizer(TARGET, return_tensors="pt").input_ids
        theirs = model(**read, labels=labels).logits[0].log_softmax(1)
        [found], [ids] = module.logits([TEXT], [TARGET]), module.ids([TEXT], [TARGET])
        start = kind == "bart"  # <s>, which is before a target
        assert ids.tolist() == labels[0, start:].tolist()
        theirs = theirs[start:]
    else:
        theirs = model(**read).logits[0].log_softmax(1)
        [found], [ids] = module.logits([TEXT]), module.ids([TEXT])
        begins = kind == "gpt2"  # [SEP], with which texts begin there
        if begins:
            theirs = model(torch.tensor(ids)[None]).logits[0].log_softmax(1)
        assert ids.tolist()[begins:] == read.input_ids[0].tolist()
    torch.testing.assert_close(found[:, :rows].log_softmax(1), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["t5", "xlnet", "bert", "gpt2"])
def test_what_goes_out_again_reads_texts_as_before(hf, kit, tmp_path, kind):
    (tmp_path / "there").mkdir()
    spare = 20 * (kind in ("t5", "gpt2"))
    _, tokenizer = made(hf, kit, tmp_path / "there", kind, "decoder", "slow", spare)
    ours = kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    again = hf.AutoTokenizer.from_pretrained(back)
    found = again(odd_texts(300), add_special_tokens=False).input_ids
    assert found == tokenizer(odd_texts(300), add_special_tokens=False).input_ids
    kept, given = again.added_tokens_decoder, tokenizer.added_tokens_decoder
    assert {index: repr(kept[index]) for index in given} == {i: repr(t) for i, t in given.items()}
    assert open_vocab(back).symbols == open_vocab(ours).symbols
    if kind == "gpt2":  # a text begins with its end
        assert again.bos_token == tokenizer.bos_token == again.eos_token


def test_texts_of_a_qwen_are_padded_as_before(hf, kit, tmp_path):
    """Its padding is what `bos_token_id` names; a text may spell [PAD], which it has not."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    pieces = Tokenizer(models.BPE({one: i for i, one in enumerate([*special, *alphabet])}, []))
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    pieces.add_special_tokens(special)
    theirs = hf.PreTrainedTokenizerFast(
        tokenizer_object=pieces, eos_token=special[2], pad_token=special[0]
    )
    given = {"hidden_size": 32, "head_dim": 8, "num_hidden_layers": 1, "intermediate_size": 32}
    given |= {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}
    ids = {"bos_token_id": 0, "eos_token_id": 2}
    config = hf.Qwen3Config(vocab_size=len(theirs) + 30, **ids, **given)
    for written in (hf.Qwen3ForCausalLM(config), theirs):
        written.save_pretrained(tmp_path / "there")
    ours = kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    again = hf.AutoTokenizer.from_pretrained(back)
    texts = ["a [PAD]", "a longer text"]
    assert (
        again(texts, padding=True).input_ids
        == theirs(texts, padding=True, padding_side="left").input_ids
    )
    assert json.loads((back / "config.json").read_text())["pad_token_id"] == again.pad_token_id == 0


def test_a_decoder_that_begins_with_the_end_comes_in(hf, kit, tmp_path):
    made(hf, kit, tmp_path, "t5", "plain", "slow")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": 1}))
    task = unitk.load(tmp_path, format="hf").task
    assert (task.start, task.vocab.sep, task.vocab.pad) == ([1], 1, 0)
    (tmp_path / "config.json").write_text(json.dumps(config | {"decoder_start_token_id": 9}))
    assert unitk.load(tmp_path, format="hf").task.start == [9]


def test_a_decoder_that_begins_with_another_symbol_keeps_its_pad(kit, toy_vocab, tmp_path):
    task = get("task", "seq2seq")(Seq2Seq.Config(opening="cls"), toy_vocab)
    model = preset("t5_tiny").build(len(toy_vocab))
    get("format", "hf").write(Loaded(model, task, {"arch": "t5_tiny"}, {}), tmp_path)
    (tmp_path / "sentencepiece.model").unlink()  # as transformers saves it
    again = unitk.load(tmp_path, format="hf").task
    assert again.vocab.symbols == toy_vocab.symbols and len(again.vocab) == len(toy_vocab)
    assert again.start == [toy_vocab.cls]


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_vocabulary_that_comes_back_is_the_same(hf, kit, tmp_path, kind):
    """It has other bytes: transformers writes the frame of a prompt into tokenizer.json."""
    (tmp_path / "there").mkdir()
    made(hf, kit, tmp_path / "there", kind, "decoder", "slow")
    ours = kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    hf.AutoTokenizer.from_pretrained(back).save_pretrained(back)
    again = kit.to_unitk("hf", back, tmp_path / "again")
    one, other = open_vocab(ours), open_vocab(again)
    assert one.hash != other.hash and same_vocab(one, other)
    (tmp_path / "text.txt").write_text("the lazy fox\n" * 9)
    words = f"--input {tmp_path}/text.txt --vocab {ours} --dest {tmp_path}/data"
    preprocess.run(words.split())
    # texts are as long as the 64 positions of the model allow
    data = tmp_path / "data" / "train"
    found = [unitk.evaluate(checkpoint=path, data=data) for path in (ours, again)]
    assert found[0] | {"checkpoint": str(again)} == found[1]
    # corpora that were made with both are trained on together
    preprocess.run([*words.split()[:2], f"--vocab={again}", f"--dest={tmp_path}/more"])
    both = [tmp_path / name for name in ("data", "more")]
    unitk.merge(both, dest=tmp_path / "joined")
    sizes = [len(open_corpus(folder)) for folder in (*both, tmp_path / "joined")]
    assert sizes[0] + sizes[1] == sizes[2]
    changed = tmp_path / "more/train/vocab"
    swapped = {"mask": other.symbols["smask"], "smask": other.mask}
    symbols = {**other.symbols, **swapped}
    Vocab(other.model, symbols, other.added).save(changed)
    about = json.loads((tmp_path / "more/train/manifest.json").read_text())
    left = ("format", "files", "sha256")
    about = {key: value for key, value in about.items() if key not in left}
    write_manifest(changed.parent, about | {"vocab": Vocab.load(changed).hash})
    with pytest.raises(DataError, match="more.*another vocabulary.*data"):
        check_alike([*map(open_corpus, both)])
    # any step of the file that changes ids makes another one
    spec = json.loads(other.model.data)
    for change in (
        {"normalizer": {"type": "Lowercase"}},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"added_tokens": [token | {"rstrip": True} for token in spec["added_tokens"]]},
    ):
        model = Tokenizers(json.dumps(spec | change).encode())
        assert not same_vocab(one, Vocab(model, other.symbols, other.added))


@pytest.mark.parametrize("kind", sorted(families()))
def test_a_model_type_has_the_class_that_transformers_takes(hf, kind):
    auto = pytest.importorskip("transformers.models.auto.tokenization_auto")
    theirs = auto.TOKENIZER_MAPPING_NAMES.get(kind) or AS_IT_IS
    # what they take for this type, whatever a file names
    fixed = theirs == AS_IT_IS and kind in auto.TOKENIZER_MAPPING_NAMES
    fixed |= kind in auto.MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS
    assert FIXED.get(kind) == (theirs if fixed else None)
    if kind != "marian":  # which has files of its own
        assert USUAL.get(kind, AS_IT_IS) == theirs


@pytest.mark.parametrize("kind", ["bert", "roberta", "bart", "albert", "xlnet", "gpt2", "t5"])
def test_symbols_are_those_of_the_model_type_also_if_it_is_left_out(hf, kit, tmp_path, kind):
    """As in folders of 2019: the class in `architectures`, or the tensors, tell it."""
    made(hf, kit, tmp_path, kind, "plain", "slow")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink(missing_ok=True)
    config = tmp_path / "config.json"
    found = []
    for key in ("", "model_type", "architectures"):
        given = json.loads(config.read_text())
        given.pop(key, None)
        config.write_text(json.dumps(given))
        found.append(open_vocab(kit.to_unitk("hf", tmp_path, tmp_path / f"u{key}")).symbols)
        # `unitk preprocess --vocab` reads the folder alike
        assert open_vocab(tmp_path).symbols == found[-1]
    assert found[1:] == found[:1] * 2
