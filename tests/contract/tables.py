"""The tables that the contract tests work on, as operations of migrations."""

from __future__ import annotations

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: title, type: string},
      {name: size, type: integer, default: 0},
      {name: note, type: string, optional: true}]}"""

ADD_COLOR = "add_field: {table: items, field: {name: color, type: string, default: red}}"
ADD_WEIGHT = "add_field: {table: items, field: {name: weight, type: integer, default: 7}}"
DROP_NOTE = "drop_field: {table: items, field: note, restore: {value: dropped}}"
RENAME_SIZE = "rename_field: {table: items, field: size, to: extent}"
INDEX_SIZE = "create_index: {table: items, index: by_size, fields: [{field: size}]}"
INDEX_TITLE = """\
create_index: {table: items, index: by_title, fields: [
      {field: title, collation: {locale: und}}]}"""
