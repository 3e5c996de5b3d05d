"""Faults that the tests must notice: each is put into a copy of the package, and the tests of that place must fail.

    python tests/faults.py [--only NAME …] [--jobs N]

Prints for each fault whether a test noticed it, and which. The exit status is 1 if a fault was not noticed, if its old
text does not occur exactly once, or if its tests fail without the fault. To add a fault: a line in FAULTS; if it is
not noticed, a test.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600  # the longest time for the tests of a fault


@dataclass(frozen=True)
class Fault:
    """A small change of the package that makes it wrong."""

    name: str
    file: str  # in src/regard
    old: str  # occurs once in the file
    new: str
    tests: str  # arguments of pytest, in tests: files, or single tests where a file takes long


FAULTS = (
    # -- tagging
    Fault(
        "the best sequence of tags may end inside an entity",
        "layers/crf.py",
        ".masked_fill(~self.end_legal, FORBIDDEN)",
        "",
        "test_crf.py",
    ),
    Fault(
        "the forward algorithm reads padding",
        "layers/crf.py",
        "sums.append(torch.where(real[:, place, None], after, sums[-1]))",
        "sums.append(after)",
        "test_crf.py",
    ),
    Fault(
        "two entities of different types are one",
        "entities.py",
        ' and letter in ("I", "E") and last_kind == kind',
        ' and letter in ("I", "E")',
        "test_entities.py",
    ),
    Fault(
        "the vector of a word is the sum of its tokens",
        "models/bilstm.py",
        "states.sum(2) / there.sum(2, keepdim=True).clamp(min=1).to(states.dtype)",
        "states.sum(2)",
        "models/test_bilstm.py",
    ),
    Fault(
        "a frozen extractor has dropout",
        "models/bilstm.py",
        "self.body.train(mode and self.config.tune)",
        "self.body.train(mode)",
        "models/test_bilstm.py",
    ),
    Fault(
        "the last word of a file without a line end is lost",
        "data/conll.py",
        "    if sentence.words:\n        yield sentence\n\n",
        "\n",
        "data/test_conll.py",
    ),
    # -- classification
    Fault(
        "a window of a filter starts one token late",
        "models/kim.py",
        "F.pad(x, ((size - 1) // 2, size // 2))",
        "F.pad(x, (size // 2, (size - 1) // 2))",
        "models/test_kim.py",
    ),
    Fault(
        "the last layer keeps weights above the largest norm",
        "models/kim.py",
        "                self.weight.mul_(scale)\n",
        "                self.weight.mul_(1.0)\n",
        "models/test_kim.py",
    ),
    Fault(
        "a class that is neither there nor predicted counts in the macro average",
        "class_scores.py",
        "    there = (found | gold).any(0)\n",
        "    there = np.ones(found.shape[1], bool)\n",
        "test_class_scores.py",
    ),
    Fault(
        "the strongest n-grams may repeat",
        "verbs/filters.py",
        "                found[one.pieces] = one\n",
        "                found[(*one.pieces, str(len(found)))] = one\n",
        "verbs/test_filters.py",
    ),
    Fault(
        "a picture of filters starts an n-gram at its middle",
        "verbs/filters.py",
        "                first = at - (size - 1) // 2\n",
        "                first = at\n",
        "verbs/test_filters.py",
    ),
    Fault(
        "both channels of Kim's network are trained",
        "models/kim.py",
        'requires_grad_(config.vectors == "non-static")',
        'requires_grad_(config.vectors != "static")',
        "models/test_kim.py",
    ),
    # -- sequences
    Fault(
        "a matrix of a MATLAB file is read row by row",
        "data/music.py",
        'reshape(sizes, order="F")',
        "reshape(sizes)",
        "data/test_sequences.py",
    ),
    Fault(
        "the two marked steps of the adding problem may be one",
        "data/synthetic.py",
        "first + random.integers(1, self.length, size=count)",
        "first + random.integers(0, self.length, size=count)",
        "data/test_sequences.py",
    ),
    Fault(
        "the ladder of sequences trains the worst trial",
        "training/ladder/sequences.py",
        "min(costs, key",
        "max(costs, key",
        "cli/test_cli_sequences.py",
    ),
    Fault(
        "padding of a model of numbers is not set to NaN by its check",
        "checks/leaks.py",
        "        for value in subject.calls.padding_values:\n",
        "        for value in ():\n",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "the layers of a TCN have dilations 1, 2, 3 …",
        "models/tcn.py",
        "config.kernel, 2**level, config.dropout",
        "config.kernel, level + 1, config.dropout",
        "models/test_tcn.py",
    ),
    Fault(
        "the features of padded texts stay in the order of their real tokens",
        "models/tcn.py",
        "features.take_along_dim(order.argsort(1), dim=1)",
        "features.take_along_dim(order, dim=1)",
        "models/test_tcn.py",
    ),
    Fault(
        "the last inputs of a padded row are one place early",
        "layers/convolution.py",
        "places = lengths[:, None] + torch",
        "places = (lengths[:, None] - 1).clamp_min(0) + torch",
        "layers/test_convolution.py",
    ),
    Fault(
        "a weight norm is that of all channels together",
        "layers/convolution.py",
        "dim=tuple(range(1, self.v.dim()))",
        "dim=tuple(range(self.v.dim()))",
        "layers/test_convolution.py",
    ),
    Fault(
        "a tied adaptive softmax has projections of its own",
        "layers/vocabulary.py",
        "own = () if config.tied else tuple",
        "own = tuple",
        "models/test_recurrent_lm.py",
    ),
    Fault(
        "the decoder of GNMT has no residual connections",
        "models/gnmt.py",
        "            x = output + x if depth >= RESIDUAL else output\n            after.append(hidden)",
        "            x = output\n            after.append(hidden)",
        "models/test_gnmt.py",
    ),
    Fault(
        "the query of GNMT is the cell state",
        "models/gnmt.py",
        "hidden[:, :, 0], at[t : t + 1]",
        "hidden[:, :, 1], at[t : t + 1]",
        "models/test_gnmt.py",
    ),
    Fault(
        "the sum of a query of ConvS2S is not scaled",
        "models/convs2s.py",
        "query = (self.query(y) + embedded) * HALF",
        "query = self.query(y) + embedded",
        "models/test_convs2s.py",
    ),
    Fault(
        "values of ConvS2S are multiplied by the length of the source",
        "models/convs2s.py",
        "* HALF * m.sqrt()",
        "* HALF * m",
        "models/test_convs2s.py",
    ),
    Fault(
        "two directions are combined without the frequency of a token",
        "models/directions.py",
        "return ahead + behind - (self.frequency + 1.0).log()",
        "return ahead + behind",
        "verbs/test_directions.py cli/test_cli_directions.py",
    ),
    Fault(
        "the backward model predicts before targets that count for nothing",
        "models/directions.py",
        "predicted.masked_fill(~real | (read == IGNORED), IGNORED)",
        "predicted.masked_fill(~real, IGNORED)",
        "models/test_two_directions.py",
    ),
    Fault(
        "the padding of keys has a loss",
        "objectives/numbers.py",
        "torch.sum(nll.masked_fill(padding, 0.0))",
        "torch.sum(nll)",
        "objectives/test_regression.py objectives/test_classify.py",
    ),
    Fault(
        "music is to be copied, not continued",
        "data/music.py",
        "return Music(steps[:-1], steps[1:])",
        "return Music(steps[:-1], steps[:-1])",
        "data/test_sequences.py",
    ),
    Fault(
        "the validation digits are the first training images",
        "data/mnist.py",
        "train[len(train) - held :], test)",
        "train[:held], test)",
        "data/test_sequences.py",
    ),
    Fault(
        "a clip may move twice in one direction",
        "data/synthetic.py",
        "[name for name in names if name != moves[-1]]",
        "names",
        "data/test_sequences.py",
    ),
    Fault(
        "the last space of a line of PTB is lost",
        "data/running_corpora.py",
        'line.removeprefix(" ") for line',
        'line.removeprefix(" ").replace(" \\n", "\\n") for line',
        "data/test_running_corpora.py",
    ),
    Fault(
        "cells of the ladder get the minutes of the trials too",
        "training/ladder/sequences.py",
        "_limited(changed, minutes * (1 - tuning), seed)",
        "_limited(changed, minutes, seed)",
        "cli/test_cli_sequences.py",
    ),
    # -- images and captions
    Fault(
        "the pixels of the header are not limited",
        "data/images.py",
        "if file.width * file.height > MOST_PIXELS:",
        "if False:",
        "data/test_images.py",
    ),
    Fault(
        "images are not turned upright",
        "data/images.py",
        "image = ImageOps.exif_transpose(file)",
        "image = file",
        "data/test_images.py",
    ),
    Fault(
        "a link in a tar file is followed",
        "data/flickr8k.py",
        "if name in wanted and member.isreg() and not member.issparse() and member.size <= size:",
        "if name in wanted:",
        "data/test_flickr8k.py",
    ),
    Fault(
        "the larger half of an odd padding is on the left",
        "data/efficientnet.py",
        "(width // 2, width - width // 2, height // 2, height - height // 2)",
        "(width - width // 2, width // 2, height - height // 2, height // 2)",
        "data/test_efficientnet.py",
    ),
    Fault(
        "items that share an array have each other's",
        "data/flat.py",
        "array = index if self.arrays is None else self.arrays[index]",
        "array = index",
        "data/test_images.py",
    ),
    Fault(
        "CIDEr-D does not clip",
        "metrics.py",
        "sum(min(weight, b[ngram]) * b[ngram]",
        "sum(weight * b[ngram]",
        "test_caption_metrics.py",
    ),
    Fault(
        "the grid of pointing is counted column by column",
        "metrics.py",
        "np.outer(rows, columns).ravel()",
        "np.outer(columns, rows).ravel()",
        "test_caption_metrics.py",
    ),
    Fault(
        "the positions of a grid are counted column by column",
        "layers/image.py",
        "(self.rows + self.columns).flatten(0, 1)",
        "(self.rows + self.columns).transpose(0, 1).flatten(0, 1)",
        "layers/test_image.py",
    ),
    Fault(
        "the context of Show, Attend and Tell has no gate",
        "models/captioner.py",
        "return torch.sigmoid(self.gate(query)) * context, state",
        "return context, state",
        "models/test_captioner.py",
    ),
    Fault(
        "the mean of the cells counts padding",
        "models/captioner.py",
        "zero_padding(states, real).sum(1) / count",
        "zero_padding(states, real).sum(1) / states.shape[1]",
        "models/test_captioner.py",
    ),
    Fault(
        "the doubly stochastic term counts the steps of padding",
        "objectives/captioning.py",
        "read = (weights * real[..., None]).sum(dim=1)",
        "read = weights.sum(dim=1)",
        "objectives/test_captioning.py",
    ),
    Fault(
        "evaluation moves the baseline of hard attention",
        "objectives/captioning.py",
        "        if self.training:\n            self.mean",
        "        if True:\n            self.mean",
        "objectives/test_captioning.py",
    ),
    Fault(
        "arrays of other shapes share features in the cache",
        "data/images.py",
        'f"{image.shape}".encode() + image.tobytes()',
        "image.tobytes()",
        "data/test_images.py",
    ),
    Fault(
        "held-out combinations are nowhere",
        "data/scenes.py",
        "if part or look not in HELD_OUT",
        "if look not in HELD_OUT",
        "data/test_scenes.py",
    ),
    Fault(
        "a training image of Flickr8k has one caption",
        "data/flickr8k.py",
        "for caption in (one.target, *one.others)]",
        "for caption in (one.target,)]",
        "data/test_flickr8k.py",
    ),
    Fault(
        "the batch norms of the frozen network have torch's epsilon",
        "data/efficientnet.py",
        "nn.BatchNorm2d(outputs, eps=1e-3)",
        "nn.BatchNorm2d(outputs)",
        "data/test_efficientnet.py",
    ),
    Fault(
        "the score of a given caption is no mean",
        "verbs/captioning.py",
        "(total / max(1, len(said)), total,",
        "(total, total,",
        "cli/test_cli_caption.py",
    ),
    Fault(
        "the penalty of CIDEr-D for a length is too strong",
        "metrics.py",
        "(2 * SIGMA**2)",
        "(2 * SIGMA)",
        "test_caption_metrics.py",
    ),
    # -- training
    Fault(
        "gradients are clipped before they are summed over the ranks",
        "training/loop.py",
        "        if ranks.several:\n            ranks.all_reduce([sums, *_gradients(loss_module)])\n",
        "        _clip(loss_module, plan.clip)\n"
        "        if ranks.several:\n            ranks.all_reduce([sums, *_gradients(loss_module)])\n",
        "training/test_parallel.py::test_two_ranks_are_one_that_accumulates_twice_as_much",
    ),
    Fault(
        "of two equal values, the higher loss is better",
        "training/evaluate.py",
        "better = loss < state.best_loss",
        "better = loss > state.best_loss",
        "training/test_evaluate.py",
    ),
    Fault(
        "the objective's own modules are not restored",
        "training/loop.py",
        "            own.load_state_dict(objective)\n",
        "            pass\n",
        "training/test_loop.py",
    ),
    Fault(
        "alignment accuracy reads the weights one row off",
        "training/evaluate.py",
        "table = look.weights[:-1]",
        "table = look.weights[1:]",
        "training/test_evaluate.py",
    ),
    Fault(
        "samples are the first validation examples",
        "training/evaluate.py",
        "some = valid[::stride][: plan.samples]",
        "some = valid[: plan.samples]",
        "training/test_evaluate.py",
    ),
    Fault(
        "micro-batches of a step have the same noise",
        "training/loop.py",
        "seed_noise(plan.seed, 0, number)",
        "seed_noise(plan.seed, 0, step)",
        "training/test_loop.py",
    ),
    # -- verbs, files, pages
    Fault(
        "the dropout of Marian's inner layer is exported as that of its attention",
        "pretrained/marian.py",
        '"attention_dropout": ("attention_dropout", 0.0),\n    "feed_dropout": ("activation_dropout", 0.0),',
        '"attention_dropout": ("activation_dropout", 0.0),\n    "feed_dropout": ("attention_dropout", 0.0),',
        "pretrained/test_export.py::test_each_dropout_is_written_under_its_name",
    ),
    Fault(
        "the dropout of GPT-2's embeddings is exported from that of its attention",
        "pretrained/gpt.py",
        '**their_settings(config, SETTINGS),\n        "embd_pdrop": config.dropout,',
        '**their_settings(config, SETTINGS),\n        "embd_pdrop": config.attention_dropout,',
        "pretrained/test_export.py::test_each_dropout_is_written_under_its_name",
    ),
    Fault(
        "an exported generation_config has no max_length",
        "verbs/exporting.py",
        ', "max_length": model.longest or 512}',
        "}",
        "pretrained/test_export.py::test_one_tokenizer_is_written_once",
    ),
    Fault(
        "source and target of an alignment are swapped",
        "verbs/scoring.py",
        "pieces = Units(source, target, weights)",
        "pieces = Units(target, source, weights)",
        "test_verbs.py::test_a_link_is_the_source_and_the_target_of_the_greatest_weight",
    ),
    Fault(
        "links of an alignment are (target, source)",
        "verbs/scoring.py",
        "sorted(links_from(linked.weights, method))",
        "sorted((j, i) for i, j in links_from(linked.weights, method))",
        "test_verbs.py::test_a_link_is_the_source_and_the_target_of_the_greatest_weight",
    ),
    Fault(
        "the tooltip of a line is not escaped",
        "render/svg.py",
        'tag("title", {}, prefix + describe(matrix.rows[i], matrix.columns[j], weights[at, i, j]))',
        'tag("title", {}, Markup(prefix + describe(matrix.rows[i], matrix.columns[j], weights[at, i, j])))',
        "render/test_view_svg.py",
    ),
    # -- attention, layers
    Fault(
        "the definition has no dropout",
        "attention.py",
        "F.dropout(read, self.dropout, self.training).to",
        "read.to",
        "test_attention.py test_readers.py",
    ),
    Fault(
        "padding is not selected with its rows",
        "attention.py",
        "real = None if self.real is None else self.real[rows]",
        "real = self.real",
        "test_attention.py layers/test_kv_cache.py",
    ),
    Fault(
        "a reader reads where a bias forbids it",
        "attention.py",
        "else table == -math.inf, 0.0)",
        "else table == math.inf, 0.0)",
        "test_readers.py",
    ),
    Fault(
        "two windows join to the wider one",
        "mask.py",
        "min(windows) if windows",
        "max(windows) if windows",
        "test_mask.py",
    ),
    Fault(
        "rows without keys are not cut with the queries",
        "mask.py",
        "empty_rows=cut(self.empty_rows)",
        "empty_rows=self.empty_rows",
        "test_mask.py test_scores.py",
    ),
    Fault(
        "the sign of a relative distance is turned",
        "scores.py",
        "index = (q_at[:, None] - k_at).clamp",
        "index = (k_at - q_at[:, None]).clamp",
        "test_scores.py",
    ),
    Fault(
        "dropout inside the feed-forward layer is left out",
        "layers/transformer.py",
        "self.down(F.dropout(inner, self.dropout, self.training))",
        "self.down(inner)",
        "layers/test_transformer.py",
    ),
    Fault(
        "groups of layers are interleaved",
        "layers/transformer.py",
        "for group in groups for _ in range(self.repeats) for block in group",
        "for _ in range(self.repeats) for group in groups for block in group",
        "layers/test_transformer.py layers/test_init.py",
    ),
    Fault(
        "the gate is not the activated one",
        "layers/transformer.py",
        "self.activation(self.gate(x)) * self.up(x)",
        "self.gate(x) * self.activation(self.up(x))",
        "layers/test_transformer.py",
    ),
    Fault(
        "hidden states of earlier segments are not normalised",
        "layers/transformer.py",
        "earlier = block.attention.memory(block._before(states, block.attention_norm))",
        "earlier = block.attention.memory(states)",
        "layers/test_segment_memory.py",
    ),
    Fault(
        "a row of a mask for all queries is cut with the queries",
        "mask.py",
        "return table if table is None or table.shape[-2] == 1 else table[..., rows, :]",
        "return table if table is None else table[..., rows, :]",
        "test_mask.py",
    ),
    Fault(
        "given values may be NaN at padding",
        "attention.py",
        "values = states if values is None else zero_padding(values, real)",
        "values = states if values is None else values",
        "test_attention.py",
    ),
    Fault(
        "a read of a source continues the one before",
        "attention.py",
        "self.recorder.record_weights(read, None if k_at is None else q_at)",
        "self.recorder.record_weights(read, q_at)",
        "test_recording.py",
    ),
    Fault(
        "layers that share blocks are numbered by block",
        "recording.py",
        "if len(recorded) >= len(alike):",
        "if len(recorded) > len(alike):",
        "test_recording.py",
    ),
    Fault(
        "a capacity may not be as large as the table of positions",
        "layers/tokens.py",
        "capacity > longest:",
        "capacity >= longest:",
        "models/test_settings.py",
    ),
    Fault(
        "a stack without a last norm has one",
        "layers/transformer.py",
        'if shape.norm_place == "pre" and shape.last_norm else None',
        'if shape.norm_place == "pre" else None',
        "models/test_settings.py",
    ),
    Fault(
        "beams share the memory of one hypothesis",
        "layers/kv_cache.py",
        "kept = min(used, self.memory * self.beams)",
        "kept = min(used, self.memory)",
        "layers/test_kv_cache.py",
    ),
    Fault(
        "unrolled layers have no dropout between them",
        "layers/unrolled.py",
        "x = F.dropout(parts[0], rnn.dropout, rnn.training) if depth + 1 < rnn.layers else parts[0]",
        "x = parts[0]",
        "layers/test_recurrent.py",
    ),
    Fault(
        "a block that layers share is divided once for each",
        "layers/init.py",
        "for block in set(layers):",
        "for block in layers:",
        "layers/test_init.py",
    ),
    Fault(
        "the given bias of a class head is ignored",
        "heads.py",
        "bias=not body.causal if self.bias is None else self.bias",
        "bias=not body.causal",
        "models/test_settings.py",
    ),
    Fault(
        "the formula of a token without counts leaves out k",
        "models/bigram.py",
        'if first + self.config.k else f"1',
        'if first else f"1',
        "models/test_bigram.py",
    ),
    Fault(
        "segments of a batch do not reach the body",
        "models/headed.py",
        'real, batch.fields.get("segments")), real)',
        "real), real)",
        "models/test_settings.py",
    ),
    Fault(
        "padding changes the summary of an LSTMN",
        "models/lstmn.py",
        "summary = read if real is None else read.where(real[:, t, None], summary)",
        "summary = read",
        "models/test_lstmn.py",
    ),
    Fault(
        "a resized width is no multiple of the decoder's heads",
        "models/transformer.py",
        "lcm(self.heads, decoder.heads)",
        "self.heads",
        "models/test_settings.py",
    ),
    Fault(
        "sentences that are kept have the padding of others",
        "models/transformer.py",
        "self.mask if pairs is None else replace(self.mask, pairs=pairs[sentences])",
        "self.mask",
        "models/test_settings.py",
    ),
    Fault(
        "the factors of additive logits overflow",
        "kernels/additive.py",
        "MAX_FACTORED = 40.0",
        "MAX_FACTORED = 400.0",
        "kernels/test_additive.py",
    ),
    # -- decoding
    Fault(
        "top_p keeps one token too many",
        "decode/sample.py",
        "before >= self.top_p",
        "before > self.top_p",
        "decode/test_sample.py",
    ),
    Fault(
        "log-probabilities leave out forbidden tokens",
        "decode/sample.py",
        "logits = logits.float()\n        chosen = pick(logits.index_fill(1, forbidden, NEG_INF))",
        "logits = logits.float().index_fill(1, forbidden, NEG_INF)\n        chosen = pick(logits)",
        "decode/test_sample.py",
    ),
    Fault(
        "a beam has no room for forbidden tokens",
        "decode/beam_search.py",
        "min(self.size + 1 + len(self.forbid), logits.shape[1])",
        "min(self.size + 1, logits.shape[1])",
        "decode/test_beam.py",
    ),
    Fault(
        "patience is ignored",
        "decode/beam_search.py",
        "max(nbest, round(self.patience * size))",
        "max(nbest, size)",
        "decode/test_beam.py",
    ),
    Fault(
        "a done sentence gets more results",
        "decode/beam_search.py",
        "masked_fill(~ends | done[:, None], NEG_INF)",
        "masked_fill(~ends, NEG_INF)",
        "decode/test_beam.py",
    ),
    Fault(
        "the gate of a feed-forward layer is lost on a CPU",
        "decode/fast_layers.py",
        "type(layer) is FeedForward and layer.gate is None:",
        "type(layer) is FeedForward:",
        "decode/test_onednn.py",
    ),
    # -- objectives
    Fault(
        "gradients flow into the batch before",
        "objectives/sequence.py",
        "(tensor.detach() for tensor in tensors(after))",
        "tensors(after)",
        "training/test_carried.py objectives/test_sequence.py",
    ),
    Fault(
        "exposure: loss and error are swapped",
        "objectives/sequence.py",
        "forced_loss, forced_error, free_loss, free_error = (",
        "forced_error, forced_loss, free_loss, free_error = (",
        "objectives/test_sequence.py",
    ),
    Fault(
        "the discriminator moves the free-running model",
        "objectives/professor.py",
        "own(free.detach(), free_real)",
        "own(free, free_real)",
        "objectives/test_professor.py",
    ),
    Fault(
        "the discriminator's rows are counted once",
        "objectives/professor.py",
        '"discriminate": 2 * rows',
        '"discriminate": rows',
        "objectives/test_professor.py",
    ),
    # -- optimisers
    Fault(
        "SGD without momentum",
        "training/optim.py",
        "momentum=0.9, fused",
        "momentum=0.0, fused",
        "training/test_loop.py",
    ),
    Fault(
        "the last layer has a decayed rate",
        "training/optim.py",
        "(len(names) - 1 - at)",
        "(len(names) - at)",
        "training/test_layer_groups.py",
    ),
    Fault(
        "a gradient of the objective that is not finite is not noticed",
        "training/loop.py",
        "return norms[0] + sum(0 * other for other in norms[1:])",
        "return norms[0]",
        "training/test_loop.py",
    ),
    # -- data
    Fault(
        "special tokens are masked",
        "data/corruption.py",
        " & ~special[text]\n",
        "\n",
        "data/test_corruption.py",
    ),
    Fault(
        "every epoch masks the same tokens",
        "data/batches.py",
        "(self._seed, step, 1)",
        "(self._seed, place, 1)",
        "data/test_batches.py data/test_corruption.py",
    ),
    Fault(
        "every epoch has the same order",
        "data/batches.py",
        "default_rng((self._seed, epoch))",
        "default_rng((self._seed, 0))",
        "data/test_batches.py",
    ),
    Fault(
        "the digest of a corpus leaves out where examples end",
        "data/batches.py",
        "[(each.ends, each.values, each.arrays) for each",
        "[(each.values, each.arrays) for each",
        "data/test_batches.py",
    ),
    # -- generation, vectors and pictures
    Fault(
        "a beam is ignored",
        "verbs/generating.py",
        "(_search if options.beam > 1 else _decode)(",
        "_decode(",
        "verbs/test_generate.py::test_a_beam_finds_what_greedy_misses",
    ),
    Fault(
        "a tape gets nothing of a generated text",
        "verbs/generating.py",
        "record_forced(model, pairs, BATCH_TOKENS)",
        "pass",
        "verbs/test_generate.py::test_a_tape_gets_one_forced_pass",
    ),
    Fault(
        "the mean of states counts padding",
        "verbs/embedding.py",
        "/ kept.sum(dim=1).clamp(min=1)",
        "/ kept.shape[1]",
        "verbs/test_embed.py",
    ),
    Fault(
        "the length limit of a sentence model is ignored",
        "verbs/embedding.py",
        "for limit in (pooling.longest, model.longest)",
        "for limit in (model.longest,)",
        "verbs/test_embed.py",
    ),
    Fault(
        "attributes are not escaped",
        "render/formatting.py",
        "return escape(value if isinstance(value, str) else str(value))",
        "return str(value)",
        "render/test_view_formatting.py render/test_view_svg.py",
    ),
    Fault(
        "a truncated text is one cell too long",
        "render/formatting.py",
        "> cells - 1:",
        "> cells:",
        "render/test_view_formatting.py render/test_view_terminal.py",
    ),
    Fault(
        "rows with few keys set the colour scale",
        "render/view_data.py",
        "2 * seen >= seen.max(initial=0)",
        "2 * seen >= 0",
        "render/test_view.py",
    ),
    # -- padding, caches, half precision
    Fault(
        "gradients of earlier tokens are lost in a cache",
        "attention.py",
        "return gradient, None, None, gradient.index_select",
        "return None, None, None, gradient.index_select",
        "test_attention.py",
    ),
    Fault(
        "only the memory's own padding is set to zero, not that of the mask",
        "attention.py",
        "if real is None or (self.finite_padding and real is self.real):",
        "if real is None or self.finite_padding:",
        "test_attention.py",
    ),
    Fault(
        "the product of queries and keys is rounded to half precision",
        "scores.py",
        "return at_least_float32(q) @ at_least_float32(k).mT",
        "return at_least_float32(q @ k.mT)",
        "test_scores.py",
    ),
    Fault(
        "the bias is scaled too",
        "scores.py",
        "else self.scale * products + bias",
        "else self.scale * (products + bias)",
        "test_scores.py",
    ),
    Fault(
        "the host does not count the slots in use",
        "layers/kv_cache.py",
        "else self.host_used + count,",
        "else self.host_used,",
        "layers/test_kv_cache.py",
    ),
    Fault(
        "captured steps are not counted",
        "decode/cuda_graph.py",
        "self._steps_left[state] = left - 1",
        "self._steps_left[state] = left",
        "decode/test_cuda_graph.py",
    ),
    # -- the directory of a run
    Fault(
        "a step that is replaced while it is read is returned in part",
        "checkpoint.py",
        "            if _is_at(handle, folder):\n                return found\n",
        "            return found\n",
        "test_checkpoint.py",
    ),
    Fault(
        "an absolute path is inside a directory",
        "file_io.py",
        'return not PurePath(name).is_absolute() and ".." not in PurePath(name).parts',
        'return ".." not in PurePath(name).parts',
        "test_checkpoint.py",
    ),
    Fault(
        "a run is resumed although another process has trained it meanwhile",
        "training/run.py",
        'elif read_pointer(self._folder, "latest") != f"{self.saved:06d}":',
        "elif False:",
        "training/test_run.py::test_of_two_runs_that_were_prepared_together_only_one_is_trained",
    ),
    Fault(
        "the recipe is the first file of a run that is removed",
        "training/folder.py",
        'FILES = ("metrics.jsonl", "latest", "best", "report.html", "recipe.json")',
        'FILES = ("recipe.json", "metrics.jsonl", "latest", "best", "report.html")',
        "training/test_run.py::test_the_recipe_is_removed_last",
    ),
    Fault(
        "the state of a run may be evaluated later than it is saved",
        "training/folder.py",
        '_whole(found["evaluated"]) and found["evaluated"] <= step',
        '_whole(found["evaluated"])',
        "training/test_run.py::test_a_state_or_a_trainer_file_that_does_not_fit_is_refused_by_its_field",
    ),
    # -- texts for a terminal, verbs, files of others
    Fault(
        "8-bit controls reach the terminal",
        "errors.py",
        "\\x7f-\\x9f",
        "\\x7f",
        "cli/test_cli_output.py",
    ),
    Fault(
        "a word ends at an empty example",
        "verbs/running.py",
        "(example.text for example in examples if example.text)",
        "(example.text or ' ' for example in examples)",
        "verbs/test_running.py",
    ),
    Fault(
        "the length limit of a sentence model in a subdirectory is not exported",
        "verbs/pooling.py",
        'name: home / modules["Transformer"] / name for name in LIMITS',
        "name: home / name for name in LIMITS",
        "verbs/test_embed.py",
    ),
    Fault(
        "the settings of generation of a model in memory are lost",
        "pretrained/folder.py",
        '(("config", config), (GENERATION, getattr(module, GENERATION, None)))',
        '(("config", config),)',
        "pretrained/test_memory.py",
    ),
    Fault(
        "words of others are found only in lower case",
        "synonyms.py",
        'word.lower().lstrip("-")',
        'word.lstrip("-")',
        "cli/test_completion.py",
    ),
    Fault(
        "bash completes settings of no recurrent model",
        "cli/completion.py",
        'CELLS = ("rnn", "lstm", "gru")',
        "CELLS = ()",
        "cli/test_completion.py",
    ),
    Fault(
        "align counts layers one too many",
        "cli/align.py",
        "of 0 to {len(layers) - 1}",
        "of 0 to {len(layers)}",
        "verbs/test_looking_transformer.py",
    ),
    Fault(
        "an option that the command lacks is suggested",
        "cli/app.py",
        "found = [option for option in ours(name, OPTIONS) if option in own]",
        "found = [option for option in ours(name, OPTIONS) if option.startswith('--')]",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "out of memory on the host: use the cpu",
        "cli/app.py",
        'if on_gpu else "give',
        'if not on_gpu else "give',
        "cli/test_cli_messages.py",
    ),
    Fault(
        "every report of a large file after ten seconds is a line",
        "cli/console.py",
        "                shown = time.monotonic()\n                console",
        "                console",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "embed numbers every chunk from 1",
        "cli/embed.py",
        "pooling, batch_tokens, first)",
        "pooling, batch_tokens)",
        "cli/test_cli_fill_embed.py",
    ),
    Fault(
        "groups by length are uneven",
        "cli/eval.py",
        "len(ranked) * part // GROUPS]",
        "len(ranked) * part // (GROUPS + 1)]",
        "cli/test_cli_eval.py",
    ),
    Fault(
        "bits per byte and per word swapped in the table",
        "cli/eval_lm.py",
        '("perplexity of a token", "bits per byte", "bits per word",',
        '("perplexity of a token", "bits per word", "bits per byte",',
        "cli/test_cli_eval.py",
    ),
    Fault(
        "all blank prompts: no answers",
        "cli/generate.py",
        "    yield from waiting.items()  # if all lines are blank\n",
        "",
        "cli/test_cli_generate.py",
    ),
    Fault(
        "plan settings of the user do not override a rung's",
        "cli/ladder.py",
        'if setting.startswith("plan.")]',
        'if setting.startswith("plans.")]',
        "cli/test_cli_ladder.py",
    ),
    Fault(
        "a single layer of several heads offers no choice",
        "cli/look.py",
        "if len(view.layers) < 2 and all(",
        "if len(view.layers) < 2 or all(",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "a step in .old is refused",
        "cli/options.py",
        ' or run.parent.name == "steps"):',
        "):",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "log: the number too long is that of examples",
        "cli/progress.py",
        'f", {event.dropped:,} too long"',
        'f", {event.examples:,} too long"',
        "cli/test_cli_messages.py",
    ),
    Fault(
        "the first from= wins",
        "cli/train.py",
        "for setting in reversed(settings) if",
        "for setting in settings if",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "window of no tokens keeps all",
        "verbs/embedding.py",
        "tokens[len(tokens) - most :]",
        "tokens[-most:]",
        "verbs/test_embed.py",
    ),
    Fault(
        "an export has no model_max_length",
        "verbs/exporting.py",
        'if model.longest is not None:\n        settings["model_max_length"] = model.longest',
        "if False:\n        pass",
        "cli/test_cli_export.py",
    ),
    Fault(
        "the tape forgets the opening",
        "verbs/generating.py",
        "if longest + limit + len(model.opening) > model.longest:",
        "if longest + limit > model.longest:",
        "verbs/test_generate.py",
    ),
    Fault(
        "an empty list of pairs cannot be scored",
        "verbs/scoring.py",
        "zip(*texts) if texts else ((), ())",
        "zip(*texts)",
        "test_verbs.py",
    ),
    Fault(
        "doctor counts failures as checks that do not apply",
        "cli/doctor.py",
        "rest = len(findings) - passed - len(failed)",
        "rest = len(findings) - passed",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "a page of explain may not end in .HTML",
        "cli/explain.py",
        'if out is not None and out.suffix.lower() != ".html"',
        'if out is not None and out.suffix != ".html"',
        "cli/test_cli_explain.py",
    ),
    Fault(
        "the JSON of explain has no page",
        "cli/explain.py",
        'print_line({**result.data, "page": out})',
        "print_line({**result.data})",
        "cli/test_cli_explain.py",
    ),
    Fault(
        "a ladder takes no file without a suffix",
        "cli/ladder.py",
        "(Path(what).exists() or Path(what).suffix)",
        "Path(what).suffix",
        "cli/test_cli_ladder.py",
    ),
    Fault(
        "--download and --allow-pickle are swapped",
        "cli/options.py",
        "load(run, device, precision, long, allow_pickle, download, all_kinds())",
        "load(run, device, precision, long, download, allow_pickle, all_kinds())",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "the tokens of all lines are those of the last chunk",
        "cli/score.py",
        "count += sum(len(one.pieces)",
        "count = sum(len(one.pieces)",
        "cli/test_cli_messages.py",
    ),
    Fault(
        "look --head is ignored with --json",
        "cli/look.py",
        "if head is not None and view.layers:",
        "if head is not None and view.layers and not json:",
        "verbs/test_looking_transformer.py",
    ),
    Fault(
        "rows of a tape may be negative",
        "verbs/forced.py",
        "if 0 <= row < most]",
        "if row < most]",
        "test_verbs.py",
    ),
    Fault(
        "labels are not sorted by probability",
        "verbs/labelling.py",
        "dict(sorted(zip(names, probabilities.tolist()), key=lambda item: -item[1]))",
        "dict(zip(names, probabilities.tolist()))",
        "test_verbs.py",
    ),
    Fault(
        "include_prompt=false is accepted",
        "verbs/pooling.py",
        'if prefix and not read_object(pooling).get("include_prompt", True):',
        "if False:",
        "verbs/test_embed.py",
    ),
    Fault(
        "the highest rate is that of the steps that are drawn",
        "cli/show.py",
        "for step in {*steps, max(min(plan.warmup, plan.steps) - 1, 0)}",
        "for step in steps",
        "cli/test_cli_show.py",
    ),
    # -- plans and label files
    Fault(
        "every schedule follows the minutes",
        "training/optim.py",
        "return step if plan.schedule in INDEPENDENT_OF_STEPS else max(step, min(passed, 1.0) * plan.steps)",
        "return max(step, min(passed, 1.0) * plan.steps)",
        "training/test_budget.py",
    ),
    Fault(
        "each rank counts all batches of an epoch",
        "training/prepare.py",
        "len(batches) / encoded / ranks",
        "len(batches) / encoded",
        "training/test_budget.py",
    ),
    Fault(
        "a first line with one word of a header is a header",
        "data/tables.py",
        "HEADER_WORDS.issuperset(first)",
        "HEADER_WORDS.intersection(first)",
        "data/test_warnings.py",
    ),
    # -- pages and calculations
    Fault(
        "the products that are not shown begin one number early",
        "explain/worked.py",
        "return (first * second)[NUMBERS:].sum()",
        "return (first * second)[NUMBERS - 1 :].sum()",
        "explain/test_explain_worked.py",
    ),
    Fault(
        "heads past those that are shown count once",
        "explain/worked.py",
        "rest = rest + product",
        "rest = product",
        "explain/test_explain_worked.py",
    ),
    Fault(
        "the lines that are kept are the strongest of all rows",
        "render/view_data.py",
        "np.lexsort((-intensities.flat[drawn], ranks.flat[drawn]))",
        'np.argsort(-intensities.flat[drawn], kind="stable")',
        "render/test_view.py",
    ),
    Fault(
        "Bahdanau's context is shown before the weights",
        "render/view_data.py",
        '        WEIGHTS,\n        CONTEXT,\n        Stage("state", "State s₍ₜ₎", "of the decoder, computed',
        '        CONTEXT,\n        WEIGHTS,\n        Stage("state", "State s₍ₜ₎", "of the decoder, computed',
        "render/test_view_page.py",
    ),
    Fault(
        "both parts of a character show it whole",
        "render/formatting.py",
        '[visible(character), *["⋯"] * (end - first - 1)]',
        "[visible(character)] * (end - first)",
        "render/test_view_formatting.py",
    ),
    Fault(
        "a line of a chosen head has another head's number",
        "render/svg.py",
        'f"head {list(tables)[at]}, "',
        'f"head {at}, "',
        "render/test_drawn.py",
    ),
    Fault(
        "a curve shows the numbers of too many points",
        "render/charts.py",
        "math.ceil(len(drawn) / MAX_POINTS)",
        "len(drawn) // MAX_POINTS",
        "render/test_drawn.py",
    ),
    Fault(
        "large negative numbers have decimals",
        "render/formatting.py",
        "1000 <= abs(cell) < 1e15",
        "1000 <= cell < 1e15",
        "render/test_drawn.py",
    ),
    Fault(
        "an encoder has decoding steps",
        "render/view.py",
        'chosen[0].part != "encoder" and ',
        "",
        "render/test_view.py",
    ),
    Fault(
        "the ladder's settings of the plan do not come first",
        "report/ladder.py",
        'return sorted(rows, key=lambda row: not row[0].startswith("plan."))',
        "return rows",
        "report/test_report.py",
    ),
    Fault(
        "a duration is not rounded",
        "report/figures.py",
        "divmod(round(seconds), 60)",
        "divmod(int(seconds), 60)",
        "report/test_report.py",
    ),
    Fault(
        "the sharpest head may attend to the word itself",
        "explain/attention.py",
        "*head[query].weights[query + 1 :]",
        "*head[query].weights[query:]",
        "explain/test_explain_attention.py",
    ),
    Fault(
        "a window of a recurrent decoder is not applied by hand",
        "explain/recurrent_by_hand.py",
        "masked_fill(~table[0], -math.inf)",
        "masked_fill(~table[0], 0.0)",
        "cli/test_cli_explain.py",
    ),
    Fault(
        "the connections of a TCN are not dilated",
        "explain/receptive.py",
        "at - tap * 2**block",
        "at - tap",
        "explain/test_explain_receptive.py",
    ),
    Fault(
        "the errors of all positions are not weighted by their targets",
        "explain/forcing.py",
        "sum(e * n for e, n in zip(getattr(one, part), one.count)) / sum(one.count)",
        "sum(getattr(one, part)) / len(one.count)",
        "explain/test_explain_forcing.py",
    ),
    Fault(
        "the layers of a dilated stack have equal dilations",
        "explain/layer_kinds.py",
        "return Convolution(sizes, sizes.kernel**layer)",
        "return Convolution(sizes, sizes.kernel)",
        "explain/test_explain_layers.py",
    ),
    Fault(
        "the final loss is the mean of all steps",
        "explain/experiment.py",
        "max(1, steps // 20)",
        "max(1, steps)",
        "explain/test_explain_training.py",
    ),
    Fault(
        "the heads with the least excess come first",
        "explain/heads.py",
        "getattr(uniform, name) - getattr(strongest[name], name)",
        "getattr(strongest[name], name) - getattr(uniform, name)",
        "explain/test_explain_results.py::test_a_topic_has_the_results_that_it_had[heads]",
    ),
    Fault(
        "attention ahead counts the word itself",
        "explain/masking.py",
        "weights.triu(1).sum()",
        "weights.triu(0).sum()",
        "explain/test_explain_results.py::test_a_topic_has_the_results_that_it_had[masking]",
    ),
    Fault(
        "attention to the symbol two positions later",
        "explain/residuals.py",
        "weights.diagonal(-OFFSET",
        "weights.diagonal(OFFSET",
        "explain/test_explain_results.py::test_a_topic_has_the_results_that_it_had[residuals]",
    ),
    Fault(
        "special tokens with letters are no separators",
        "explain/tokenized.py",
        "token in special_tokens or not any(",
        "not any(",
        "explain/test_explain_training.py",
    ),
    Fault(
        "an encoder of a page has decoding steps",
        "render/page.py",
        'return part != "encoder" and len(',
        "return len(",
        "render/test_view_page.py",
    ),
    Fault(
        "NaN hides the best value of a column",
        "render/formatting.py",
        "return None if cell is None or cell != cell else float(cell)",
        "return None if cell is None else float(cell)",
        "render/test_view_report.py",
    ),
    Fault(
        "a heatmap's largest negative number does not count",
        "report/sections.py",
        "float(np.abs(np.nan_to_num(self.values)).max(initial=0.0))",
        "float(np.nan_to_num(self.values).max(initial=0.0))",
        "render/test_drawn.py",
    ),
    # -- the checks of regard doctor
    Fault(
        "doctor: buffers may be NaN",
        "checks/files.py",
        "for name, each in subject.original.state_dict().items()",
        "for name, each in subject.original.named_parameters()",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: the source's tokenizer is compared with the target's vocabulary",
        "checks/files.py",
        'vocab = calls.source_vocab if name == "source" else calls.vocab',
        "vocab = calls.vocab",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: the weights of the copy are not changed before it is loaded",
        "checks/files.py",
        "each.mul_(-0.5).add_(0.1)",
        "pass",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: only the first output is compared with another future",
        "checks/leaks.py",
        "for at in range(1, texts.tokens.shape[1]):",
        "for at in range(1, 2):",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: padding is never infinite",
        "checks/leaks.py",
        "subject.calls.padding_values if tables",
        "subject.calls.padding_values[:1] if tables",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: the other texts of a batch stay the same",
        "checks/leaks.py",
        "torch.cat([one[:1], two[1:]])",
        "torch.cat([one[:1], one[1:]])",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: only the first copy is compared with a text alone",
        "checks/leaks.py",
        "error = difference(together, torch.cat([alone] * ROWS))",
        "error = difference(together[: len(alone)], alone)",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: gradients of an empty text may be NaN",
        "checks/leaks.py",
        "    elif outputs.requires_grad:",
        "    elif False:",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: only the first step of a cache is compared",
        "checks/decoding.py",
        "return measured(max(steps), subject.bound, where)",
        "return measured(steps[0], subject.bound, where)",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: a beam's sentences may have other scores",
        "checks/decoding.py",
        "error = max(difference(found.scores.to(best.dtype), best), difference(found.scores.to(best.dtype), expected))",
        "error = difference(found.scores.to(best.dtype), best)",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: the parts of a batch may have another count",
        "checks/learning.py",
        "    if missing:",
        "    if False:",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: the state of a resumed trainer is not compared",
        "checks/learning.py",
        "error = max(_apart(again.model.state_dict(), whole.model.state_dict()), _apart(again.state(), whole.state()))",
        "error = _apart(again.model.state_dict(), whole.model.state_dict())",
        "doctor/test_doctor_broken.py",
    ),
    Fault(
        "doctor: padding before a text is not tried",
        "checks/leaks.py",
        "if subject.calls.left_padding:",
        "if False:",
        "doctor/test_doctor_parts.py",
    ),
    Fault(
        "doctor: the tokenizers of source and target change places",
        "checks/adapters.py",
        'names = ("source", "tokens") if',
        'names = ("tokens", "source") if',
        "doctor/test_doctor_parts.py",
    ),
    Fault(
        "doctor: the step from which a cache differs is one too high",
        "checks/decoding.py",
        "for at, error in enumerate(steps) if",
        "for at, error in enumerate(steps, 1) if",
        "doctor/test_doctor_parts.py",
    ),
    Fault(
        "doctor: an empty text may be infinite",
        "checks/leaks.py",
        "if outputs.isnan().any() or (expected.isfinite().all() and not finite.all()):",
        "if outputs.isnan().any():",
        "doctor/test_doctor_parts.py",
    ),
    Fault(
        "doctor: frozen weights are not examined",
        "checks/subject.py",
        "weight.requires_grad_(weight.is_floating_point())",
        "pass",
        "doctor/test_doctor_parts.py",
    ),
    Fault(
        "doctor: a model of counts is resumed",
        "checks/adapters.py",
        'if recipe.model.learns_by == "counts":',
        "if False:",
        "doctor/test_doctor_parts.py",
    ),
    Fault(
        "doctor: every precision has the bound of float32",
        "checks/subject.py",
        "return BOUNDS[self.dtype]",
        "return BOUNDS[torch.float32]",
        "doctor/test_doctor_parts.py",
    ),
    # -- a fresh list: small places of many files
    Fault(
        "an opening bracket is followed by a space",
        "data/detokenize.py",
        "spaced = surface[0] not in CLOSING and before not in OPENING",
        "spaced = surface[0] not in CLOSING",
        "data/test_public.py::test_decoding_restores_text",
    ),
    Fault(
        "a byte order mark alone is no blank line",
        "data/files.py",
        "maybe[0] = True",
        "pass",
        "data/test_large.py",
    ),
    Fault(
        "the first window predicts as few tokens as the others",
        "data/streams.py",
        "np.where(chunk > 0, window - stride, 0)",
        "np.where(chunk >= 0, window - stride, 0)",
        "verbs/test_running.py",
    ),
    Fault(
        "labels of two words beside texts of one word seem swapped",
        "data/sources.py",
        "words[0] > max(3, 2 * words[1])",
        "words[0] >= 2 * words[1]",
        "data/test_warnings.py",
    ),
    Fault(
        "the text of an unknown token has the space before it",
        "data/tokenizers.py",
        "[text[start:stop].strip() or text[start:stop] for",
        "[text[start:stop] for",
        "data/test_tokenizers.py",
    ),
    Fault(
        "a number of float64 that is infinite in the model is finite",
        "file_io.py",
        "(~tensor.float().isfinite()).sum()",
        "(~tensor.isfinite()).sum()",
        "verbs/test_unsafe_models.py",
    ),
    Fault(
        "only a RuntimeError of a build is an error of its settings",
        "layers/init.py",
        "except Exception as error:",
        "except RuntimeError as error:",
        "verbs/test_unsafe_models.py",
    ),
    Fault(
        "plan.epochs may be 0",
        "recipes/recipe.py",
        "not getattr(self, name) > 0:",
        "not getattr(self, name) >= 0:",
        "training/test_budget.py",
    ),
    Fault(
        "an estimate may have no step",
        "training/estimate.py",
        "max(1, round(60 * plan.minutes / per_step))",
        "round(60 * plan.minutes / per_step)",
        "cli/test_cli_train.py::test_dry_run_estimates_and_leaves_nothing",
    ),
    Fault(
        "a module that is replaced is named as not used, too",
        "training/warm_start.py",
        "[name for name in self.unused if name not in self.new]",
        "list(self.unused)",
        "cli/test_cli_train.py::test_a_classifier_is_a_body_under_a_head",
    ),
    Fault(
        "a run under nohup ends with its terminal",
        "training/interrupt.py",
        "if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN",
        "if True",
        "training/test_run.py::test_under_nohup_a_closed_terminal_does_not_end_a_run",
    ),
    Fault(
        "the maximum of an empty text is -∞",
        "verbs/embedding.py",
        "pooled = pooled.masked_fill(~real.any(dim=1)[:, None], 0.0)",
        "pass",
        "verbs/test_embed.py",
    ),
    Fault(
        "files of hidden folders are listed as left out",
        "verbs/exporting.py",
        'any(part.startswith(".") for part in name.parts)',
        'name.name.startswith(".")',
        "verbs/test_embed.py",
    ),
    Fault(
        "unknown tokens of the source are named by the target",
        "verbs/forced.py",
        "model.source_tokenizer.wrap_input(source), texts[0])",
        "model.source_tokenizer.wrap_input(source), texts[1])",
        "verbs/test_looking_transformer.py",
    ),
    Fault(
        "a text without random draws has a seed",
        "verbs/generating.py",
        "return self.seed if self.temperature else None",
        "return self.seed",
        "verbs/test_generate.py",
    ),
    Fault(
        "the only point of a line with gaps is a dot",
        "render/charts.py",
        'if len(drawn) == 1 else "h.01"',
        'if len(points) == 1 else "h.01"',
        "render/test_view_svg.py",
    ),
    Fault(
        "cells of a table have no direction",
        "render/html.py",
        'direction = "auto" if right_to_left(cell) else None',
        "direction = None",
        "render/test_view_report.py",
    ),
    Fault(
        "warnings are printed although the console is quiet",
        "cli/progress.py",
        "for line in () if console.quiet else warnings:",
        "for line in warnings:",
        "cli/test_cli_output.py::test_only_one_rank_prints_warnings",
    ),
    Fault(
        "the bias of a masked key is -∞",
        "explain/by_hand.py",
        "bias = bias.masked_fill(bias == -math.inf, 0.0)",
        "pass",
        "explain/test_explain_attention.py",
    ),
    Fault(
        "a model that advances reads the ids of padding",
        "models/causal.py",
        "tokens.masked_fill(~real.reshape(places.shape), 0).take_along_dim(places, dim=1)",
        "tokens.take_along_dim(places, dim=1)",
        "test_contracts.py::test_the_doctor_finds_no_fault",
    ),
    # -- data, training, public checkpoints
    Fault(
        "a product that is a whole number is rounded up",
        "data/corruption.py",
        "np.ceil(lengths * fraction - ROUNDING)",
        "np.ceil(lengths * fraction)",
        "data/test_corruption.py",
    ),
    Fault(
        "the cache is searched before the data folder",
        "data/files.py",
        "for folder in (data_folder(), cache_folder()) if",
        "for folder in (cache_folder(), data_folder()) if",
        "data/test_download.py",
    ),
    Fault(
        "a header with a comma and a semicolon is split at semicolons",
        "data/tables.py",
        'if ";" in unquoted and "," not in unquoted',
        'if ";" in unquoted',
        "data/test_tables.py",
    ),
    Fault(
        "a validation text has any number of lanes",
        "data/streams.py",
        "lanes = min(max(targets // (VALID_ROWS * window * LEAST_WINDOWS), 1), VALID_LANES)",
        "lanes = max(targets // (VALID_ROWS * window * LEAST_WINDOWS), 1)",
        "data/test_streams.py",
    ),
    Fault(
        "an estimate compares minutes with seconds",
        "training/estimate.py",
        "60 * plan.minutes < per_step * length:",
        "plan.minutes < per_step * length:",
        "training/test_evaluate.py",
    ),
    Fault(
        "targets are truncated one token early for their attention",
        "training/evaluate.py",
        "wrap_target([])) + 1",
        "wrap_target([]))",
        "training/test_evaluate.py",
    ),
    Fault(
        "adam has weight decay",
        "training/optim.py",
        'decay = 0.0 if plan.optimizer == "adam" else plan.decay',
        "decay = plan.decay",
        "training/test_loop.py",
    ),
    Fault(
        "the kinds of given tokenizers are swapped",
        "training/warm_start.py",
        '"source_tokens": source.kind,\n        "target_tokens": target.kind',
        '"source_tokens": target.kind,\n        "target_tokens": source.kind',
        "training/test_warm_start.py::test_the_data_has_the_settings_of_the_tokenizers_that_are_given",
    ),
    Fault(
        "classes have the order of config.json",
        "pretrained/checkpoint_type.py",
        "return tuple(str(named[number]) for number in numbers)",
        "return tuple(map(str, named.values()))",
        "pretrained/test_classifiers.py::test_classes_are_named_in_the_order_of_their_numbers",
    ),
    Fault(
        "CTranslate2 never adds a prefix to a source",
        "pretrained/ct2.py",
        "config.add_source_bos = prefix is not None",
        "config.add_source_bos = False",
        "pretrained/test_export.py::test_ctranslate2_reads_which_special_tokens_are_added_to_a_source",
    ),
    Fault(
        "links of characters are accepted for a target of words",
        "data/corruption.py",
        '(("source", source), ("target", target))',
        '(("source", source),)',
        "data/test_links.py",
    ),
    Fault(
        "the smaller limit of a packed file counts",
        "data/files.py",
        "max(MOST_UNPACKED, MOST_RATIO",
        "min(MOST_UNPACKED, MOST_RATIO",
        "data/test_hostile_files.py",
    ),
    Fault(
        "a packed file that changed a moment ago is cached",
        "data/text_files.py",
        '        if began - before.st_mtime_ns > MIN_AGE:\n            _write_entry(entry, before, {"text"',
        '        if True:\n            _write_entry(entry, before, {"text"',
        "data/test_text_files.py",
    ),
    Fault(
        "a graph of other text is replayed for contiguous text",
        "training/capture.py",
        "unpadded, batch.segment is None",
        "unpadded",
        "training/test_capture.py",
    ),
    Fault(
        "a corruption is the same in all batches of an evaluation",
        "training/evaluate.py",
        "np.random.default_rng((0, number))",
        "np.random.default_rng((0, 0))",
        "training/test_evaluate.py",
    ),
    Fault(
        "a gradient that is not finite is accepted",
        "training/loop.py",
        "math.isfinite(step.loss + (step.norm or 0.0))",
        "math.isfinite(step.loss)",
        "training/test_loop.py",
    ),
    Fault(
        "a warm-up as long as the run has no warning",
        "training/prepare.py",
        "if plan.warmup >= plan.steps and",
        "if plan.warmup > plan.steps and",
        "training/test_budget.py::test_a_warm_up_as_long_as_the_run_has_a_warning",
    ),
    Fault(
        "a floor above the ratio is accepted",
        "objectives/sequence.py",
        "if not 0 <= self.floor <= self.ratio:",
        "if not 0 <= self.floor <= 1:",
        "objectives/test_sequence.py",
    ),
    Fault(
        "the mask may be generated",
        "data/tokenizers.py",
        "found = {self.pad, self.bos, self.mask, self.unk} - ",
        "found = {self.pad, self.bos, self.unk} - ",
        "data/test_tokenizers.py",
    ),
    # -- AWD-LSTM and ULMFiT
    Fault(
        "weight drop is drawn again at every padded step",
        "models/recurrent_lm.py",
        "self.rnn.step(read, hidden, noise)",
        "self.rnn.step(read, hidden, self.rnn.noise(len(x), x))",
        "layers/test_weight_drop.py",
    ),
    Fault(
        "weight drop is ignored by the fused kernels",
        "layers/recurrent.py",
        "fused(self.cell, x, parts, noise.weights[depth])",
        "fused(self.cell, x, parts, self.weights(depth))",
        "layers/test_weight_drop.py",
    ),
    Fault(
        "embedding dropout drops occurrences, not words",
        "models/recurrent_lm.py",
        "dropout_mask(x, (config.vocab,), config.embedding_dropout)[tokens][..., None]",
        "dropout_mask(x, (*tokens.shape, 1), config.embedding_dropout)",
        "layers/test_weight_drop.py",
    ),
    Fault(
        "activation regularisation reads the states before dropout",
        "objectives/regularised.py",
        "regularisation(product.x, features,",
        "regularisation(features, features,",
        "objectives/test_regularised.py",
    ),
    Fault(
        "the trigger looks at all evaluations",
        "training/optim.py",
        "self.losses[: len(self.losses) - self.trigger]",
        "self.losses[:]",
        "training/test_averaged_sgd.py",
    ),
    Fault(
        "the averaged weights are not saved",
        "training/run.py",
        "        with self._averaged():\n            training",
        "        with nullcontext():\n            training",
        "training/test_averaged_sgd.py",
    ),
    Fault(
        "a classifier does not start from the tuned language model",
        "training/run.py",
        "        self.transfer = warm_start_from(tuning.out, self.kinds).load_into(self.model, self.recipe)\n",
        "",
        "training/test_tuning.py",
    ),
)


@contextmanager
def copied_package() -> Iterator[Path]:
    """The folder `src` of a copy, with the documentation beside it, to which pages have links."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src/regard", Path(folder) / "src/regard", ignore=shutil.ignore_patterns("__pycache__"))
        (Path(folder) / "docs").symlink_to(ROOT / "docs")
        yield Path(folder) / "src"


