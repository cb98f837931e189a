"""Hugging Face's models come in and go out with equal logits, loss and tensors."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import torch.nn.functional as F
from rounding import assert_near
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import unitk
from unitk.api.verb import find_verb
from unitk.decoding.config import GenerateConfig
from unitk.decoding.texts.sources import Sources
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.formats.hf.families import kind_of
from unitk.models.archs import preset
from unitk.slots import Ask, collate, lm
from unitk.training.saving.checkpoint import load

V = 60
BERT = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
GPT = {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40}
BART = {
    "vocab_size": V,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "forced_eos_token_id": 3,
    "decoder_start_token_id": 3,
}
T5 = {
    "vocab_size": V,
    "d_model": 32,
    "d_kv": 12,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 10,
    "eos_token_id": 3,
    "decoder_start_token_id": 0,
}
OWN_IDS = {"bos_token_id": 2, "eos_token_id": 3}
DISTIL = {"vocab_size": V, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
DISTIL |= {"max_position_embeddings": 40, "pad_token_id": 0}
T5_1_1 = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
TASKS = {"use_task_id": True, "task_type_vocab_size": 5, "type_vocab_size": 4}
XLNET = {"vocab_size": V, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "mem_len": 5}
LLAMA = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 12,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "tie_word_embeddings": True,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
GROUPED = {**LLAMA, "num_key_value_heads": 2, "tie_word_embeddings": False}
BOTH_WAYS = {**GROUPED, "is_causal": False}
ROPE = {"rope_type": "llama3", "rope_theta": 50.0, "factor": 32.0, "low_freq_factor": 1.0}
ROPE |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 24}
WINDOW = {"sliding_window": 5}
MISTRAL = {**GROUPED, **WINDOW}
SMOLLM3 = {**LLAMA, "num_hidden_layers": 3, "no_rope_layers": [0, 1, 1], "pad_token_id": 0}
HALF = {"partial_rotary_factor": 0.5}
GLM = {**GROUPED, "pad_token_id": 0}
EDGE = {"attention_bias": False, "partial_rotary_factor": 1.0, "tie_word_embeddings": True}
PHI3 = {**LLAMA, "pad_token_id": 0}
STABLE = {key: GROUPED[key] for key in GROUPED if key != "head_dim"} | HALF
BIASED = {"use_qkv_bias": True, "num_key_value_heads": 4, "tie_word_embeddings": True}
TYPES = ["sliding_attention", "full_attention"]
UPPER = {**GROUPED, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
GEMMA = {**GROUPED, "query_pre_attn_scalar": 12, "sliding_window": 6, "layer_types": TYPES}
GEMMA |= {"final_logit_softcapping": 3.0, "tie_word_embeddings": True}
NEOX = {key: LLAMA[key] for key in LLAMA if key not in ("head_dim", "num_key_value_heads")}
NEOX |= {"hidden_size": 64, "tie_word_embeddings": False}
OPEN = {"is_causal": False}
TOWER = {**GEMMA, "layer_types": ["full_attention"] * 2, "attn_logit_softcapping": None}
TOWER |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
T5GEMMA = {"encoder": TOWER, "vocab_size": V}
T5GEMMA["decoder"] = {**TOWER, "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
ALONE = {side: {**T5GEMMA[side], "num_key_value_heads": 4} for side in ("encoder", "decoder")}
DEBERTA = {**BERT, "relative_attention": True, "share_att_key": True, "position_buckets": 8}
DEBERTA |= {"pos_att_type": "p2c|c2p", "norm_rel_ebd": "layer_norm", "max_relative_positions": 12}
DEBERTA |= {"position_biased_input": False, "layer_norm_eps": 1e-7}
OPT = {key: BERT[key] for key in BERT if key != "intermediate_size"} | {"ffn_dim": 48}
OPT |= {"bos_token_id": 3, "eos_token_id": 3}
NEO = {"vocab_size": V, "hidden_size": 32, "num_layers": 3, "num_heads": 4, "window_size": 5}
NEO |= {"intermediate_size": 48, "max_position_embeddings": 40, **{"bos_token_id": 3}}
NEO |= {"eos_token_id": 3, "attention_types": [[["global", "local"], 1], [["global"], 1]]}
MODERN = {key: LLAMA[key] for key in LLAMA if key not in ("head_dim", "num_key_value_heads")}
MODERN |= {"num_hidden_layers": 3, "local_attention": 8, "global_attn_every_n_layers": 2}
MODERN |= {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
MODERN |= {"cls_token_id": 2, "sep_token_id": 3}
EURO = {**GROUPED, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
FAMILIES = {
    "mistral": ("MistralForCausalLM", "MistralConfig", MISTRAL),
    "mistral_full": ("MistralForCausalLM", "MistralConfig", {**MISTRAL, "sliding_window": None}),
    "mistral_both_ways": ("MistralForCausalLM", "MistralConfig", {**MISTRAL, **OPEN}),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", SMOLLM3),
    "smollm3_windows": (
        *("SmolLM3ForCausalLM", "SmolLM3Config"),
        {**SMOLLM3, "use_sliding_window": True, "sliding_window": 4},
    ),
    "ernie4_5": ("Ernie4_5ForCausalLM", "Ernie4_5Config", GROUPED),
    "ernie4_5_longer": (
        "Ernie4_5ForCausalLM",
        "Ernie4_5Config",
        {**LLAMA, "rope_parameters": ROPE},
    ),
    "glm": ("GlmForCausalLM", "GlmConfig", GLM),
    "glm_edge": ("GlmForCausalLM", "GlmConfig", {**GLM, **EDGE}),
    "glm_longer": ("GlmForCausalLM", "GlmConfig", {**GLM, "rope_parameters": {**ROPE, **HALF}}),
    "glm_both_ways": ("GlmForCausalLM", "GlmConfig", {**GLM, **OPEN}),
    "glm4": ("Glm4ForCausalLM", "Glm4Config", {**GLM, "attention_bias": False}),
    "glm4_both_ways": ("Glm4ForCausalLM", "Glm4Config", {**GLM, **EDGE, **OPEN}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**PHI3, **WINDOW}),
    "phi3_both_ways": ("Phi3ForCausalLM", "Phi3Config", {**PHI3, **WINDOW, **OPEN}),
    "stablelm": ("StableLmForCausalLM", "StableLmConfig", STABLE),
    "stablelm_biased": ("StableLmForCausalLM", "StableLmConfig", {**STABLE, **BIASED}),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", {**GROUPED, **WINDOW}),
    "starcoder2_plain": ("Starcoder2ForCausalLM", "Starcoder2Config", {**LLAMA, "use_bias": False}),
    "starcoder2_both_ways": (
        "Starcoder2ForCausalLM",
        "Starcoder2Config",
        {**LLAMA, **WINDOW, **OPEN},
    ),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "olmo2_both_ways": ("Olmo2ForCausalLM", "Olmo2Config", {**LLAMA, **OPEN}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", GEMMA),
    "gemma3_both_ways": (
        *("Gemma3ForCausalLM", "Gemma3TextConfig"),
        {**GEMMA, "use_bidirectional_attention": True},
    ),
    "gemma3_twice_both_ways": (
        *("Gemma3ForCausalLM", "Gemma3TextConfig"),
        {**GEMMA, "use_bidirectional_attention": True, **OPEN},
    ),
    "neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", NEOX),
    "neox_in_turn": (
        *("GPTNeoXForCausalLM", "GPTNeoXConfig"),
        {
            **NEOX,
            "use_parallel_residual": False,
            "attention_bias": False,
            "tie_word_embeddings": True,
        },
    ),
    "neox_both_ways": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {**NEOX, **OPEN}),
    "opt": ("OPTForCausalLM", "OPTConfig", OPT),
    "opt_untied": (
        *("OPTForCausalLM", "OPTConfig"),
        {**OPT, "do_layer_norm_before": False, "tie_word_embeddings": False, "enable_bias": False},
    ),
    "gpt_neo": ("GPTNeoForCausalLM", "GPTNeoConfig", NEO),
    "modernbert": ("ModernBertForMaskedLM", "ModernBertConfig", MODERN),
    "modernbert_own": (
        *("ModernBertForMaskedLM", "ModernBertConfig"),
        {**MODERN, "tie_word_embeddings": False, "norm_bias": True}
        | {"decoder_bias": False, "hidden_activation": "silu", "classifier_activation": "silu"},
    ),
    "modernbert_decoder": ("ModernBertDecoderForCausalLM", "ModernBertDecoderConfig", MODERN),
    "eurobert": ("EuroBertForMaskedLM", "EuroBertConfig", EURO),
    "eurobert_tied": (
        "EuroBertForMaskedLM",
        "EuroBertConfig",
        {**EURO, "tie_word_embeddings": True},
    ),
    "t5gemma": ("T5GemmaForConditionalGeneration", "T5GemmaConfig", T5GEMMA),
    "t5gemma_shared": ("T5GemmaForConditionalGeneration", "T5GemmaConfig", T5GEMMA),
    "t5gemma_untied": (
        *("T5GemmaForConditionalGeneration", "T5GemmaConfig"),
        {**T5GEMMA, **ALONE, "tie_word_embeddings": False},
    ),
    "qwen3_windows": ("Qwen3ForCausalLM", "Qwen3Config", UPPER),
    "qwen3_windows_both_ways": ("Qwen3ForCausalLM", "Qwen3Config", {**UPPER, **OPEN}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", LLAMA),
    "qwen3_grouped": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED),
    "qwen3_both_ways": ("Qwen3ForCausalLM", "Qwen3Config", BOTH_WAYS),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {**GROUPED, "head_dim": 8}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "llama_longer": ("LlamaForCausalLM", "LlamaConfig", {**LLAMA, "rope_parameters": ROPE}),
    "bert": ("BertForMaskedLM", "BertConfig", BERT),
    "bert_untied": ("BertForMaskedLM", "BertConfig", {**BERT, "tie_word_embeddings": False}),
    "bert_nsp": ("BertForPreTraining", "BertConfig", BERT),
    "unilm_as_bert": ("BertForMaskedLM", "BertConfig", {**BERT, "type_vocab_size": 6}),
    "ernie": ("ErnieForMaskedLM", "ErnieConfig", {**BERT, "hidden_act": "relu"}),
    "ernie_nsp": ("ErnieForPreTraining", "ErnieConfig", {**BERT, "hidden_act": "relu"}),
    "ernie2": ("ErnieForPreTraining", "ErnieConfig", {**BERT, **TASKS}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**BERT, "embedding_size": 12}),
    "albert_untied": (
        *("AlbertForMaskedLM", "AlbertConfig"),
        {**BERT, "embedding_size": 12, "tie_word_embeddings": False},
    ),
    "albert_sop": ("AlbertForPreTraining", "AlbertConfig", {**BERT, "embedding_size": 12}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**BERT, "embedding_size": 12}),
    "electra_wide": ("ElectraForMaskedLM", "ElectraConfig", {**BERT, "embedding_size": 32}),
    "electra_untied": (
        *("ElectraForMaskedLM", "ElectraConfig"),
        {**BERT, "embedding_size": 12, "tie_word_embeddings": False},
    ),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", DISTIL),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", {**BERT, **OWN_IDS}),
    "xlm_roberta": (
        *("XLMRobertaForMaskedLM", "XLMRobertaConfig"),
        {**BERT, "type_vocab_size": 1, **OWN_IDS},
    ),
    "camembert": (
        *("CamembertForMaskedLM", "CamembertConfig"),
        {**BERT, "type_vocab_size": 1, **OWN_IDS},
    ),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", T5_1_1),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", {**BERT, "type_vocab_size": 1}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {**GPT, "n_inner": 48}),
    "gpt2_untied": ("GPT2LMHeadModel", "GPT2Config", {**GPT, "tie_word_embeddings": False}),
    "gpt": ("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", GPT),
    "bart": ("BartForConditionalGeneration", "BartConfig", {**BART, "scale_embedding": True}),
    "bart_untied": (
        *("BartForConditionalGeneration", "BartConfig"),
        {**BART, "tie_word_embeddings": False},
    ),
    "deberta": ("DebertaV2ForMaskedLM", "DebertaV2Config", DEBERTA),
    "deberta_old": (
        *("DebertaV2ForMaskedLM", "DebertaV2Config"),
        {**DEBERTA, "norm_rel_ebd": "none", "position_biased_input": True, "type_vocab_size": 2},
    ),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", BART),
    "marian": ("MarianMTModel", "MarianConfig", {**BART, "activation_function": "swish"}),
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5_v1_1": ("T5ForConditionalGeneration", "T5Config", T5_1_1),
    "t5_v1_1_tied": ("T5ForConditionalGeneration", "T5Config", T5_1_1),
    "ul2": ("T5ForConditionalGeneration", "T5Config", {**T5, "feed_forward_proj": "gated-silu"}),
    "xlnet": ("XLNetLMHeadModel", "XLNetConfig", {**XLNET, "ff_activation": "gelu_new"}),
    "xlnet_gelu": ("XLNetLMHeadModel", "XLNetConfig", XLNET),
}
TOKENIZERS = ("qwen2",)  # of which AutoTokenizer takes the class alone
TWO_TOWERS = ("bart", "pegasus", "marian", "mt5", "t5", "t5_v1_1", "t5_v1_1_tied", "ul2")
TWO_TOWERS += ("bart_untied", "t5gemma", "t5gemma_shared", "t5gemma_untied")


def as_released(model):
    """Round weights to bf16, as released files have them: adding 1 to them is exact."""
    for parameter in model.parameters():
        kept = parameter.data.abs() > 2**-15
        parameter.data = parameter.data.bfloat16().float() * kept


@pytest.fixture
def make(hf, kit, tmp_path, vocab_txt):
    """Writes a random model of a family; the model and its folder."""

    def made(family, folder="there"):
        model_class, config_class, settings = FAMILIES[family]
        torch.manual_seed(0)
        config = getattr(hf, config_class)(**settings)
        model = getattr(hf, model_class)(config)
        if family in ("t5_v1_1", "mt5"):  # which their library ties at first
            model.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn(V, 32))
        kit.perturbed(model)
        if family == "bart_untied":  # whose towers have tables of their own
            for tower in (model.model.encoder, model.model.decoder):
                tower.embed_tokens.weight.data = model.model.shared.weight.data.clone()
        if family in ("bart", "marian"):
            model.final_logits_bias.normal_()
        if family == "marian":  # whose files leave out what they can make
            for tower in (model.model.encoder, model.model.decoder):
                tower.embed_positions.weight.data = tower.embed_positions.create_weight()
        if "bert_untied" in family:  # the bias that is added, and the other one
            head = model.predictions if "albert" in family else model.cls.predictions
            head.bias.data.copy_(head.decoder.bias)
        if "gemma" in family:
            as_released(model)
        if family == "t5gemma_shared":
            first, second = model.model.encoder, model.model.decoder
            first.embed_tokens.weight.data = second.embed_tokens.weight.data.clone()
        model.save_pretrained(tmp_path / folder)
        (tmp_path / folder / "vocab.txt").write_text(vocab_txt.read_text())
        return model, tmp_path / folder

    return made


def examples(kit, family):
    """The same input for both: an example, and theirs."""
    rng = np.random.default_rng(1)
    tokens = kit.ids(rng, 14)
    row = torch.from_numpy(tokens)[None]
    if family in TWO_TOWERS:
        fed = kit.ids(rng, 9)
        theirs = {"input_ids": row, "decoder_input_ids": torch.from_numpy(fed)[None]}
        return kit.pair(tokens, fed), theirs
    if family.endswith("both_ways"):
        return kit.single(tokens), {"input_ids": row}
    if "gpt" in family or FAMILIES[family][0].endswith("ForCausalLM"):
        return kit.single(tokens, at=np.arange(14)), {"input_ids": row}
    plain = ("deberta", "roberta", "xlm_roberta", "camembert", "distilbert", "mpnet")
    if family in plain or family.startswith(("modernbert", "eurobert")):
        return kit.single(tokens), {"input_ids": row}
    segments = np.arange(14) // 5
    segments = segments % (6 if family == "unilm_as_bert" else 2)
    theirs = {"input_ids": row, "token_type_ids": torch.from_numpy(segments)[None]}
    example = kit.single(tokens, seg=segments)
    if family == "ernie2":
        theirs["task_type_ids"] = torch.full_like(row, 3)
        example = replace(example, inputs={"task": np.array([3])})
    return example, theirs


def said(out):
    """Theirs at every slot."""
    found = out.prediction_logits if hasattr(out, "prediction_logits") else out.logits
    return found[0]


@pytest.mark.every(4)
@pytest.mark.parametrize("family", FAMILIES)
def test_models_come_and_go_alike(hf, kit, make, tmp_path, family):
    model, there = make(family)
    ours = load(kit.to_unitk("hf", there, tmp_path / "ours")).model
    example, given = examples(kit, family)
    with torch.no_grad():
        wanted = said(model(**given))
    found = kit.logits(ours, example, V)
    assert_near(found, wanted)
    label = torch.from_numpy(example.asks[0].label)
    loss, theirs = (F.cross_entropy(logits, label) for logits in (found, wanted))
    assert_near(loss, theirs)
    # back: the same tensors bit for bit, and a model that their library opens
    saved = load_file(there / "model.safetensors")
    if family == "marian":  # which are written, as they may have learned
        saved |= {name: tensor for name, tensor in model.state_dict().items() if "pos" in name}
    back = kit.goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", saved)
    again = getattr(hf, json.loads((back / "config.json").read_text())["architectures"][0])
    again, info = again.from_pretrained(back, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        assert_near(said(again(**given)), wanted)
    opened = hf.PreTrainedTokenizerFast if family in TOKENIZERS else hf.AutoTokenizer
    tokenizer = opened.from_pretrained(back)
    words = "w3 w7 w54"
    task = load(tmp_path / "ours").task
    assert tokenizer(words, add_special_tokens=False)["input_ids"] == task.vocab.encode(words)


@pytest.mark.parametrize("family", ["roberta", "xlm_roberta", "electra", "mpnet", "bert", "albert"])
def test_an_output_layer_with_gelu_beside_other_layers(hf, kit, make, monkeypatch, family):
    """Some classes have GELU before their output, whatever the layers have: equal, or refused."""
    model_class, config_class, given = FAMILIES[family]
    monkeypatch.setitem(
        FAMILIES, family, (model_class, config_class, given | {"hidden_act": "relu"})
    )
    model, there = make(family)
    if family in ("bert", "albert"):
        example, given = examples(kit, family)
        with torch.no_grad():
            assert_near(
                kit.logits(unitk.load_module(there, format="hf").model, example, V),
                said(model(**given)),
            )
        return
    with pytest.raises(CheckpointError, match="hidden_act"):
        unitk.load_module(there, format="hf")


def test_a_model_with_another_activation_leaves_as_no_roberta():
    config = replace(preset("roberta_base"), activation="relu")
    with pytest.raises(UsageError, match="--arch.activation is relu"):
        kind_of(config, "roberta_base")
    assert kind_of(replace(config, head_transform=False), "roberta_base") == "roberta"
    assert kind_of(config, "roberta_base", "class") == "roberta"


CONTRADICTING = {"dense_act_fn": "relu"}, {"dense_act_fn": ["gelu"]}, {"is_gated_act": False}


@pytest.mark.parametrize("change", CONTRADICTING)
def test_two_settings_of_t5s_feed_forward_layer_agree(make, change):
    _, there = make("t5_v1_1")
    edit(there, "config.json", lambda config: config.update(change))
    with pytest.raises(CheckpointError, match=f"is 'gated-gelu', but {next(iter(change))} is"):
        unitk.load_module(there, format="hf")


def test_an_untied_output_map_adds_its_own_bias(kit, make, tmp_path):
    model, there = make("bert_untied")
    with torch.no_grad():
        model.cls.predictions.bias.add_(1)  # which is not added
    model.save_pretrained(there)
    example, given = examples(kit, "bert_untied")
    with torch.no_grad():
        wanted = said(model(**given))
    assert_near(
        kit.logits(load(kit.to_unitk("hf", there, tmp_path / "ours")).model, example, V), wanted
    )


@pytest.mark.parametrize(
    "family",
    ["bert_nsp", "ernie", "ernie_nsp", "ernie2", "albert_sop", "roberta", "gpt", "gpt2", "bart"]
    + ["t5"],
)
def test_the_loss_is_theirs(kit, make, tmp_path, family):
    """Of every third slot, and of the pair of sentences where it is asked."""
    model, there = make(family)
    ours = load(kit.to_unitk("hf", there, tmp_path / "ours")).model
    example, given = examples(kit, family)
    tower = example.asks[0].tower
    slots, shift = len(example.towers[tower]), "gpt" in family  # they move the labels themselves
    rows = np.arange(0, slots - shift, 3)
    label = kit.ids(np.random.default_rng(2), len(rows))
    labels = torch.full((1, slots), -100)
    labels[0, rows + shift] = torch.from_numpy(label)
    asks = [lm(rows, label, tower=tower)]
    pair = dict.fromkeys(("bert_nsp", "ernie_nsp", "ernie2"), ("nsp", "next_sentence"))
    pair["albert_sop"] = "sop", "sentence_order"
    if family in pair:
        name, key = pair[family]
        given[f"{key}_label"] = torch.ones(1, dtype=torch.int64)
        first, one = np.zeros((1, 1), np.int64), np.ones(1)
        asks.append(Ask(name, f"class:{name}", tower, first, one.astype(np.int64), one))
    batch = collate([[replace(example, asks=asks)]]).to("cpu")
    with torch.no_grad():
        states, wanted = ours(batch)[0][tower].flatten(0, 1), model(**given, labels=labels).loss
        total = 0.0
        for ask in batch.asks.values():  # without the words that were added
            logits = ours.head(states[ask.rows[:, 0]], ask.head)[:, :V]
            total += F.cross_entropy(logits, ask.label)
    assert_near(total, wanted)


def test_t5_with_its_sentencepiece_model(hf, kit, tmp_path):
    """The sentinels have the rows after the pieces, the last one first, as in their tokenizer."""
    pieces, lines = io.BytesIO(), ["the cat sat on the mat", "a dog ran in the park"]
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "pad_piece": "<pad>"}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=pieces, vocab_size=20, minloglevel=2, **ids
    )
    rows = 20 + 128
    torch.manual_seed(0)
    # their cache has as many layers as the encoder
    config = hf.T5Config(**{**T5, "vocab_size": rows, "num_decoder_layers": 2, "eos_token_id": 1})
    model = kit.perturbed(hf.T5ForConditionalGeneration(config))
    model.save_pretrained(tmp_path / "there")
    (tmp_path / "there" / "spiece.model").write_bytes(pieces.getvalue())
    task = load(kit.to_unitk("hf", tmp_path / "there", tmp_path / "ours")).task
    assert len(task.vocab) == rows and task.start == [task.vocab.pad]
    back = kit.from_unitk(tmp_path / "ours", "hf", tmp_path / "back")
    tokenizer = hf.AutoTokenizer.from_pretrained(back)
    for number in (0, 7, 99):
        index = tokenizer.convert_tokens_to_ids(f"<extra_id_{number}>")
        assert task.vocab.pieces([index]) == [f"<extra_id_{number}>"]
    text = "the cat in the park"
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == task.vocab.encode(text)
    # and a search of theirs on the exported folder writes what ours writes
    again = hf.AutoModelForSeq2SeqLM.from_pretrained(back).eval()
    source = torch.tensor([[*task.vocab.encode(text), task.vocab.sep]])
    more = {"forced_eos_token_id": None}  # of which theirs does not count the log-probability
    more |= {"num_beams": 3, "max_new_tokens": 9, "min_new_tokens": 9, "num_return_sequences": 3}
    v = task.vocab
    banned = [[word] for word in task.protocol.banned]
    made = again.generate(source, eos_token_id=v.sep, bad_words_ids=banned, **more)
    config = GenerateConfig(beam=3, nbest=3, max_len=9, min_len=9, search="likely")
    found = unitk.load(tmp_path / "ours").outputs(Sources([[v.encode(text)]]), config)
    ids = [one.hypothesis.ids.tolist()[:9] for one in found[0]]
    assert ids == [row[1:10].tolist() for row in made]


def test_a_roberta_whose_tokenizer_has_no_pad_goes_out_as_it_came(hf, kit, make, tmp_path):
    """Its positions are counted from a pad that no symbol of ours is."""
    model, there = make("roberta")
    (there / "vocab.txt").unlink()
    pieces = {f"w{i}": i for i in range(V)}
    Tokenizer(WordLevel(pieces, "w3")).save(str(there / "tokenizer.json"))
    ours = kit.to_unitk("hf", there, tmp_path / "ours")
    assert load(ours).vocab.pad >= V
    back = hf.AutoModelForMaskedLM.from_pretrained(kit.from_unitk(ours, "hf", tmp_path / "back"))
    for name in ("max_position_embeddings", "pad_token_id", "vocab_size"):
        assert getattr(back.config, name) == getattr(model.config, name)
    row = torch.tensor([[7, 8, 9, 10]])
    with torch.no_grad():
        assert torch.allclose(back(row).logits, model(row).logits, atol=1e-6)


def test_a_trained_model_goes_out_with_all_its_rows(hf, kit, make, tmp_path):
    """What was added for our symbols is dropped only as long as it means nothing."""
    _, there = make("bert")
    ours = kit.to_unitk("hf", there, tmp_path / "ours")
    vocab = load(ours).vocab
    assert vocab.model.size == V and len(vocab) == V + len(vocab.added) > V
    (ours / "imported.json").unlink()  # as in a run that was trained from it
    from unitk.files import seal

    (ours / "manifest.json").unlink()
    seal(ours)
    back = kit.from_unitk(ours, "hf", tmp_path / "back")
    model = hf.AutoModelForMaskedLM.from_pretrained(back)
    assert model.config.vocab_size == len(vocab)
    tokenizer = hf.AutoTokenizer.from_pretrained(back)
    assert tokenizer.convert_tokens_to_ids("<|startofpiece|>") == vocab.sop


@pytest.mark.parametrize("family", ["bert_nsp", "gpt2"])
def test_pickles_and_old_names(kit, make, tmp_path, family):
    _, there = make(family)
    tensors = load_file(there / "model.safetensors")
    (there / "model.safetensors").unlink()
    old = {}
    for name, tensor in tensors.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        old[name.replace("LayerNorm.bias", "LayerNorm.beta").removeprefix("transformer.")] = tensor
    if family == "bert_nsp":  # what files of that time hold beside weights
        old["bert.embeddings.position_ids"] = torch.arange(40)[None]
        old["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    else:
        old["h.0.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
    torch.save(old, there / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    kit.to_unitk("hf", there, tmp_path / "ours")
    kit.goes_back(tmp_path / "ours", "hf", tmp_path / "back", "model.safetensors", tensors)


def test_shards_and_a_bare_encoder(hf, kit, make, tmp_path):
    model, there = make("bert")
    bare = model.bert
    bare.save_pretrained(tmp_path / "bare", max_shard_size="20KB")
    (tmp_path / "bare" / "vocab.txt").write_text((there / "vocab.txt").read_text())
    assert len(list((tmp_path / "bare").glob("*.safetensors"))) > 1
    ours = load(kit.to_unitk("hf", tmp_path / "bare", tmp_path / "ours")).model
    assert not ours.config.head_transform
    back = kit.from_unitk(tmp_path / "ours", "hf", tmp_path / "back")
    again = hf.BertModel.from_pretrained(back, add_pooling_layer=False)
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, bare.state_dict()[name])


@pytest.mark.parametrize(
    "name, family, kind",
    [
        ("mass", "bart", "Seq2SeqLM"),
        ("spanbert", "bert", "MaskedLM"),
        ("albert", "albert", "PreTraining"),
        ("ernie", "ernie", "PreTraining"),
        ("ernie2", "ernie2", "MaskedLM"),
        ("bart", "bart", "Seq2SeqLM"),
        ("t5", "t5", "Seq2SeqLM"),
    ],
)
def test_models_of_every_objective_leave_as_their_family(
    hf, kit, tmp_path, vocab_txt, name, family, kind
):
    """MASS's positions move; SpanBERT's second output layer has no place there, ALBERT's has."""
    from unitk.formats.hf.folder import write
    from unitk.models.archs import preset
    from unitk.registry import get
    from unitk.training.saving.checkpoint import Loaded
    from unitk.vocab.open import open_vocab

    cls = get("task", name)
    task = cls(cls.Config(), open_vocab(vocab_txt))
    torch.manual_seed(0)
    ours = kit.perturbed(preset(f"{name}_tiny").build(len(task.vocab)))
    (tmp_path / "out").mkdir()
    write(Loaded(ours, task, {"arch": f"{name}_tiny"}, {}), tmp_path / "out")
    theirs = getattr(hf, f"AutoModelFor{kind}").from_pretrained(tmp_path / "out").eval()
    example, given = examples(kit, family)
    with torch.no_grad():
        assert_near(kit.logits(ours, example), said(theirs(**given)))


