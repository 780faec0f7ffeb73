"""Records: wire layout, generated codecs, and conversion between layouts."""

from zapdb.records.attachments import Archive, Attachments, MakeAttachments, ReadConflict
from zapdb.records.codec import Codec, Decode, codec_for, decoder_of
from zapdb.records.conversion import Conversion, compile_conversion
from zapdb.records.derivation import (
    Archives,
    Computed,
    Constant,
    ConversionPlan,
    Derivation,
    Derivations,
    Recast,
    Restored,
    SourceField,
    compose,
    compose_archives,
    copied_from,
)
from zapdb.records.layout import (
    NO_REVISION,
    Layout,
    Slot,
    decode_prefix,
    encode_prefix,
    group_by_revision,
)
from zapdb.records.owned import FindBlobs, OwnedBlobs, compile_find
from zapdb.records.reader import PagedRow, PagedRows, RecordReader
from zapdb.records.record import (
    Record,
    follow,
    held,
    load_all,
    load_through,
    new_blobs,
    raw_value,
    record_class,
)
from zapdb.values import asdict, etag, replace, to_json

__all__ = [
    "NO_REVISION",
    "Archive",
    "Archives",
    "Attachments",
    "Codec",
    "Computed",
    "Constant",
    "Conversion",
    "ConversionPlan",
    "Decode",
    "Derivation",
    "Derivations",
    "FindBlobs",
    "Layout",
    "MakeAttachments",
    "OwnedBlobs",
    "PagedRow",
    "PagedRows",
    "ReadConflict",
    "Recast",
    "Record",
    "RecordReader",
    "Restored",
    "Slot",
    "SourceField",
    "asdict",
    "codec_for",
    "compile_conversion",
    "compile_find",
    "compose",
    "compose_archives",
    "copied_from",
    "decode_prefix",
    "decoder_of",
    "encode_prefix",
    "etag",
    "follow",
    "group_by_revision",
    "held",
    "load_all",
    "load_through",
    "new_blobs",
    "raw_value",
    "record_class",
    "replace",
    "to_json",
]
