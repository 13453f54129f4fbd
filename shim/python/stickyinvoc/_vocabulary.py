"""Tokenizers from a state's assets: its compiled vocabulary (weights/vocabulary.cc has the table)
read back into what the packages tokenizers and transformers take."""

import struct

from ._errors import Corrupt, NotFound

_HEADER = struct.Struct("<QQ8I8Q")
_MAGIC = 0x31304D4C4F565453
_NONE = 0xFFFFFFFF
_SPECIAL, _ADDED = 1, 2  # flags of a token
_NORMALIZE_NFC, _IGNORE_MERGES, _ADD_PREFIX_SPACE, _ADD_BOS, _ADD_EOS = 1, 2, 4, 8, 16
# The alphabet in which byte-level tokenizers write the 256 bytes, as weights/byte_alphabet.h.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]
_ALPHABET = {
    **{byte: chr(byte) for byte in _PRINTABLE},
    **{byte: chr(256 + place) for place, byte in enumerate(_OTHERS)},
}


class Vocabulary:
    """A compiled vocabulary: bytes of each token, merges in order, and how text is split."""

    def __init__(self, data):
        if len(data) < _HEADER.size:
            raise Corrupt("read a vocabulary: it is shorter than its header")
        (magic, size, self.flags, count, _, merge_slots, _, splits, bos, eos,
         ends_at, flags_at, text_at, _, merges_at, _, split_ends_at, split_text_at
         ) = _HEADER.unpack_from(data)  # fmt: skip
        if magic != _MAGIC or size != len(data):
            raise Corrupt("read a vocabulary: another version made it, or it is not whole")
        try:
            self.tokens = _texts(data, count, ends_at, text_at)
            self.kinds = struct.unpack_from(f"<{count}B", data, flags_at)
            patterns = _texts(data, splits, split_ends_at, split_text_at)
            slots = struct.iter_unpack("<4I", data[merges_at : merges_at + 16 * merge_slots])
            merges = sorted((rank, left, right) for left, right, rank, _ in slots if rank != _NONE)
        except struct.error:
            raise Corrupt("read a vocabulary: a section lies outside") from None
        self.merges = [(left, right) for _, left, right in merges]
        self.patterns = [pattern.decode() for pattern in patterns]
        self.bos = None if bos == _NONE else bos
        self.eos = None if eos == _NONE else eos


def _texts(data, count, ends_at, text_at):
    ends = struct.unpack_from(f"<{count}I", data, ends_at)
    starts = (0, *ends[:-1])
    return [bytes(data[text_at + begin : text_at + end]) for begin, end in zip(starts, ends)]


def _written(token):
    return "".join(_ALPHABET[byte] for byte in token)


def _model(vocabulary, tokenizers):
    """Byte-level BPE with the vocabulary's merges, and its added tokens."""
    plain = {}
    for token_id, (token, kind) in enumerate(zip(vocabulary.tokens, vocabulary.kinds)):
        if not kind & _ADDED:
            plain.setdefault(_written(token), token_id)
        else:
            plain.setdefault(token.decode(errors="replace"), token_id)
    written = [_written(token) for token in vocabulary.tokens]
    model = tokenizers.models.BPE(
        vocab=plain,
        merges=[(written[left], written[right]) for left, right in vocabulary.merges],
        ignore_merges=bool(vocabulary.flags & _IGNORE_MERGES),
    )
    tokenizer = tokenizers.Tokenizer(model)
    for token, kind in zip(vocabulary.tokens, vocabulary.kinds):
        if kind & _ADDED:
            special = bool(kind & _SPECIAL)
            added = tokenizers.AddedToken(token.decode(), normalized=False, special=special)
            (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([added])
    return tokenizer


def _tokenizer(vocabulary, tokenizers):
    tokenizer = _model(vocabulary, tokenizers)
    if vocabulary.flags & _NORMALIZE_NFC:
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    steps = [
        # PCRE2 writes a code point with \x{..}, as Oniguruma does, and white space as a property.
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
        for pattern in vocabulary.patterns
    ]
    prefix = bool(vocabulary.flags & _ADD_PREFIX_SPACE)
    steps.append(tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    ends = [(_ADD_BOS, vocabulary.bos), (_ADD_EOS, vocabulary.eos)]
    before, after = [token if vocabulary.flags & flag else None for flag, token in ends]
    special = [(vocabulary.tokens[i].decode(), i) for i in (before, after) if i is not None]
    if special:
        words = [vocabulary.tokens[before].decode()] if before is not None else []
        last = [vocabulary.tokens[after].decode()] if after is not None else []
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
            single=[*words, "$A", *last],
            pair=[*words, "$A:0", *last, *(f"{word}:1" for word in words), "$B:1",
                  *(f"{word}:1" for word in last)],
            special_tokens=special,
        )  # fmt: skip
    return tokenizer


def make_tokenizer(state, config):
    """A PreTrainedTokenizerFast. Raises NotFound when the state has none, Corrupt."""
    import tokenizers
    import transformers

    assets = set(state.asset_names())
    options = {
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if "tokenizer.json" in assets:
        made = tokenizers.Tokenizer.from_str(bytes(state.asset("tokenizer.json")).decode())
        ends = (config.get("bos_token_id"), config.get("eos_token_id"))
    elif "vocabulary" in assets:
        vocabulary = Vocabulary(state.asset("vocabulary"))
        made = _tokenizer(vocabulary, tokenizers)
        ends = (vocabulary.bos, vocabulary.eos)
    else:
        raise NotFound(
            f"make the tokenizer of '{state.info.name}': it has neither a vocabulary nor a"
            " tokenizer.json; `stickyctl show` may tell why"
        )
    pad = config.get("pad_token_id")
    for word, token in (("bos_token", ends[0]), ("eos_token", ends[1]), ("pad_token", pad)):
        if isinstance(token, int) and made.id_to_token(token) is not None:
            options[word] = made.id_to_token(token)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **options)
    if "chat_template" in assets:
        tokenizer.chat_template = bytes(state.asset("chat_template")).decode()
    return tokenizer
