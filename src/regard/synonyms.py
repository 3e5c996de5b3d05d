"""The words of other libraries and papers for our settings and options, for error messages: two literal tables."""

# Our setting → other words for it.
SETTINGS = {
    "plan.steps": "max_steps num_steps train_steps total_steps iterations iters max_iters updates",
    "plan.epochs": "epoch num_epochs n_epochs max_epochs num_train_epochs",
    "plan.minutes": "time max_time time_limit hours",
    "plan.batch_tokens": "batch batch_size bs train_batch_size per_device_train_batch_size max_tokens tokens_per_batch",
    "plan.accumulate": "accumulation grad_accum accumulate_grad_batches gradient_accumulation "
    "gradient_accumulation_steps update_freq",
    "plan.rate": "lr learning_rate learningrate base_lr max_lr peak_lr",
    "plan.schedule": "scheduler lr_schedule lr_scheduler lr_scheduler_type",
    "plan.warmup": "warmup_steps num_warmup_steps warmup_ratio warmup_proportion warmup_iters warmup_updates",
    "plan.optimizer": "optim optimiser opt",
    "plan.betas": "beta beta1 beta2 adam_betas adam_beta1 adam_beta2",
    "plan.epsilon": "eps adam_eps adam_epsilon",
    "plan.decay": "wd weight_decay l2",
    "plan.layer_decay": "llrd layerwise_lr_decay layer_wise_lr_decay discriminative_fine_tuning",
    "plan.freeze": "freeze_layers frozen num_freeze_layers",
    "plan.clip": "clip_norm clip_grad grad_clip max_norm max_grad_norm gradient_clip gradient_clip_val",
    "plan.seed": "random_seed manual_seed",
    "plan.precision": "fp16 bf16 amp dtype mixed_precision half torch_dtype",
    "plan.compile": "torch_compile",
    "plan.checkpoint": "gradient_checkpointing activation_checkpointing recompute grad_checkpoint",
    "plan.threads": "num_threads num_workers workers",
    "plan.log": "log_every log_interval log_steps logging_steps print_every",
    "plan.evaluate": "eval eval_every eval_interval eval_steps evaluate_every save_steps save_every validate_interval",
    "plan.patience": "early_stopping early_stop early_stopping_patience",
    "plan.keep": "save_total_limit keep_last keep_checkpoints",
    "plan.select": "metric_for_best_model best_checkpoint_metric monitor",
    "model.width": "d_model dim hidden hidden_dim hidden_size hidden_units model_dim n_embd units",
    "model.heads": "n_head n_heads num_heads nhead num_attention_heads attention_heads",
    "model.layers": "n_layer n_layers num_layers num_hidden_layers depth blocks",
    "model.inner": "d_ff d_inner ffn ffn_dim ff_dim n_inner dim_feedforward feedforward intermediate_size",
    "model.embed": "emb emb_dim embed_dim embed_size embedding_dim embedding_size d_embed",
    "model.dropout": "drop dropout_p dropout_rate p_dropout hidden_dropout_prob resid_pdrop",
    "model.attention_dropout": "attn_dropout attn_pdrop attention_probs_dropout_prob",
    "model.activation": "act act_fn hidden_act activation_function nonlinearity",
    "model.positions": "pos position positional_encoding position_embedding position_embedding_type pos_encoding rope",
    "model.norm_place": "pre_norm post_norm norm_first normalize_before",
    "model.context": "block_size context_length context_size max_len max_length max_seq_len max_seq_length "
    "max_position_embeddings n_ctx n_positions seq_len",
    "model.score": "attn attention attention_type attn_type score_function",
    "model.cell": "rnn rnn_type cell_type",
    "model.hidden": "nhid n_hid",
    "model.weight_drop": "wdrop weight_dropout weight_p dropconnect drop_connect",
    "model.embedding_dropout": "dropoute embed_p word_dropout",
    "model.input_dropout": "dropouti input_p",
    "model.hidden_dropout": "dropouth hidden_p",
    "model.variational": "locked_dropout variational_dropout",
    "plan.trigger": "nonmono",
    "plan.tune_lm": "tune_language_model finetune_lm",
    "model.tied": "tie_weights tie_embeddings tie_word_embeddings",
    "model.embedding": "pretrained_embeddings word_vectors glove",
    "data.window": "block_size bptt chunk_size context_length seq_len sequence_length",
    "data.train": "data dataset train_data train_file train_path training_file file input",
    "data.valid": "dev dev_file eval_file val val_file valid_file validation validation_file",
    "data.test": "test_file",
    "data.tokens": "tokenizer tokenizer_type tokenization",
    "data.source_tokens": "tokenizer tokenizer_type tokenization",
    "data.vocab": "n_vocab vocab_size vocabulary_size",
    "data.joint": "joint_vocab joined_dictionary share_vocab",
    "data.label": "label_column",
    "data.text": "text_column",
    "data.source": "source_column source_lang source_language src src_lang",
    "data.target": "target_column target_lang target_language tgt tgt_lang",
    "objective.smoothing": "label_smoothing label_smoothing_factor",
    "objective.ratio": "scheduled_sampling teacher_forcing teacher_forcing_ratio",
    "objective.part": "mask_prob mlm_prob mlm_probability masking_ratio",
    "head.pool": "pooling pooler",
    "head.labels": "n_classes num_classes num_labels",
    "metrics": "metric compute_metrics",
}
# Our option of a command → other words for it; an option of `regard train` may be meant where a setting was given.
OPTIONS = {
    "--limit": "max_new_tokens max_length max_len max_tokens max_target_length length tokens new_tokens",
    "--beam": "beams num_beams beam_size beam_width k",
    "--nbest": "n_best num_return_sequences n",
    "--penalty": "length_penalty lenpen alpha",
    "--coverage": "coverage_penalty",
    "--temperature": "do_sample sample temp",
    "--top-p": "nucleus",
    "--long": "truncate truncation overflow",
    "--batch-tokens": "batch batch_size bs",
    "--precision": "fp16 bf16 half dtype torch_dtype",
    "--device": "cpu gpu cuda use_cuda no_cuda",
    "--out": "output output_dir output_file save_dir save_path checkpoint_dir o",
    "--overwrite": "force overwrite_output_dir",
    "--resume": "resume_from_checkpoint restart continue",
    "--data": "file test_file input dataset test",
    "--pool": "pooling pooling_mode",
    "--normalise": "normalize normalize_embeddings",
    "--top": "top_k k topk",
    "--to": "format target",
    "--average": "average_checkpoints num_checkpoints",
    "--json": "as_json format",
    "--tokens": "per_token token_logprobs",
    "--prompt": "template prompt_template",
    "--shots": "few_shot n_shots num_shots num_fewshot k_shot",
    "--labels": "verbalizer verbalizers verbaliser label_words",
    "from=DIR": "checkpoint init init_from load model_name_or_path pretrained pretrained_model warm_start finetune",
}
# A recipe with its model → other words for it.
RECIPES = {
    "pretrain model=bert": "masked mlm masked_lm masked_language_model bert run_mlm",
    "pretrain model=gpt": "gpt clm causal_lm causal_language_model run_clm",
    "pretrain model=roberta": "roberta",
    "pretrain model=albert": "albert",
    "pretrain model=transformer-xl": "transformer_xl transfo_xl",
    "flickr8k data.train=FILE": "caption captions captioning image_captioning image_captions",
    "tag": "ner pos tagger tagging token_classification run_ner",
    "answer": "squad qa question_answering run_qa",
    "similarity": "sts stsb sts_b",
}
# The names that a message uses for a kind of model that has better known names.
KNOWN_AS = {"recurrent": ("rnn", "lstm", "gru")}


def ours(word: str, table: dict[str, str]) -> list[str]:
    """Our names for a word: an option without its hyphens, or a word of others.

    The word may be spelled with hyphens or capitals, or with the part it is in."""
    word = word.lower().lstrip("-").replace("-", "_").rpartition(".")[2]
    return [name for name, others in table.items() if word in others.split() or name == f"--{word}"]


def known_as(names: list[str]) -> list[str]:
    """The names of kinds as messages write them."""
    return [known for name in names for known in KNOWN_AS.get(name, (name,))]
