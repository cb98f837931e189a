"""unitk's names of the options of other tools, for hints (docs/from-fairseq.md)."""

from __future__ import annotations

from collections.abc import Collection

from unitk.registry import register


def _table(text: str) -> dict[str, tuple[str, ...]]:
    """Parse `name another-name: option | option; ...` into a dictionary of name -> options."""
    rows = (row.split(": ") for row in " ".join(text.split()).split("; "))
    return {name: tuple(options.split(" | ")) for flags, options in rows for name in flags.split()}


NAMES = _table("""
    trainpref: --input | --source-file; validpref: --valid | --valid-source-file;
    testpref: --test | --test-source-file; s: --source-lang; t: --target-lang; destdir: --dest;
    srcdict tgtdict: --vocab; nwordssrc nwordstgt: --vocab-size;
    thresholdsrc thresholdtgt: --vocab-threshold; dict_only: --vocab-only;
    dataset_impl: --format fairseq; max_update total_num_update: --max-steps;
    max_epoch: --max-epochs; stop_time_hours: --max-hours; update_freq: --batch-tokens;
    batch_size max_sentences: --batch-texts | --max-tokens; tokens_per_sample: --block-size;
    sample_break_mode: --blocks; max_source_positions: --max-source-len | --truncate;
    max_target_positions: --max-target-len; train_subset: --data; valid_subset: --valid | --data;
    gen_subset: --input; disable_validation: --valid none;
    validate_interval_updates: --valid-every; save_interval_updates: --save-every;
    keep_interval_updates keep_last_epochs: --keep-last; keep_best_checkpoints: --keep-best;
    best_checkpoint_metric: --best-metric; restore_file: --resume | --checkpoint;
    finetune_from_model: --init-from; log_interval: --log-every;
    tensorboard_logdir: --writers tensorboard; wandb_project: --writers wandb;
    lr_scheduler warmup_updates: --lr-schedule; weight_decay: --optimizer.weight-decay;
    adam_betas: --optimizer.betas; adam_eps: --optimizer.eps;
    label_smoothing: --criterion.label-smoothing; dropout: --arch.dropout;
    attention_dropout: --arch.attention-dropout;
    activation_dropout relu_dropout: --arch.activation-dropout; activation_fn: --arch.activation;
    encoder_layers: --arch.num-layers; decoder_layers: --arch.decoder-layers | --arch.num-layers;
    encoder_embed_dim decoder_embed_dim: --arch.width;
    encoder_ffn_embed_dim decoder_ffn_embed_dim: --arch.ffn-width;
    encoder_attention_heads decoder_attention_heads: --arch.num-heads;
    share_all_embeddings: --arch.shared-embeddings; mask_prob: --task.mask-ratio;
    fp16: --precision; amp memory_efficient_fp16: --precision fp16;
    bf16 memory_efficient_bf16: --precision bf16; cpu: --device cpu; only_source: --input;
    upsample_primary: --data; no_early_stop: --search exact;
    reset_optimizer reset_lr_scheduler reset_meters reset_dataloader: --init-from;
    distributed_world_size nprocs_per_node distributed_num_procs: --nproc;
    heartbeat_timeout: --rank-timeout; ddp_backend: --shard;
    checkpoint_activations: --recompute; store_ema ema_decay: --ema; path: --checkpoint;
    max_len_a max_len_b: --max-len; match_source_len: --min-len 1x --max-len 1x;
    unnormalized: --lenpen 0; score_reference: --score; prefix_size: --prefix-file;
    results_path: --output; scoring: --metric
""")
"""fairseq's name -> what to write here, the first one that the command has."""
FACTOR = "it is a factor there: N becomes --batch-tokens N times --max-tokens"
NOTES = {
    "joined_dictionary": "pairs have one vocabulary in any case: leave it out",
    "update_freq": FACTOR,
    "gradient_accumulation_steps": FACTOR,
    **{
        f"{split}pref": f"pairs take whole names: --{pre}source-file and --{pre}target-file"
        for split, pre in {"train": "", "valid": "valid-", "test": "test-"}.items()
    },
}
"""Remarks on names that a hint adds."""
TRANSFORMERS = _table("""
    num_beams: --beam; num_beam_groups: --diverse-beam-groups;
    diversity_penalty: --diverse-beam-strength; num_return_sequences: --nbest;
    do_sample: --sampling; top_k: --sampling-topk; top_p: --sampling-topp;
    min_p: --sampling-minp; max_new_tokens: --max-len; max_length: --max-len | --block-size;
    length_penalty: --lenpen; bad_words_ids: --bad-words;
    model_name_or_path: --checkpoint | --init-from; resume_from_checkpoint: --resume;
    train_file: --data | --input; validation_file: --valid; output_dir: --save-dir | --output;
    learning_rate: --lr; lr_scheduler_type warmup_steps: --lr-schedule;
    num_train_epochs: --max-epochs; per_device_train_batch_size: --batch-texts;
    per_device_eval_batch_size: --max-tokens; gradient_accumulation_steps: --batch-tokens;
    gradient_checkpointing: --recompute; max_grad_norm: --clip-norm;
    label_smoothing_factor: --criterion.label-smoothing; logging_steps: --log-every;
    eval_steps: --valid-every; save_steps: --save-every; save_total_limit: --keep-last;
    report_to: --writers; torch_compile: --compile
""")
"""transformers' names of the options of training and generation -> unitk's options."""
OTHERS = _table("""
    model model_path model_name ckpt: --checkpoint | --init-from;
    tokenizer tokenizer_path: --vocab; epochs num_epochs: --max-epochs;
    steps num_steps train_steps total_steps max_iters iterations: --max-steps;
    train dataset train_data data_path: --data | --input;
    in file input_file input_path text_file: --input | --data;
    eval dev val valid_data validation_data: --valid;
    out outdir out_dir output_file output_path save_path run_dir log_dir:
    --output | --save-dir | --dest | --to;
    bs batch batch_tokens: --batch-texts | --max-tokens; accum grad_accum: --batch-tokens;
    seq_len seq_length max_seq_len max_seq_length context_length n_ctx:
    --block-size | --max-source-len; warmup scheduler: --lr-schedule;
    gpu cuda use_cuda no_cuda: --device; num_gpus num_processes nproc_per_node: --nproc;
    jobs n_jobs: --workers | --threads; dtype mixed_precision: --precision;
    temp: --temperature; topk: --sampling-topk; topp: --sampling-topp; beams beam_size: --beam;
    num_outputs num_candidates n_best: --nbest; refs gold: --references;
    hyps predictions preds system: --hypotheses; metrics: --metric;
    wandb: --writers wandb; tensorboard: --writers tensorboard;
    force overwrite_output_dir: --overwrite; gradient_clip grad_clip: --clip-norm;
    n_layer n_layers layers: --arch.num-layers; n_head n_heads heads: --arch.num-heads;
    n_embd d_model hidden_size hidden_dim: --arch.width; d_ff intermediate_size: --arch.ffn-width;
    mlm_probability mlm_prob mask_rate: --task.mask-ratio; smoothing: --criterion.label-smoothing
""")
"""Names that further tools have -> unitk's options."""
CHOICES = _table("""
    translation translation_from_pretrained_bart: seq2seq; masked_lm: mlm; language_modeling: lm;
    label_smoothed_cross_entropy masked_lm_loss: cross_entropy; adam: adamw
""")
"""fairseq's name of a task, criterion or optimizer -> unitk's."""
WORDS = _table("""
    bert roberta modernbert fill_mask: mlm; gpt gpt2 gpt3 llama qwen clm causal_lm causal: lm;
    unilmv2: pmlm; glm chatglm: glm_infill; vae: optimus; elmo: bilm; llada diffusion: mdlm;
    denoising: bart; span_corruption: t5; simcse ict dssm: contrastive;
    summarization question_generation qg: glm_infill | seq2seq; mt: seq2seq;
    classification sequence_classification text_classification sentiment glue sst2 mnli: classify;
    regression sts stsb: regress; ner pos tagging token_classification: tag;
    qa squad question_answering: span; multiple_choice race: choice;
    ce nll crossentropy: cross_entropy; kl vae_loss: elbo;
    finetune fine_tune pretrain pre_train fit: train; tokenize binarize prepare: preprocess;
    summarize summarise translate fill infill complete chat interactive decode sample: generate;
    infer inference classify tag: predict; eval test perplexity ppl benchmark: evaluate;
    bleu rouge metrics: score; export import download: convert; upload: push; api app: serve
""")
"""What users call a task, a criterion or a verb -> unitk's name of it, the nearest one first."""