def try_fault(fault: Fault) -> tuple[str, str]:
    """Put the fault into a copy of the package: "noticed" and the test that failed, or what happened instead."""
    with copied_package() as source:
        path = source / "regard" / fault.file
        text = path.read_text(encoding="utf-8")
        if text.count(fault.old) != 1:
            return "not there", f"the old text occurs {text.count(fault.old)} times in {fault.file}"
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        code, output = run_tests(source, fault.tests.split())
    failed = re.search(r"^FAILED tests/(\S+)", output, re.MULTILINE)
    if code == 1 and failed:
        return "noticed", failed[1]
    return ("not noticed", "all tests pass") if code == 0 else ("broken", output.strip().splitlines()[-1])


def run_tests(source: Path, tests: Sequence[str]) -> tuple[int, str]:
    """The exit status and the output of tests of the package in a folder; 124 if they take too long."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", "--no-header"]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"the tests take more than {SECONDS} seconds"
    return done.returncode, done.stdout + done.stderr


def main() -> int:
    """Try the faults, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="faults whose names contain one of these words")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="faults that are tried at the same time")
    given = parser.parse_args()
    faults = [one for one in FAULTS if not given.only or any(word in one.name for word in given.only)]
    if not faults:
        parser.error(f"no such fault: {' '.join(given.only)}")
    with ThreadPoolExecutor(given.jobs) as pool:
        found = []
        for fault, (verdict, detail) in zip(faults, pool.map(try_fault, faults)):
            print(f"{verdict:12} {fault.name} ({fault.file}): {detail}", flush=True)
            found.append(verdict)
    tests = sorted({test for fault in faults for test in fault.tests.split()})
    with copied_package() as source:  # a test that fails in any copy notices nothing
        code, output = run_tests(source, tests)
    if code:
        print(f"without a fault: {output.strip().splitlines()[-1]}")
    print(f"done: {found.count('noticed')} of {len(faults)} faults are noticed")
    return int(bool(code) or found.count("noticed") < len(faults))


if __name__ == "__main__":
    sys.exit(main())
