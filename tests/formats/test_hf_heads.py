"""Fine-tuned models of Hugging Face come in and go out with equal logits, losses and tensors."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_near
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

import unitk
from unitk.errors import CheckpointError, UsageError
from unitk.formats.hf.folder import write
from unitk.formats.hf.heads import warn_of_layers
from unitk.models.archs import preset
from unitk.options.config import Component, Parsed
from unitk.options.settings import NOTHING, Origin, Settings
from unitk.registry import get
from unitk.slots import collate
from unitk.training.saving.checkpoint import Loaded, load
from unitk.vocab.open import open_vocab

from .conftest import WORDS
from .test_hf import (
    BART,
    BERT,
    DEBERTA,
    DISTIL,
    EURO,
    GEMMA,
    GPT,
    GROUPED,
    MODERN,
    NEOX,
    OWN_IDS,
    PHI3,
    STABLE,
    T5,
    T5_1_1,
    TOKENIZERS,
    XLNET,
    as_released,
    edit,
)

ENDS_AND_STARTS = {"bos_token_id": 2, "eos_token_id": 3}
SMALL = {**BERT, "num_hidden_layers": 1}
ONE = {"num_hidden_layers": 1, "pad_token_id": 0}
FAMILIES = {
    "bert": ("Bert", SMALL),
    "ernie": ("Ernie", SMALL),
    "roberta": ("Roberta", {**SMALL, "type_vocab_size": 1}),
    "albert": ("Albert", {**SMALL, "embedding_size": 12}),
    "electra": ("Electra", {**SMALL, "embedding_size": 12}),
    "distilbert": ("DistilBert", {**DISTIL, "n_layers": 1}),
    "mpnet": ("MPNet", {**SMALL, **OWN_IDS}),
    "deberta": ("DebertaV2", DEBERTA),
    "xlm_roberta": ("XLMRoberta", {**SMALL, "type_vocab_size": 1, **OWN_IDS}),
    "gpt2": ("GPT2", {**GPT, "n_layer": 1, "pad_token_id": 0}),
    "gpt": ("OpenAIGPT", {**GPT, "n_layer": 1, "pad_token_id": 0}),
    "bart": ("Bart", {**BART, **ENDS_AND_STARTS, "decoder_start_token_id": 3}),
    "t5": ("T5", {**T5, "eos_token_id": 3}),
    "t5_v1_1": ("T5", {**T5_1_1, "eos_token_id": 3}),
    "modernbert": ("ModernBert", MODERN),
    "modernbert_mean": ("ModernBert", {**MODERN, "classifier_pooling": "mean"}),
    "modernbert_decoder": ("ModernBertDecoder", MODERN),
    "eurobert": ("EuroBert", EURO),
    "eurobert_bos": ("EuroBert", {**EURO, "classifier_pooling": "bos"}),
    "eurobert_mean": ("EuroBert", {**EURO, "classifier_pooling": "mean"}),
    "xlnet": ("XLNet", {**XLNET, "n_layer": 1, "pad_token_id": 0}),
    "llama": ("Llama", {**GROUPED, **ONE}),
    "mistral": ("Mistral", {**GROUPED, **ONE}),
    "qwen2": ("Qwen2", {**GROUPED, **ONE, "head_dim": 8}),
    "qwen3": ("Qwen3", {**GROUPED, **ONE}),
    "smollm3": ("SmolLM3", {**GROUPED, **ONE}),
    "glm": ("Glm", {**GROUPED, **ONE}),
    "glm4": ("Glm4", {**GROUPED, **ONE}),
    "phi3": ("Phi3", {**PHI3, **ONE}),
    "stablelm": ("StableLm", {**STABLE, **ONE}),
    "starcoder2": ("Starcoder2", {**GROUPED, **ONE}),
    "olmo2": ("Olmo2", {**GROUPED, **ONE}),
    "gemma3": ("Gemma3", {**GEMMA, **ONE, "layer_types": ["sliding_attention"]}),
    "neox": ("GPTNeoX", {**NEOX, **ONE}),
}
ENDS = {
    "classify": "SequenceClassification",
    "regress": "SequenceClassification",
    "tag": "TokenClassification",
    "choice": "MultipleChoice",
    "span": "QuestionAnswering",
}
LABELS = ("plus", "minus", "even")  # not in the order of the alphabet
PAIRS = [(family, task) for family in ("bert", "roberta", "albert") for task in ENDS]
PAIRS += [(family, "classify") for family in ("electra", "distilbert", "mpnet", "xlm_roberta")]
PAIRS += [("deberta", "classify"), ("deberta", "tag")]
PAIRS += [("electra", "choice"), ("distilbert", "choice"), ("distilbert", "span")]
PAIRS += [("gpt2", task) for task in ENDS]
PAIRS += [(family, task) for family in ("bart", "t5") for task in ("classify", "regress", "span")]
PAIRS += [("modernbert", task) for task in ENDS]
PAIRS += [("modernbert_mean", task) for task in ("classify", "regress")]
PAIRS += [("modernbert_decoder", "classify"), ("eurobert_mean", "classify")]
PAIRS += [("eurobert", task) for task in ("classify", "regress", "tag")]
PAIRS += [("eurobert_bos", "classify")]
PAIRS += [("xlnet", task) for task in ENDS]
TODAY = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "neox")
PAIRS += [(family, task) for family in ("mistral", "qwen3", "neox") for task in ("tag", "span")]
PAIRS += [(family, "classify") for family in TODAY]
PAIRS += [("llama", "span"), ("qwen3", "regress"), ("olmo2", "classify"), ("gemma3", "classify")]
PAIRS += [("glm", "classify"), ("glm", "tag"), ("glm4", "classify"), ("phi3", "classify")]
PAIRS += [(family, task) for family in ("stablelm", "starcoder2") for task in ("classify", "tag")]
PAIRS += [("ernie", "classify"), ("t5_v1_1", "classify"), ("gpt", "classify"), ("gpt", "choice")]
ENDS["multi_label"] = ENDS["classify"]
PAIRS += [(family, "multi_label") for family in ("bert", "gpt2", "bart")]


def class_of(family, task):
    """The name of their class."""
    name, _ = FAMILIES[family]
    double = task == "choice" and family.startswith("gpt")
    simple = "Simple" * (family == "xlnet" and task == "span")
    if double:
        return f"{name}DoubleHeadsModel"
    return f"{name}{'Text' * (family == 'gemma3')}For{ENDS[task]}{simple}"


@pytest.fixture
def make(hf, kit, tmp_path, vocab_txt):
    """Writes a random fine-tuned model; the model and its folder."""

    def made(family, task):
        name, settings = FAMILIES[family]
        labels = {
            "classify": LABELS,
            "multi_label": LABELS,
            "tag": LABELS,
            "regress": ("much",),
        }.get(task)
        if labels:
            named = {"id2label": dict(enumerate(labels)), "label2id": {}}
            settings = settings | named | {"num_labels": len(labels)}
        if task == "multi_label":
            settings = settings | {"problem_type": "multi_label_classification"}
        torch.manual_seed(0)
        config = getattr(hf, class_of(family, task)).config_class(**settings)
        model = kit.perturbed(getattr(hf, class_of(family, task))(config))
        if family == "gemma3":
            as_released(model)
        if hasattr(model, "multiple_choice_head"):  # which adds as much to every choice
            torch.nn.init.zeros_(model.multiple_choice_head.summary.bias)
        model.save_pretrained(tmp_path / "there")
        (tmp_path / "there" / "vocab.txt").write_text(vocab_txt.read_text())
        return model, tmp_path / "there"

    return made


def sources(task, kit):
    """Texts of different lengths, and what is right of each."""
    rng = np.random.default_rng(1)
    if task == "tag":
        return [[kit.ids(rng, n) for n in sizes] for sizes in ((2, 1, 3), (1, 2), (1, 1, 2, 5))]
    if task == "choice":
        return [[kit.ids(rng, n) for n in sizes] for sizes in ((4, 3, 6), (3, 2, 2), (6, 1, 4))]
    return [[kit.ids(rng, n) for n in sizes] for sizes in ((5, 3), (4, 9), (2, 2))]


RIGHT = {
    "classify": [[2], [0], [1]],
    "multi_label": [np.array([0, 2]), np.array([], int), np.array([1])],
    "regress": [[0.5], [-2.0], [1.0]],
    "tag": [[0, 2, 1], [1, 1], [2, 0, 0, 1]],
    "choice": [[1], [0], [1]],
    "span": [[1, 3], [0, 9], [-1, -1]],
}


def ours_of(model, task, parts, right):
    """Logits of the rows of each text, and the mean loss, in one batch."""
    if task.form == "span":
        laid = [task.answer(one, np.array(y), None) for one, y in zip(parts, right, strict=True)]
    else:
        laid = [task.classify(one, np.array(y), None) for one, y in zip(parts, right, strict=True)]
    batch = collate([[example] for example in laid]).to("cpu")
    ask, *words = batch.asks.values()
    with torch.no_grad():
        states, _ = model(batch)
        loss = sum(model.answer(states, batch, [one]).loss.mean() for one in (ask, *words))
        rows = model.output(batch, ask).split([len(example.asks[0].label) for example in laid])
    return rows, loss, laid


@pytest.mark.parametrize(
    ("family", "wanted"),
    [
        ("bert", "C a b S c S"),
        ("roberta", "C a b S S c S"),
        ("bart", "C a b S S c S"),
        ("gpt2", "a b S c"),
        ("t5", "a b S c S"),
        ("xlnet", "a b S c S C"),
    ],
)
def test_pairs_look_as_there(kit, make, tmp_path, family, wanted):
    """What their tokenizers put around texts; GPT-2's puts nothing, not even between two."""
    _, there = make(family, "classify")
    task = load(kit.to_unitk("hf", there, tmp_path / "ours")).task
    names = {"a": 10, "b": 11, "c": 12, "C": task.vocab.cls, "S": task.vocab.sep}
    encoded = task.lay_out_parts([np.array([10, 11]), np.array([12])])
    towers = encoded.example.towers
    found = towers["enc" if "enc" in towers else "x"].token
    assert found.tolist() == [names[one] for one in wanted.split()]
    read = towers[encoded.tower].token
    ends = [part + (encoded.tower == "dec") for part in encoded.parts]
    assert [read[end].tolist() for end in ends] == [[10, 11], [12]]
    assert encoded.whole == (0 if family in ("bert", "roberta") else len(read) - 1)