@pytest.mark.parametrize("arch", ["bert", "modernbert", "qwen3", "gpt2", "t5", "deberta_v3"])
def test_symbols_have_ids_of_the_written_vocabulary(hf, tmp_path, vocab_txt, arch):
    """transformers has ids of its own for what a config.json leaves out."""
    from unitk.formats.hf.folder import write
    from unitk.models.archs import preset
    from unitk.registry import get
    from unitk.training.saving.checkpoint import Loaded
    from unitk.vocab.open import open_vocab

    own = {"qwen3": "lm", "gpt2": "lm", "t5": "t5"}.get(arch, "mlm")
    task = get("task", own)(get("task", own).Config(), open_vocab(vocab_txt))
    ours = preset(f"{arch}_tiny").build(len(task.vocab))
    write(Loaded(ours, task, {"arch": f"{arch}_tiny"}, {}), tmp_path)
    found = hf.AutoConfig.from_pretrained(tmp_path).to_dict()
    ids = {key: value for key, value in found.items() if key.endswith("_token_id")}
    assert all(one is None or one < len(task.vocab) for one in ids.values()), ids


def test_a_model_with_more_than_its_family_is_refused():
    from unitk.formats.hf.families import kind_of
    from unitk.models.archs import preset

    assert kind_of(preset("bert_tiny")) == "bert"
    with pytest.raises(UsageError, match="a .*model.* --arch.entity-layers, but this"):
        kind_of(preset("thu_ernie_tiny"))
    with pytest.raises(UsageError, match="gpt2 model has --arch.ffn-gate off.*model"):
        kind_of(replace(preset("gpt2_tiny"), ffn_gate=True))
    for name in ("bert_tiny", "ernie_tiny", "albert_tiny"):
        with pytest.raises(UsageError, match="--arch.head-pooler on"):
            kind_of(replace(preset(name), head_pooler=False))
        assert kind_of(replace(preset(name), head_pooler=False, heads=()))


