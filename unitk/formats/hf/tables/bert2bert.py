"""An encoder and a decoder of BERT's layers (Rothe et al. 2020, arXiv 1907.12461)."""

from __future__ import annotations

from pathlib import Path

from unitk.errors import CheckpointError
from unitk.formats.hf.families import Changes, Checkpoint, Family
from unitk.formats.hf.tables.bert import BERT_KEYS, BERT_LAYER, bert_embeddings
from unitk.formats.names import Layout, cross_layer, equal_tensors, layout_of_pair, prefix_names
from unitk.formats.settings import check_value, keys
from unitk.registry import register

SIDES = ("encoder", "decoder")
DEPTH = "num_hidden_layers"
KEYS = {**BERT_KEYS, **keys(f"decoder_layers=decoder_{DEPTH}")}
SAME = [their_keys[0] for option, their_keys in BERT_KEYS.items() if option != "num_layers"]
"""Entries that both towers must have alike."""
USUAL = {"vocab_size": 30522, **dict.fromkeys(SAME), "position_embedding_type": "absolute"}
DECODES = {"is_decoder": True, "add_cross_attention": True}
CROSS = cross_layer(
    "crossattention.self.query",
    ("crossattention.self.key", "crossattention.self.value"),
    *("crossattention.output.dense", "crossattention.output.LayerNorm"),
)
WORDS = {
    "transform.dense": "transform.dense",
    "transform.norm": "transform.LayerNorm",
    "weight": "decoder.weight",
    "bias": "bias",
}
TOKENS = [f"{root}.embeddings.word_embeddings.weight" for root in ("encoder", "decoder.bert")]


def berts_table(*, shared: bool) -> Layout:
    """The table of names; a `shared` embedding is stored for both towers."""
    # the decoder is a BERT with an output layer, the encoder a bare one
    head = "decoder.cls.predictions."
    embeddings = {
        f"encoder.{own_name}": name for own_name, name in bert_embeddings("encoder").items()
    }
    return Layout(
        {
            **embeddings,
            **bert_embeddings("decoder.bert"),
            **prefix_names("encoder.encoder.layer.#.", "encoder.layers.#.", BERT_LAYER),
            **prefix_names("decoder.bert.encoder.layer.#.", "layers.#.", BERT_LAYER | CROSS),
            **prefix_names(head, "heads.lm.", WORDS),
        },
        copies={f"{head}decoder.weight": TOKENS[1], f"{head}decoder.bias": f"{head}bias"},
        twice={TOKENS[0]: TOKENS[1]} if shared else {},
        # nothing reads the encoder's pooler
        ignored=(r".*\.embeddings\.(position|token_type)_ids", r"encoder\.pooler\..*"),
    )


SHARED, APART = berts_table(shared=True), berts_table(shared=False)


def unpack_berts(declared: Changes, where: Path) -> Changes:
    """The entries of both towers side by side; they differ in their number of layers alone."""
    towers = {side: check_value(declared.get(side) or {}, dict, side, where) for side in SIDES}
    for side, tower in towers.items():
        if (kind := tower.get("model_type")) != "bert":
            raise CheckpointError(
                f"{where}: {side}.model_type must be bert, got {kind!r}; of others, convert the "
                "towers one by one and train with --init-encoder and --init-decoder"
            )
    for key, usual in USUAL.items():
        encoder, decoder = (towers[side].get(key, usual) for side in SIDES)
        if encoder != decoder:
            raise CheckpointError(
                f"{where}: encoder and decoder must have the same {key}, got {encoder!r} and "
                f"{decoder!r}"
            )
    for key, needed in DECODES.items():
        if (value := towers["decoder"].get(key)) is not needed:
            raise CheckpointError(f"{where}: decoder.{key} must be true, got {value!r}")
    # symbols are beside the towers
    beside = {key: value for key, value in declared.items() if key not in SIDES}
    depths = {f"decoder_{DEPTH}": towers["decoder"].get(DEPTH, 12)}
    return {DEPTH: 12, **towers["encoder"], **depths, **beside}


def pack_berts(entries: Changes) -> Changes:
    """The inverse of `unpack_berts`."""
    # both towers have all entries but their depth
    depths = {"encoder": entries.pop(DEPTH), "decoder": entries.pop(f"decoder_{DEPTH}")}
    shared = {key: entries.pop(key) for key in SAME} | {"vocab_size": entries.pop("vocab_size")}
    shared |= {"position_embedding_type": "absolute", "pad_token_id": entries["pad_token_id"]}
    shared |= {"model_type": "bert", "tie_word_embeddings": entries["tie_word_embeddings"]}
    sides = {side: {**shared, DEPTH: depths[side]} for side in SIDES}
    sides["decoder"] |= DECODES
    return entries | sides | {"is_encoder_decoder": True}


def _towers(checkpoint: Checkpoint) -> Changes:
    """Whether the towers share an embedding."""
    first, second = (checkpoint.tensors.get(name) for name in TOKENS)
    shared = first is None or second is None or equal_tensors(first, second)
    return {"shared_embeddings": shared}


register("model_type", "encoder-decoder")(
    Family(
        about="EncoderDecoderModel of two BERTs",
        name="EncoderDecoder",
        root="",
        presets=("bert2bert_base",),
        task="seq2seq",
        layout=APART,
        of_model=layout_of_pair(SHARED, APART),
        heads={},
        keys=KEYS,
        unpack=unpack_berts,
        pack=pack_berts,
        complete=_towers,
        options={"opening": "cls"},
        free=("shared_embeddings",),
        whole="Model",
        fits=lambda config, arch: config.norm != "rms" and config.head_transform,
    )
)
