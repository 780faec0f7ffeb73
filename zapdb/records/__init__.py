"""Records: wire layout, generated codecs, and conversion between layouts."""

from zapdb.records.codec import Codec, Decode, codec_for, decoder_of
from zapdb.records.conversion import Conversion, compile_conversion
from zapdb.records.derivation import (
    Computed,
    Constant,
    Derivation,
    Derivations,
    Input,
    compose,
)
from zapdb.records.layout import RECORD_FORMAT, Layout, Slot, decode_prefix, encode_prefix
from zapdb.records.reader import RecordReader
from zapdb.records.record import Record, asdict, make_record_class, record_class

__all__ = [
    "RECORD_FORMAT",
    "Codec",
    "Computed",
    "Constant",
    "Conversion",
    "Decode",
    "Derivation",
    "Derivations",
    "Input",
    "Layout",
    "Record",
    "RecordReader",
    "Slot",
    "asdict",
    "codec_for",
    "compile_conversion",
    "compose",
    "decode_prefix",
    "decoder_of",
    "encode_prefix",
    "make_record_class",
    "record_class",
]