def test_a_gpt_whose_layers_are_of_another_width_is_refused(toy_vocab):
    """The configuration of transformers' GPT has no field for it, so it could not open the file."""
    from unitk.formats.hf.folder import write
    from unitk.models.archs import preset, tiny
    from unitk.registry import get
    from unitk.training.saving.checkpoint import Loaded

    task = get("task", "lm")(get("task", "lm").Config(), toy_vocab)
    config = replace(tiny(preset("gpt_base")), ffn_width=100)
    with pytest.raises(UsageError, match=r"GPT has --arch.ffn-width \d+, .*model.* 100"):
        write(Loaded(config.build(len(toy_vocab)), task, {"arch": "gpt_base"}, {}), Path("unused"))


def test_longer_positions_repeat_the_rows(kit, make, tmp_path):
    model, there = make("bert")
    dest = kit.to_unitk("hf", there, tmp_path / "ours", "--arch.max-positions", 100)
    table = load(dest).model.decoder.embed.positions.weight
    first = model.bert.embeddings.position_embeddings.weight
    assert torch.equal(table, torch.cat([first, first, first[:20]]))


def test_a_task_of_its_own(kit, make, tmp_path):
    _, there = make("bert")
    dest = kit.to_unitk("hf", there, tmp_path / "ours", "--task", "pmlm", "--task.pseudo", "mask")
    loaded = load(dest)
    assert type(loaded.task).__name__ == "PMLM" and loaded.task.p == loaded.vocab.mask