def padded(rows, fill, left=False):
    longest = max(map(len, rows))
    lacks = [[fill] * (longest - len(row)) for row in rows]
    both = [[row, more][:: -1 if left else 1] for row, more in zip(rows, lacks, strict=True)]
    return torch.tensor([[*one, *other] for one, other in both])


def theirs_of(model, task, parts, laid):
    """The same of their model, whose inputs are the slots of ours."""
    kind, rights = type(task).__name__.lower(), [example.asks[0].label for example in laid]
    each = []
    for one in parts:
        if kind == "tag":
            each.append(task.lay_out_parts([np.concatenate(one)]))
        elif kind == "choice":
            each += [task.lay_out_parts([one[0], choice]) for choice in one[1:]]
        else:
            each.append(task.lay_out_parts(one))
    towers = [one.example.towers for one in each]
    slots = [tower["enc" if "enc" in tower else "x"] for tower in towers]
    left = model.config.model_type == "xlnet"  # C comes last
    given = {
        "input_ids": padded([s.token for s in slots], model.config.pad_token_id, left),
        "attention_mask": padded([np.ones(len(s), int) for s in slots], 0, left),
    }
    if left or getattr(model.config, "type_vocab_size", 1) > 1:
        given["token_type_ids"] = padded([s.seg for s in slots], 0, left)
    if kind == "choice":
        given = {name: tensor.unflatten(0, (len(parts), -1)) for name, tensor in given.items()}
    double = kind == "choice" and hasattr(model, "multiple_choice_head")
    longest = given["input_ids"].shape[-1] * left
    lacks = [max(0, longest - len(s)) for s in slots]
    asked = [example.asks[0].rows + n for example, n in zip(laid, lacks, strict=False)]
    if kind == "span":
        borders = torch.tensor(np.concatenate(rights)) + torch.tensor(lacks)[:, None]
        given |= {"start_positions": borders[:, 0], "end_positions": borders[:, 1]}
    elif kind == "tag":
        given["labels"] = torch.full(given["input_ids"].shape, -100)
        for row, at, right in zip(given["labels"], asked, rights, strict=True):
            row[at[:, 0]] = torch.tensor(right)
    else:
        given["labels"] = torch.tensor(np.concatenate(rights))
        if kind == "regress":
            given["labels"] = given["labels"].float()
    if double:  # the loss over words is that of every choice
        whole = torch.tensor([one.whole for one in each]).unflatten(0, (len(parts), -1))
        given |= {"mc_labels": given["labels"], "mc_token_ids": whole}
        # GPT's class takes no mask of choices, and padding comes after what is read
        real = given.pop("attention_mask")
        given["labels"] = given["input_ids"].masked_fill(real == 0, -100)
    with torch.no_grad():
        out = model(**given)
    if double:
        return out.mc_logits.split(1), out.loss + out.mc_loss, given["input_ids"]
    if kind == "span":
        both = torch.stack([out.start_logits, out.end_logits], dim=1)
        each = zip(both, lacks, slots, strict=True)
        logits = [one[None, :, n : n + len(s)] for one, n, s in each]
    elif kind == "tag":
        logits = [one[at[:, 0]] for one, at in zip(out.logits, asked, strict=True)]
    else:
        logits = out.logits.split(1)
        logits = [one.flatten() for one in logits] if kind == "regress" else logits
    return logits, out.loss, given["input_ids"]


