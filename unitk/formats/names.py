"""Tables of names: where each tensor of unitk stands in another system's checkpoint.

`Layout` translates in both directions. The tables of transformers' BERT, RoBERTa, ALBERT, GPT-2,
GPT, BART, T5 and XLNet are here, because UniLM, Optimus and fairseq share their names, or parts of
them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError

Theirs = str | tuple[str, ...]
Names = Mapping[str, Theirs]
POSITIONS = ("embed.positions.weight", "encoder.embed.positions.weight")


@dataclass(frozen=True)
class Line:
    """One tensor of unitk, and the stored tensors that it is made of, joined along their rows."""

    ours: str
    theirs: tuple[str, ...]  # an empty name stands for zeros that are not stored
    transposed: bool


@dataclass(frozen=True)
class Layout:
    """The names of a system's tensors; `#` stands for the number of a layer.

    A tensor of a checkpoint that is not in `names`, `copies` or `ignored` is an error.
    """

    names: Names  # unitk's module, or a tensor of it -> theirs; several are joined
    transposed: Collection[str] = ()  # unitk's modules whose weight is stored [in, out]
    copies: Mapping[str, str] = field(default_factory=dict)
    """Second name of a tensor -> its first. A checkpoint whose two tensors differ is refused."""
    ignored: Collection[str] = ()  # patterns of whole names that no model needs

    def lines(self, ours: Iterable[str]) -> list[Line]:
        """The entry of each tensor of unitk; `CheckpointError` lists those without one."""
        lines, without = [], []
        for name in ours:
            module, _, leaf = name.rpartition(".")
            # the first number of a name is the layer's, for which the tables have `#`
            number = re.search(r"\.(\d+)\.", f".{name}")
            digits = number[1] if number else ""
            generic, of_module = (_generic(text, digits) for text in (name, module))
            # a tensor may have another module than the rest of its own (UniLM's q_bias)
            if generic in self.names:
                theirs, end = self.names[generic], ""
            elif of_module in self.names:
                theirs, end = self.names[of_module], f".{leaf}"
            else:
                without.append(name)
                continue
            parts = (theirs,) if isinstance(theirs, str) else theirs
            spelled = tuple(part and part.replace("#", digits) + end for part in parts)
            lines.append(Line(name, spelled, leaf == "weight" and of_module in self.transposed))
        if without:
            raise CheckpointError(f"this format has no name for {listed(without)}")
        return lines

    def to_ours(
        self, theirs: Mapping[str, Tensor], shapes: Mapping[str, torch.Size], path: object
    ) -> dict[str, Tensor]:
        """A checkpoint's tensors under unitk's names, with these shapes.

        Raises `CheckpointError` with all that are missing, unused or of another shape.
        """
        lines = self.lines(shapes)
        needed = {part for line in lines for part in line.theirs if part}
        missing = sorted(needed - theirs.keys())
        if missing:
            raise CheckpointError(f"{path} has no {listed(missing)}, which the model needs")
        self._check_rest(theirs, theirs.keys() - needed, path)
        ours: dict[str, Tensor] = {}
        wrong = []
        for line in lines:
            tensor, wanted = joined(line, theirs), shapes[line.ours]
            if tensor is not None and tensor.shape == wanted:
                ours[line.ours] = tensor
            else:
                parts = " + ".join(f"{n} {list(theirs[n].shape)}" for n in line.theirs if n)
                wrong.append(f"{parts} (needed: {list(wanted)} for {line.ours})")
        if wrong:
            raise CheckpointError(f"{path}: another shape is needed: {listed(wrong)}")
        return ours

    def to_theirs(self, ours: Mapping[str, Tensor], *, copies: bool = False) -> dict[str, Tensor]:
        """The tensors under the other system's names; `copies`: with the second names."""
        theirs: dict[str, Tensor] = {}
        for line in self.lines(ours):
            # a matrix that is stored in parts is divided along its rows
            tensor = ours[line.ours].mT if line.transposed else ours[line.ours]
            for name, part in zip(line.theirs, tensor.chunk(len(line.theirs)), strict=True):
                if name:
                    theirs[name] = part.contiguous()
        if copies:
            second = {name: theirs[first] for name, first in self.copies.items() if first in theirs}
            theirs = second | theirs
        return theirs

    def _check_rest(self, theirs: Mapping[str, Tensor], rest: set[str], path: object) -> None:
        """Refuse tensors in `rest`, which no line needs, that are neither copies nor ignored."""
        unused = []
        for name in sorted(rest):
            if any(re.fullmatch(pattern, name) for pattern in self.ignored):
                continue
            first = self.copies.get(name, "")
            if first not in theirs:
                unused.append(name)
            elif not same(theirs[name], theirs[first]):
                raise CheckpointError(f"{path}: {name} should be a copy of {first}, but differs")
        if unused:
            raise CheckpointError(f"{path} has tensors of no known name: {listed(unused)}")