def edit(there, name, change):
    path = there / name
    if name.endswith(".json"):
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))
    else:
        found = load_file(path)
        change(found)
        save_file(found, path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "model.safetensors",
            lambda t: t.pop("bert.encoder.layer.1.output.dense.bias"),
            "has no bert.encoder.layer.1.output.dense.bias, which the model needs",
        ),
        (
            "model.safetensors",
            lambda t: t.update({"bert.extra.weight": torch.ones(2)}),
            "has tensors of no known name: bert.extra.weight",
        ),
        (
            "model.safetensors",
            lambda t: t.update({"bert.embeddings.LayerNorm.bias": torch.ones(31)}),
            r"another shape is needed: bert.embeddings.LayerNorm.bias \[31\] \(needed: \[32\]",
        ),
        (
            "model.safetensors",
            lambda t: t["bert.embeddings.LayerNorm.bias"].fill_(float("nan")),
            "embed.norm.bias has NaN or infinity",
        ),
        ("config.json", lambda c: c.update(model_type="funnel"), "model_type must be one of"),
        ("config.json", lambda c: c.update(model_type="unilm"), r"got 'unilm' \(--from unilm"),
        ("config.json", lambda c: c.update(model_type="BERT"), "got 'BERT'; .* bert"),
        ("config.json", lambda c: c.update(hidden_act="mish"), "hidden_act must be one of"),
        ("config.json", lambda c: c.update(hidden_size="x"), "hidden_size must be a whole number"),
        ("config.json", lambda c: c.update(hidden_size=10**12), "hidden_size cannot be"),
        (
            "config.json",
            lambda c: c.update(num_hidden_layers=10**6),
            "not have the tensors of 1,000,000",
        ),
        (
            "config.json",
            lambda c: c.update(position_embedding_type="relative_key"),
            "unitk reads only position_embedding_type 'absolute'",
        ),
    ],
)
def test_what_does_not_fit_is_named(kit, make, tmp_path, name, change, message):
    _, there = make("bert")
    edit(there, name, change)
    with pytest.raises(CheckpointError, match=message):
        kit.to_unitk("hf", there, tmp_path / "ours")
    assert not (tmp_path / "ours").exists() and not list(tmp_path.glob(".*"))