@pytest.mark.every(6)
@pytest.mark.parametrize(("family", "kind"), PAIRS)
def test_heads_come_and_go_alike(hf, kit, make, tmp_path, family, kind):
    model, there = make(family, kind)
    loaded = load(kit.to_unitk("hf", there, tmp_path / "ours"))
    ours, task = loaded.model, loaded.task
    assert task.trained.labels == (LABELS if kind in ("classify", "multi_label", "tag") else ())
    parts, right = sources(kind, kit), RIGHT[kind]
    found, loss, laid = ours_of(ours, task, parts, right)
    wanted, their_loss, rows = theirs_of(model, task, parts, laid)
    if kind != "span":  # in a batch, theirs finds borders among its padding
        assert_near(loss, their_loss)
    for i, row in enumerate(found):
        assert_near(row[..., : wanted[i].shape[-1]] if kind == "span" else row, wanted[i])
        # alone as in a padded batch
        [alone], loss, laid = ours_of(ours, task, parts[i : i + 1], right[i : i + 1])
        [same], their_loss, _ = theirs_of(model, task, parts[i : i + 1], laid)
        assert_near(alone, same)
        assert_near(loss, their_loss)
    saved = load_file(there / "model.safetensors")
    if "transformer.tokens_embed.weight" not in saved and family == "gpt":
        # this class stores the tied matrix as the output's, the others of its kind do not
        saved["transformer.tokens_embed.weight"] = saved.pop("lm_head.weight")
    back = kit.goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", saved)
    there = class_of(family, kind)
    auto = getattr(hf, there if "Double" in there else f"AutoModelFor{ENDS[kind]}")
    again, info = auto.from_pretrained(back, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(again) is type(model) and again.config.num_labels == model.config.num_labels
    if task.trained.labels:
        assert tuple(again.config.id2label.values()) == LABELS
    _, _, laid = ours_of(ours, task, parts, right)
    for one, other in zip(theirs_of(again, task, parts, laid)[0], wanted, strict=True):
        assert_near(one, other)
    if kind in ("classify", "span"):  # their tokenizer puts around a pair what is read here
        opened = hf.PreTrainedTokenizerFast if family in TOKENIZERS else hf.AutoTokenizer
        tokenizer = opened.from_pretrained(back)
        texts = [loaded.vocab.decode(part) for part in parts[0]]
        assert tokenizer(*texts)["input_ids"] == [i for i in rows[0].tolist() if i]
    again = load(kit.to_unitk("hf", back, tmp_path / "again"))
    assert again.task.config == task.config and again.task.trained.labels == task.trained.labels
    texts = ["w1 w2", "w3 w4", "w5"]
    [said] = unitk.load(tmp_path / "ours").predict([texts if kind == "choice" else texts[:2]])
    assert said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id2label": {"0": "plus", "1": "minus"}}, "id2label must name the 3 outputs 0 to 2"),
        (
            {"problem_type": "regression"},
            "BertForSequenceClassification with 3 outputs as single_label_classification only",
        ),
        (
            {"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]},
            "needs a matrix multiple_choice_head.summary.weight",
        ),
        ({"architectures": ["BertForQuestionAnswering"]}, "needs a matrix qa_outputs.weight"),
        (
            {"model_type": "deberta-v2", "relative_attention": True, "share_att_key": True}
            | {"pooler_hidden_act": "tanh"},
            "pooler_hidden_act 'gelu', got 'tanh'",
        ),
        (
            {"model_type": "t5", "architectures": ["T5ForTokenClassification"]},
            "no model that reads texts as T5ForTokenClassification",
        ),
        (
            {"model_type": "t5", "architectures": ["T5EncoderModel"]},
            "T5 with both towers only, but architectures has T5EncoderModel$",
        ),
        (
            {"model_type": "bart", "architectures": None, "is_encoder_decoder": False},
            "Bart with both towers only, but is_encoder_decoder is false$",
        ),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label .*, but several are 'a'"),
        ({"architectures": ["MyBert"]}, "name the class that has classifier.weight: .*'MyBert'"),
        ({"architectures": []}, "class that has classifier.weight: .*BertForMultipleChoice$"),
    ],
)
def test_what_a_head_cannot_be_is_named(kit, make, tmp_path, change, message):
    _, there = make("bert", "classify")
    edit(there, "config.json", lambda config: config.update(change))
    with pytest.raises(CheckpointError, match=message):
        kit.to_unitk("hf", there, tmp_path / "ours")


