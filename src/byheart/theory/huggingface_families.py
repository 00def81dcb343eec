"""How the blocks of each family of Hugging Face models are made: one entry a `model_type`.

Every entry is compared with the model that `transformers` makes of a small config (on the device
"meta", which has no numbers) in tests/theory/test_huggingface_families.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from byheart.errors import ByheartError
from byheart.specs import TransformerSpec

Config = dict[str, Any]
Flag = bool | tuple[str, bool]
"""A trait that a family has or not, or the field of the config that says so, with its default."""

USUAL = {
    "d": "hidden_size", "H": "num_attention_heads", "layers": "num_hidden_layers",
    "d_ff": "intermediate_size", "S": "max_position_embeddings", "N": "vocab_size",
    "kv_heads": "num_key_value_heads", "d_h": "head_dim", "activation": "hidden_act",
}  # fmt: skip
GPT = USUAL | {"d": "n_embd", "H": "n_head", "layers": "n_layer", "d_ff": "n_inner",
               "S": "n_positions n_ctx", "activation": "activation_function"}  # fmt: skip


class Reader:
    """Fields of one config, checked one by one; errors name the file and the field.

    A name may have alternatives, with a space between: "n_positions n_ctx".
    """

    def __init__(self, config: Config, file: str) -> None:
        self.config, self.file = config, file

    def refuse(self, problem: str) -> ByheartError:
        return ByheartError(f"{self.file}: {problem}.")

    def first(self, names: str) -> str | None:
        """The first of the alternatives that is there and not null."""
        return next((one for one in names.split() if self.config.get(one) is not None), None)

    def whole(self, names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number >= `least`."""
        name = self.first(names)
        if name is None and default is None:
            raise self.refuse(f"{' or '.join(names.split())} missing")
        value = default if name is None else self.config[name]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.refuse(f"{name} must be a whole number >= {least}, found {value!r}")
        return value

    def word(self, names: str, default: str) -> str:
        name = self.first(names)
        value = default if name is None else self.config[name]
        if not isinstance(value, str):
            raise self.refuse(f"{name} must be a word, found {value!r}")
        return value

    def holds(self, flag: Flag) -> bool:
        """Whether a trait holds, by the family or by its field."""
        if isinstance(flag, bool):
            return flag
        name, default = flag
        value = self.config.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(f"{name} must be true or false, found {value!r}")
        return default if value is None else value


Made = tuple["Family", TransformerSpec]
Variant = Callable[["Family", Reader, TransformerSpec], Made]