@register("hint", "fairseq")
class Hints:
    """Hints from the names of options and choices in other tools to unitk's."""

    @staticmethod
    def option(key: str, known: Collection[str]) -> str:
        """A hint such as `; fairseq's --max-update is --max-steps here`, "" if there is none.

        `known` are the options that are possible where the name was given.
        """
        spelled = f"--{key.replace('_', '-')}" if len(key) > 1 else f"-{key}"
        note = NOTES.get(key, "")
        of_systems = ("fairseq's ", NAMES), ("transformers' ", TRANSFORMERS), ("", OTHERS)
        for system, names in of_systems:
            for option_here in names.get(key, ()):
                if option_here.split()[0] in known:
                    return f"; {system}{spelled} is {option_here} here" + (
                        f" ({note})" if note else ""
                    )
        return f"; {note}" if key == "joined_dictionary" else ""

    @staticmethod
    def choice(name: str, known: Collection[str]) -> str:
        """The hint for the value of an option, such as the name of a task, or for a verb."""
        for system, names in (("fairseq's ", CHOICES), ("", WORDS)):
            if choices := [
                name_here
                for name_here in names.get(name.replace("-", "_"), ())
                if name_here in known
            ]:
                return f"; {system}{name} is {' or '.join(choices)} here"
        return ""