def test_a_decoder_that_begins_with_another_symbol_is_named(kit, make, tmp_path):
    _, there = make("bart", "classify")
    edit(there, "config.json", lambda config: config.update(decoder_start_token_id=2))
    with pytest.raises(CheckpointError, match="decoder_start_token_id is 2, but .* begins with 3"):
        kit.to_unitk("hf", there, tmp_path / "ours")


@pytest.mark.parametrize(
    ("arch", "task", "layout", "message"),
    [
        ("gpt2", "classify", "lm", "GPT2ForSequenceClassification needs --arch.head-pooler off"),
        ("bart", "classify", "seq2seq", "needs --task.layout seq2seq:opening=both .*, got seq2seq"),
        ("bart", "tag", "seq2seq:opening=both", "no BartForTokenClassification"),
        ("bart", "choice", "seq2seq:opening=both", "no BartForMultipleChoice"),
        ("gpt2", "choice", "lm", "GPT2DoubleHeadsModel needs --arch.head-pooler off"),
        ("gpt2", "classify", "mlm", "reads texts from left to right, but task classify from both"),
    ],
)
def test_what_no_class_there_reads_is_named(tmp_path, vocab_txt, arch, task, layout, message):
    vocab = open_vocab(vocab_txt)
    task = get("task", task)(get("task", task).Config(layout=layout), vocab)
    task = task.with_trained(labels=LABELS)
    sizes = {"num_layers": 1, "width": 32, "num_heads": 4, "ffn_width": 48, "max_positions": 40}
    config = replace(preset(f"{arch}_tiny"), **sizes, heads=task.heads)
    with pytest.raises(UsageError, match=message):
        write(Loaded(config.build(len(vocab)), task, {}, {}), tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("pooler", [True, False])
@pytest.mark.parametrize(
    ("arch", "layout"), [("gpt2", "lm"), ("bert", "mlm"), ("bart", "seq2seq:opening=both")]
)
def test_training_warns_of_what_an_export_will_refuse(tmp_path, vocab_txt, arch, layout, pooler):
    """The head of a run is BERT's unless an option says otherwise; who says so knows."""
    vocab = open_vocab(vocab_txt)
    task = get("task", "classify")(get("task", "classify").Config(layout=layout), vocab)
    task = task.with_trained(labels=LABELS)
    config = replace(preset(f"{arch}_tiny"), heads=task.heads, head_pooler=pooler)
    refused = []
    try:
        write(Loaded(config.build(len(vocab)), task, {}, {}), tmp_path)
    except UsageError as error:
        refused = [f"`unitk convert` {text}" for text in error.args]
    chosen = {"arch": Component(f"{arch}_tiny", None, config)}
    assert [*warn_of_layers(task, Parsed(task.config, chosen, NOTHING, {}))] == refused
    given = Settings.of_texts({"arch.head_pooler": "on"}, Origin.FLAG)
    assert not [*warn_of_layers(task, Parsed(task.config, chosen, given, {}))]
    assert not refused or (arch == "gpt2") == pooler


@pytest.mark.parametrize(("family", "kind"), [("bert", "span"), ("gpt2", "classify")])
def test_a_map_that_one_class_has_names_it(kit, make, tmp_path, caplog, family, kind):
    """Where config.json names neither the class nor the type."""
    _, there = make(family, kind)
    names = ("architectures", "model_type")
    edit(there, "config.json", lambda config: [config.pop(name) for name in names])
    loaded = load(kit.to_unitk("hf", there, tmp_path / "ours"))
    assert loaded.task.name == kind and "no architectures" in caplog.text


def test_labels_may_be_numbers(kit, make, tmp_path):
    _, there = make("bert", "classify")
    stars = {"0": 5, "1": 3, "2": 1}
    edit(there, "config.json", lambda config: config.update(id2label=stars))
    task = load(kit.to_unitk("hf", there, tmp_path / "ours")).task
    assert task.trained.labels == ("5", "3", "1")


FRAMES = ["$A", "[CLS] $A", "[SEP] $A", "$A [SEP]", "[CLS] $A [SEP]"]


def put_around(folder, frame, classes=("[CLS]", "[SEP]")):
    """Write a tokenizer of the words, which puts symbols around a text."""
    words = [*WORDS, *(name for name in classes if name not in WORDS)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(name) for name in (*WORDS[:5], *classes)])
    ids = [(name, words.index(name)) for name in classes]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=frame, pair=f"{frame} $B:1", special_tokens=ids
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("family", ["gpt2", "gpt", "llama", "modernbert_decoder"])
def test_what_a_tokenizer_puts_around_a_text_is_read(hf, make, family, frame):
    """By heads of decoders: the symbols are in the text, and the last one may be what is read."""
    model, there = make(family, "classify")
    (there / "vocab.txt").unlink()
    put_around(there, frame)
    texts = ["w1 w2 w3", "w7 w7"]
    tokenizer = hf.AutoTokenizer.from_pretrained(there)
    for text, found in zip(texts, unitk.load(there, format="hf").predict(texts), strict=True):
        with torch.no_grad():
            rows = model.eval()(torch.tensor([tokenizer(text)["input_ids"]])).logits.softmax(1)
        assert found["label"] == LABELS[int(rows.argmax())]
        assert found["probability"] == pytest.approx(float(rows.max()), rel=1e-4)


@pytest.mark.parametrize(("frame", "opening"), [("$A", "sep"), ("[CLS] $A", "cls")])
def test_a_gpt2_reads_the_symbol_of_a_tokenizer_of_its_own(hf, tmp_path, frame, opening):
    hf.GPT2LMHeadModel(hf.GPT2Config(**GPT)).save_pretrained(tmp_path)
    put_around(tmp_path, frame)
    assert unitk.load(tmp_path, format="hf").task.config.opening == opening


def test_a_symbol_that_no_opening_has_is_named(hf, tmp_path, caplog):
    hf.GPT2LMHeadModel(hf.GPT2Config(**{**GPT, "vocab_size": 61})).save_pretrained(tmp_path)
    put_around(tmp_path, "<lang> $A", ["<lang>"])
    assert unitk.load(tmp_path, format="hf").task.config.opening == "sep"
    assert "<lang>" in caplog.text