def joined(line: Line, theirs: Mapping[str, Tensor]) -> Tensor | None:
    """One tensor of unitk, joined from its stored parts; None if their shapes do not fit."""
    stored = [theirs[name] for name in line.theirs if name]
    if len({part.shape for part in stored}) > 1 or line.transposed and stored[0].dim() != 2:
        return None
    if len(line.theirs) == 1:
        return stored[0].mT if line.transposed else stored[0]
    if not stored[0].dim():
        return None
    # an absent part has the size of the others
    parts = [theirs[name] if name else torch.zeros_like(stored[0]) for name in line.theirs]
    whole = torch.cat(parts)
    return whole.mT if line.transposed else whole


def count_from(tensors: dict[str, Tensor], have: int, want: int) -> None:
    """Change the rows before position 0 in tables of positions from `have` to `want`, in place."""
    for name in POSITIONS:
        if have != want and name in tensors:
            table = tensors[name]  # the rows before position 0 are never read, so they may be zero
            tensors[name] = torch.cat([table.new_zeros(want, table.shape[1]), table[have:]])


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same shape, type and values."""
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))


def listed(names: Collection[str]) -> str:
    """Names for an error message: all, or the first twelve and the number of the others."""
    shown = ", ".join(list(names)[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def _generic(name: str, digits: str) -> str:
    """A name with `#` for the layer's number, if it has one."""
    return f".{name}.".replace(f".{digits}.", ".#.")[1:-1] if digits else name


def layer(
    qkv: Theirs, out: str, attention_norm: str, up: Theirs, down: str, ffn_norm: str
) -> dict[str, Theirs]:
    """The names of a layer's parts, given in the other system's words."""
    return {
        "attention.qkv": qkv,
        "attention.out": out,
        "attention_norm": attention_norm,
        "ffn.up": up,
        "ffn.down": down,
        "ffn_norm": ffn_norm,
    }


def cross(query: str, kv: tuple[str, str], out: Theirs, norm: str) -> dict[str, Theirs]:
    """The names of a layer's cross-attention, given in the other system's words."""
    found: dict[str, Theirs] = {"query": query, "kv": kv, "out": out}
    return {f"cross_attention.{part}": name for part, name in found.items()} | {"cross_norm": norm}


def within(prefix: str, ours: str, names: Names) -> dict[str, Any]:
    """Prepend `prefix` to the other system's names and `ours` to unitk's."""
    return {
        f"{ours}{key}": tuple(prefix + part for part in value)
        if isinstance(value, tuple)
        else prefix + value
        for key, value in names.items()
    }