def _as_it_is(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    return family, spec


@dataclass(frozen=True)
class Family:
    """What the blocks of a family have. Sizes stand in the config under `names`, or are `defaults`;
    d_ff is `ff_times` d where it is not said.

    A norm has `norm_numbers` numbers for each of the d dimensions, a block `norms` of them, and
    `outer_norms` stand outside the blocks. `head_norms`: queries and keys are normed with weights
    that the heads share, or that each has of its own. `extra` numbers are whatever else there is;
    `variant` changes any of this, and the sizes, by further fields of the config.
    """

    title: str
    names: Mapping[str, str] = field(default_factory=lambda: USUAL)
    defaults: Mapping[str, int] = field(default_factory=dict)
    ff_times: int = 0
    gated: Flag = False
    qkv_bias: Flag = True
    out_bias: Flag = True
    ff_bias: Flag = True
    norm: Literal["layer", "rms"] = "layer"
    norm_numbers: int = 2
    norms: int = 2
    outer_norms: int = 1
    head_norms: Literal["", "shared", "own"] = ""
    positions: Literal["learned", "rotary", "relative"] = "learned"
    tied: Flag = True
    activation: str = "gelu"
    extra: int = 0
    variant: Variant = _as_it_is


def _moe(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """Blocks with experts in place of one feed-forward layer: E gated ones and a router d x E; the
    shared expert of Qwen2 has a gate of its own."""
    experts = config.whole("num_local_experts num_experts")
    width = config.whole("moe_intermediate_size", spec.d_ff)
    shared = config.whole("shared_expert_intermediate_size", 0, least=0)
    every, dense = (
        config.whole("decoder_sparse_step", 1),
        config.config.get("mlp_only_layers") or [],
    )
    sparse = [i for i in range(spec.layers) if i not in dense and (i + 1) % every == 0]
    mixture = 3 * spec.d * (experts * width + shared - spec.d_ff) + spec.d * experts
    mixture += spec.d if shared else 0
    return replace(family, extra=len(sparse) * mixture), spec


def _output_bias(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """An output matrix with a bias (GPT-J, CodeGen, Phi); Phi may norm queries and keys."""
    normed = config.holds(("qk_layernorm", False)) * spec.layers * 4 * spec.d_h
    return replace(family, extra=(spec.N or 0) + normed), spec


def _head_norms(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """StableLM and Cohere: norms of each head, and blocks whose halves share one norm."""
    own = config.holds(("qk_layernorm", False)) or config.holds(("use_qk_norm", False))
    norms = 1 if config.holds(("use_parallel_residual", family.norms == 1)) else 2
    return replace(family, norms=norms, head_norms="own" if own else ""), spec


def _one_key(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """GPT-BigCode: all heads share one W_K and W_V."""
    return family, replace(spec, kv_heads=1 if config.holds(("multi_query", True)) else spec.H)


def _opt(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """Two more positions; tokens of another width come with two projections."""
    E, d, N = config.whole("word_embed_proj_dim", spec.d), spec.d, spec.N or 0
    before = config.holds(("do_layer_norm_before", True))
    final = before and not config.holds(("_remove_final_layer_norm", False))
    numbers = 2 if config.holds(("layer_norm_elementwise_affine", True)) else 0
    tables = 1 if config.holds(family.tied) else 2
    extra = 2 * d + (2 * d * E + tables * N * (E - d) if E != d else 0)
    return replace(family, outer_norms=int(final), norm_numbers=numbers, extra=extra), spec


def _falcon(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """One key-value head, or groups in the newer kind, which may have two norms a block."""
    newer = config.holds(("new_decoder_architecture", False))
    one = config.holds(("multi_query", True))
    kv = config.whole("num_kv_heads n_head_kv", spec.H) if newer else 1 if one else spec.H
    parallel = config.holds(("parallel_attn", True))
    norms = config.whole("num_ln_in_parallel_attn", 2) if newer else 1 if parallel else 2
    kind = "relative" if config.holds(("alibi", False)) else "rotary"
    return replace(family, norms=norms, positions=kind), replace(spec, kv_heads=kv)


def _mpt(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    return family, replace(spec, d_ff=config.whole("expansion_ratio", 4) * spec.d)


def _bert(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """Token types and a pooler. Embeddings of another width E (ELECTRA, ALBERT) are projected."""
    kind = config.word("position_embedding_type", "absolute")
    if kind != "absolute":
        raise config.refuse(f"position_embedding_type must be absolute, found {kind}")
    d, types = spec.d, config.whole("type_vocab_size", 2, least=0)
    E = config.whole("embedding_size", d) if family.title in ("ELECTRA", "ALBERT") else d
    narrow = (E - d) * ((spec.N or 0) + spec.S + 2) if E != d else 0
    projected = E * d + d if E != d or family.title == "ALBERT" else 0
    pooler = 0 if family.title == "ELECTRA" else d * d + d
    return replace(family, extra=types * E + narrow + projected + pooler), spec


def _albert(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """All layers of a group are one block, of `inner_group_num` layers."""
    family, _ = _bert(family, config, spec)
    blocks = config.whole("num_hidden_groups", 1) * config.whole("inner_group_num", 1)
    d, ff = spec.d, spec.d_ff
    block = 4 * d * d + 4 * d + 2 * d * ff + ff + d + 4 * d
    return replace(family, extra=family.extra + (blocks - spec.layers) * block), spec


def _mpnet(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """No token types; one table of distances for all layers."""
    buckets = config.whole("relative_attention_num_buckets", 32)
    return replace(family, extra=spec.d * spec.d + spec.d + buckets * spec.H), spec


def _vit(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """Patches in place of tokens: a linear map with bias, CLS (DeiT: and a second token), pooler.
    DINOv2 has a mask token and a scale of each half of a block, no pooler."""
    d, image, patch = spec.d, config.whole("image_size"), config.whole("patch_size")
    if image % patch:
        raise config.refuse(f"patch_size {patch} does not divide image_size {image}")
    tokens = 2 if family.title == "DeiT" else 1
    extra = tokens * d + (config.whole("num_channels", 3) * patch * patch + 1) * d
    spec = replace(spec, S=(image // patch) ** 2 + tokens)
    if family.title != "DINOv2":
        return replace(family, extra=extra + d * d + d), spec
    if config.holds(("use_swiglu_ffn", False)):
        raise config.refuse("use_swiglu_ffn = true is not counted for DINOv2")
    extra += config.holds(("use_mask_token", True)) * d + spec.layers * 2 * d
    return replace(family, extra=extra), replace(spec, d_ff=config.whole("mlp_ratio", 4) * d)


def _t5(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """Encoder and decoder, or the encoder alone where `architectures` says so. A decoder block has
    attention to the encoder with a norm; distances have a table in the first block of each side,
    or in every block (UMT5)."""
    d, encoder = spec.d, spec.layers
    named = config.config.get("architectures")
    whole = not (isinstance(named, list) and any("EncoderModel" in str(one) for one in named))
    decoder = config.whole("num_decoder_layers", encoder) if whole else 0
    gate, _, act = config.word("feed_forward_proj", family.activation).rpartition("-")
    tables = encoder + decoder if family.title == "UMT5" else 1 + whole
    distances = tables * config.whole("relative_attention_num_buckets", 32) * spec.H
    cross = decoder * (4 * d * spec.d_h * spec.H + d)
    parts = f"{encoder} encoder" + (f" and {decoder} decoder" if whole else "")
    spec = replace(
        spec, layers=encoder + decoder, activation=act, name=f"{spec.name} ({parts} layers)"
    )
    return replace(family, gated=gate == "gated", outer_norms=1 + whole, extra=distances + cross,
                   tied=family.tied if whole else True), spec  # fmt: skip


def _bart(family: Family, config: Reader, spec: TransformerSpec) -> Made:
    """Encoder and decoder, each with its positions (two more than said) and norm; a decoder block
    has attention to the encoder with a norm. Widths of both feed-forward layers may differ."""
    d, encoder, decoder = spec.d, spec.layers, config.whole("decoder_layers")
    width = config.whole("decoder_ffn_dim", spec.d_ff)
    cross = decoder * (4 * d * d + 4 * d + 2 * d + (width - spec.d_ff) * (2 * d + 1))
    extra = cross + (spec.S + 4) * d
    name = f"{spec.name} ({encoder} encoder and {decoder} decoder layers)"
    return replace(family, extra=extra), replace(spec, layers=encoder + decoder, name=name)


ATTENTION = ("attention_bias", False)
UNTIED, TIED = ("tie_word_embeddings", False), ("tie_word_embeddings", True)
LLAMA = Family(
    "Llama", gated=True, qkv_bias=ATTENTION, out_bias=ATTENTION, ff_bias=("mlp_bias", False),
    norm="rms", norm_numbers=1, positions="rotary", tied=UNTIED, activation="silu",
)  # fmt: skip
PLAIN = replace(LLAMA, qkv_bias=False, out_bias=False, ff_bias=False)
QWEN2 = replace(PLAIN, title="Qwen2", qkv_bias=True)
QWEN3 = replace(LLAMA, title="Qwen3", ff_bias=False, head_norms="shared")
GEMMA = replace(
    LLAMA, title="Gemma", ff_bias=False, tied=TIED, activation="gelu_pytorch_tanh",
    names=USUAL | {"activation": "hidden_activation hidden_act"}, defaults={"d_h": 256},
)  # fmt: skip
GEMMA2 = replace(GEMMA, title="Gemma 2", norms=4)
GPT2 = Family("GPT-2", GPT, ff_times=4, tied=TIED, activation="gelu_new")
GPTJ = replace(
    GPT2, title="GPT-J", qkv_bias=False, out_bias=False, norms=1, positions="rotary", tied=UNTIED,
    variant=_output_bias,
)  # fmt: skip
BERT = Family("BERT", variant=_bert)
T5 = Family(
    "T5", USUAL | {"d": "d_model", "H": "num_heads", "layers": "num_layers", "d_ff": "d_ff",
                   "S": "n_positions", "d_h": "d_kv"},
    {"S": 512}, qkv_bias=False, out_bias=False, ff_bias=False, norm="rms", norm_numbers=1,
    positions="relative", tied=TIED, activation="relu", variant=_t5,
)  # fmt: skip
PATCHES = USUAL | {"N": "", "S": ""}
VIT = Family("ViT", PATCHES, qkv_bias=("qkv_bias", True), variant=_vit)

FAMILIES: dict[str, Family] = {
    "gpt2": GPT2,
    "gpt_neo": replace(GPT2, title="GPT-Neo", qkv_bias=False, names=USUAL | {
        "H": "num_heads", "layers": "num_layers", "activation": "activation_function"}),
    "gptj": GPTJ,
    "codegen": replace(GPTJ, title="CodeGen"),
    "gpt_neox": Family("GPT-NeoX", qkv_bias=("attention_bias", True),
                       out_bias=("attention_bias", True), positions="rotary", tied=UNTIED),
    "gpt_bigcode": replace(GPT2, title="GPT-BigCode", variant=_one_key),
    "opt": Family("OPT", USUAL | {"d_ff": "ffn_dim", "activation": "activation_function"},
                  qkv_bias=("enable_bias", True), out_bias=("enable_bias", True),
                  ff_bias=("enable_bias", True), tied=TIED, activation="relu", variant=_opt),
    "bloom": Family("BLOOM", USUAL | {"d": "hidden_size n_embed", "H": "n_head num_attention_heads",
                                      "layers": "n_layer num_hidden_layers", "d_ff": "",
                                      "S": "seq_length"},
                    {"S": 2048}, ff_times=4, outer_norms=2, positions="relative", tied=TIED),
    "falcon": Family("Falcon", USUAL | {"d": "hidden_size n_embed", "d_ff": "ffn_hidden_size",
                                        "H": "num_attention_heads n_head",
                                        "layers": "num_hidden_layers n_layer",
                                        "activation": "activation"},
                     {"S": 2048}, ff_times=4, qkv_bias=("bias", False), out_bias=("bias", False),
                     ff_bias=("bias", False), tied=TIED, variant=_falcon),
    "mpt": Family("MPT", USUAL | {"d": "d_model", "H": "n_heads", "layers": "n_layers", "d_ff": "",
                                  "S": "max_seq_len"},
                  ff_times=4, qkv_bias=False, out_bias=False, ff_bias=False, norm_numbers=1,
                  positions="relative", tied=TIED, variant=_mpt),
    "llama": LLAMA,
    "mistral": replace(PLAIN, title="Mistral"),
    "mixtral": replace(PLAIN, title="Mixtral", variant=_moe),
    "qwen2": QWEN2,
    "qwen2_moe": replace(QWEN2, title="Qwen2 MoE", variant=_moe),
    "qwen3": QWEN3,
    "qwen3_moe": replace(QWEN3, title="Qwen3 MoE", variant=_moe),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": replace(GEMMA2, title="Gemma 3", head_norms="shared", defaults={
        "H": 8, "kv_heads": 4, "d_h": 256, "N": 262_208, "S": 131_072}),
    "phi": Family("Phi", norms=1, positions="rotary", tied=UNTIED, activation="gelu_new",
                  variant=_output_bias),
    "phi3": replace(PLAIN, title="Phi-3"),
    "stablelm": replace(PLAIN, title="StableLM", qkv_bias=("use_qkv_bias", False), norm="layer",
                        norm_numbers=2, variant=_head_norms),
    "olmo": replace(LLAMA, title="OLMo", ff_bias=False, norm="layer", norm_numbers=0),
    "olmo2": replace(LLAMA, title="OLMo 2", ff_bias=False, head_norms="own"),
    "starcoder2": Family("StarCoder2", qkv_bias=("use_bias", True), out_bias=("use_bias", True),
                         ff_bias=("use_bias", True), positions="rotary", tied=TIED,
                         activation="gelu_pytorch_tanh"),
    "granite": replace(LLAMA, title="Granite"),
    "cohere": replace(LLAMA, title="Cohere", ff_bias=False, norm="layer", norms=1, tied=TIED,
                      variant=_head_norms),
    "smollm3": replace(LLAMA, title="SmolLM3", tied=TIED),
    "bert": BERT,
    "roberta": replace(BERT, title="RoBERTa"),
    "xlm-roberta": replace(BERT, title="XLM-RoBERTa"),
    "camembert": replace(BERT, title="CamemBERT"),
    "electra": replace(BERT, title="ELECTRA"),
    "albert": replace(BERT, title="ALBERT", activation="gelu_new", variant=_albert),
    "distilbert": Family("DistilBERT", USUAL | {"d": "dim", "H": "n_heads", "layers": "n_layers",
                                                "d_ff": "hidden_dim", "activation": "activation"}),
    "mpnet": Family("MPNet", variant=_mpnet),
    "vit": VIT,
    "deit": replace(VIT, title="DeiT"),
    "dinov2": replace(VIT, title="DINOv2", names=PATCHES | {"d_ff": ""}, ff_times=4),
    "t5": T5,
    "mt5": replace(T5, title="mT5", activation="gated-gelu"),
    "umt5": replace(T5, title="UMT5", activation="gated-gelu"),
    "bart": Family("BART", USUAL | {"d": "d_model", "H": "encoder_attention_heads",
                                    "layers": "encoder_layers", "d_ff": "encoder_ffn_dim",
                                    "activation": "activation_function"},
                   outer_norms=2, tied=TIED, variant=_bart),
}  # fmt: skip


def fields_of(config: Config) -> str:
    names = sorted(str(name) for name in config)
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no fields"