def test_weights_without_their_config_are_named(kit, make, tmp_path):
    _, there = make("bert")
    (there / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"\.safetensors .* config\.json"):
        kit.to_unitk("hf", there, tmp_path / "ours")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--from downloads/bert --to unitk ours", "--from hf downloads/bert"),
        ("--from hf downloads/bert --to ours", "--to unitk ours"),
    ],
)
def test_a_format_that_is_missing_is_shown_in_its_place(words, message):
    with pytest.raises(UsageError, match=message):
        find_verb("convert")(words.split())


@pytest.mark.parametrize("source", ["hf", "elmo", "optimus"])
def test_a_path_that_is_not_there_is_named(kit, tmp_path, source):
    with pytest.raises(CheckpointError, match="downloads"):
        kit.to_unitk(source, tmp_path / "downloads", tmp_path / "ours")


def test_what_has_no_place_there_is_named(kit, make, tmp_path, vocab_txt):
    _, there = make("bert")
    with pytest.raises(UsageError, match=r"--vocab .*there .*no vocabulary"):
        (there / "vocab.txt").unlink()
        kit.to_unitk("hf", there, tmp_path / "ours")
    words = vocab_txt.read_text()
    vocab_txt.write_text("".join(f"{word}\n" for word in words.split()[:5]))
    with pytest.raises(DataError, match="has 5 .*checkpoint 60 rows .--vocab"):
        kit.to_unitk("hf", there, tmp_path / "ours", "--vocab", vocab_txt)
    vocab_txt.write_text(words + "more\nwords\n")
    with pytest.raises(DataError, match="has 62 pieces.*checkpoint.* 60 rows"):
        kit.to_unitk("hf", there, tmp_path / "ours", "--vocab", vocab_txt)
    with pytest.raises(UsageError, match="no format 'hff'; .*mean hf"):
        kit.to_unitk("hff", there, tmp_path / "ours")


def test_load_takes_a_format(kit, make):
    _, there = make("gpt2")
    generator = unitk.load(there, format="hf")
    assert generator.task.vocab.model.size == V
    [[best]] = generator.generate(["w1 w2"], max_len=3)
    assert isinstance(best.text, str)


def test_bert_becomes_unilm_with_its_segments(kit, make, tmp_path):
    model, there = make("bert_nsp")
    loaded = load(kit.to_unitk("hf", there, tmp_path / "ours", "--task", "unilm"))
    theirs = model.bert.embeddings.token_type_embeddings.weight
    assert loaded.model.config.num_segments == 6
    # official code: rows 2, 3, 4 begin as segment 0, row 5 as segment 1
    assert torch.equal(loaded.model.decoder.embed.segments.weight, theirs[[0, 1, 0, 0, 0, 1]])
    example, given = examples(kit, "bert_nsp")
    example.towers["x"].seg[:] += 4
    with torch.no_grad():
        assert kit.logits(loaded.model, example, V).sub(said(model(**given))).abs().max() < 1e-5