BERT_LAYER = layer(
    tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
ALBERT_LAYER = layer(
    tuple(f"attention.{part}" for part in ("query", "key", "value")),
    *("attention.dense", "attention.LayerNorm"),
    *("ffn", "ffn_output", "full_layer_layer_norm"),
)
GPT_LAYER = layer("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
BART_LAYER = layer(
    tuple(f"self_attn.{part}_proj" for part in "qkv"),
    *("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"),
)
CROSS = cross(
    "encoder_attn.q_proj",
    ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    *("encoder_attn.out_proj", "encoder_attn_layer_norm"),
)
LINEAR = [f"layers.#.{part}" for part in ("attention.qkv", "attention.out", "ffn.up", "ffn.down")]


def bert_embeddings(root: str) -> dict[str, Any]:
    """The names of BERT's embeddings, where the names of the encoder begin with `root`."""
    parts = {"tokens": "word_embeddings", "positions": "position_embeddings"}
    parts |= {"segments": "token_type_embeddings", "norm": "LayerNorm"}
    parts |= {"tasks": "task_type_embeddings"}  # of ERNIE 2.0
    return within(f"{root}.embeddings.", "embed.", parts)


def bert(root: str) -> dict[str, Any]:
    """The names of BERT's encoder, which begin with `root`."""
    return bert_embeddings(root) | within(f"{root}.encoder.layer.#.", "layers.#.", BERT_LAYER)


def masked(root: str, names: Names, head: str, dense: str, norm: str) -> Layout:
    """The table of a masked language model; the output layer's names begin with `head`."""
    output = {"transform.dense": dense, "transform.norm": norm, "weight": f"{head}.decoder.weight"}
    return Layout(
        {**names, **within("", "heads.lm.", output | {"bias": f"{head}.bias"})},
        copies={
            f"{head}.decoder.weight": f"{root}.embeddings.word_embeddings.weight",
            f"{head}.decoder.bias": f"{head}.bias",
        },
        # without an output over classes, the pooler leads nowhere
        ignored=(rf"{root}\.embeddings\.(position|token_type)_ids", rf"{root}\.pooler\..*"),
    )


def classes(name: str, dense: str, out: str) -> dict[str, str]:
    """The names of a head over classes that reads a slot through a pooler."""
    return {f"heads.{name}.dense": dense, f"heads.{name}.out": out}


def current_name(name: str) -> str:
    """The name of a tensor today: norms had gamma and beta instead of weight and bias."""
    name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
    return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


BERT, ERNIE = (
    masked(
        root,
        bert(root) | classes("class:nsp", f"{root}.pooler.dense", "cls.seq_relationship"),
        "cls.predictions",
        *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    )
    for root in ("bert", "ernie")
)
ROBERTA = masked("roberta", bert("roberta"), "lm_head", "lm_head.dense", "lm_head.layer_norm")
ALBERT = masked(
    "albert",
    bert_embeddings("albert")
    | {"embed.map": "albert.encoder.embedding_hidden_mapping_in"}
    | within("albert.encoder.albert_layer_groups.#.albert_layers.0.", "layers.#.", ALBERT_LAYER)
    | classes("class:sop", "albert.pooler", "sop_classifier.classifier"),
    *("predictions", "predictions.dense", "predictions.LayerNorm"),
)


def gpt(tokens: str, positions: str, ignored: tuple[str, ...], **norm: str) -> Layout:
    """The table of GPT or GPT-2, whose matrices are stored as [in, out]."""
    return Layout(
        {
            "embed.tokens": tokens,
            "embed.positions": positions,
            "heads.lm.weight": "lm_head.weight",
            **norm,
            **within("transformer.h.#.", "layers.#.", GPT_LAYER),
        },
        transposed=LINEAR,
        copies={"lm_head.weight": f"{tokens}.weight"},
        ignored=ignored,
    )


GPT2_MASKS = r"transformer\.h\.\d+\.attn\.(masked_)?bias"
GPT2 = gpt("transformer.wte", "transformer.wpe", (GPT2_MASKS,), norm="transformer.ln_f")
GPT = gpt(
    *("transformer.tokens_embed", "transformer.positions_embed"),
    (GPT2_MASKS, r"transformer\.position_ids"),
)
BART = Layout(
    {
        "embed.tokens": "model.shared",
        "embed.positions": "model.decoder.embed_positions",
        "embed.norm": "model.decoder.layernorm_embedding",
        "encoder.embed.positions": "model.encoder.embed_positions",
        "encoder.embed.norm": "model.encoder.layernorm_embedding",
        "heads.lm.weight": "lm_head.weight",
        "heads.lm.bias": "final_logits_bias",
        **within("model.decoder.layers.#.", "layers.#.", BART_LAYER | CROSS),
        **within("model.encoder.layers.#.", "encoder.layers.#.", BART_LAYER),
    },
    copies=dict.fromkeys(
        (
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
            "lm_head.weight",
        ),
        "model.shared.weight",
    ),
)


XLNET = Layout(
    {
        "embed.tokens": "transformer.word_embedding",
        "embed.virtual.weight": "transformer.mask_emb",
        "heads.lm.weight": "lm_loss.weight",
        "heads.lm.bias": "lm_loss.bias",
        **within(
            "transformer.layer.#.",
            "layers.#.",
            {
                # transformers has parameters instead of modules: no ".weight"
                "attention.qkv.weight": tuple(f"rel_attn.{part}" for part in "qkv"),
                "attention.out.weight": "rel_attn.o",
                "attention_norm": "rel_attn.layer_norm",
                "ffn.up": "ff.layer_1",
                "ffn.down": "ff.layer_2",
                "ffn_norm": "ff.layer_norm",
                "attention.distances.weight": "rel_attn.r",
                "attention.segments.weight": "rel_attn.seg_embed",
                "attention.content_bias": "rel_attn.r_w_bias",
                "attention.position_bias": "rel_attn.r_r_bias",
                "attention.segment_bias": "rel_attn.r_s_bias",
            },
        ),
    },
    copies={"lm_loss.weight": "transformer.word_embedding.weight"},
)


def t5(side: str, ours: str, halves: tuple[str, ...]) -> dict[str, Any]:
    """The names of a tower of T5, whose parts of a block and halves of a gated map are numbered."""
    # a decoder's block has cross-attention as its part 1
    ffn = "2" if side == "decoder" else "1"
    parts = layer(
        tuple(f"0.SelfAttention.{part}" for part in "qkv"),
        *("0.SelfAttention.o", "0.layer_norm"),
        tuple(f"{ffn}.DenseReluDense.wi{half}" for half in halves),
        *(f"{ffn}.DenseReluDense.wo", f"{ffn}.layer_norm"),
    )
    if side == "decoder":
        kv = ("1.EncDecAttention.k", "1.EncDecAttention.v")
        parts |= cross("1.EncDecAttention.q", kv, "1.EncDecAttention.o", "1.layer_norm")
    first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return {
        f"{ours}relative.table": first,
        f"{ours}norm": f"{side}.final_layer_norm",
        **within(f"{side}.block.#.layer.", f"{ours}layers.#.", parts),
    }


T5, T5_GATED = (
    Layout(
        {
            "embed.tokens": "shared",
            "heads.lm.weight": "lm_head.weight",
            **t5("decoder", "", halves),
            **t5("encoder", "encoder.", halves),
        },
        copies=dict.fromkeys(
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
            "shared.weight",
        ),
        # of a table that was never used
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    )
    for halves in (("",), ("_0", "_1"))
)
