"""A shop of eleven tables, like Chinook: made with SQLAlchemy, on any engine, of any size.

It has what other databases have: names in capitals, a reference of a table to itself, keys of
several columns, a table between two others, decimals, dates, an enum, checks, defaults and indexes.
"""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Any

import sqlalchemy as sa

METADATA = sa.MetaData()
NOW = datetime.datetime(2024, 5, 31, 10)


class Kind(enum.StrEnum):
    audio = "audio"
    video = "video"


def _id(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, primary_key=True)


ARTIST = sa.Table("Artist", METADATA, _id("ArtistId"), sa.Column("Name", sa.String(120)))
GENRE = sa.Table(
    "Genre",
    METADATA,
    _id("GenreId"),
    sa.Column("Name", sa.String(120), nullable=False, unique=True),
)
MEDIA_TYPE = sa.Table(
    "MediaType",
    METADATA,
    _id("MediaTypeId"),
    sa.Column("Name", sa.String(120)),
    sa.Column("Kind", sa.Enum(Kind, name="media_kind"), nullable=False, server_default="audio"),
)
ALBUM = sa.Table(
    "Album",
    METADATA,
    _id("AlbumId"),
    sa.Column("Title", sa.String(160), nullable=False, index=True),
    sa.Column("ArtistId", sa.ForeignKey("Artist.ArtistId", ondelete="CASCADE"), nullable=False),
)
TRACK = sa.Table(
    "Track",
    METADATA,
    _id("TrackId"),
    sa.Column("Name", sa.String(200), nullable=False),
    sa.Column("AlbumId", sa.ForeignKey("Album.AlbumId", ondelete="SET NULL")),
    sa.Column("MediaTypeId", sa.ForeignKey("MediaType.MediaTypeId"), nullable=False),
    sa.Column("GenreId", sa.ForeignKey("Genre.GenreId")),
    sa.Column("Milliseconds", sa.Integer, nullable=False),
    sa.Column("UnitPrice", sa.Numeric(10, 2), nullable=False, server_default="0.99"),
    sa.Column("Released", sa.Date),
    sa.CheckConstraint('"Milliseconds" >= 0', name="no_negative_time"),
)
PLAYLIST = sa.Table("Playlist", METADATA, _id("PlaylistId"), sa.Column("Name", sa.String(120)))
PLAYLIST_TRACK = sa.Table(
    "PlaylistTrack",
    METADATA,
    sa.Column("PlaylistId", sa.ForeignKey("Playlist.PlaylistId"), primary_key=True),
    sa.Column("TrackId", sa.ForeignKey("Track.TrackId"), primary_key=True),
)
EMPLOYEE = sa.Table(
    "Employee",
    METADATA,
    _id("EmployeeId"),
    sa.Column("LastName", sa.String(20), nullable=False),
    sa.Column("ReportsTo", sa.ForeignKey("Employee.EmployeeId")),
    sa.Column("HireDate", sa.DateTime),
    sa.Column("Photo", sa.LargeBinary),
    sa.Column("Active", sa.Boolean, nullable=False, server_default=sa.true()),
)
CUSTOMER = sa.Table(
    "Customer",
    METADATA,
    _id("CustomerId"),
    sa.Column("Email", sa.String(60), nullable=False, unique=True),
    sa.Column("Country", sa.String(40)),
    sa.Column("SupportRepId", sa.ForeignKey("Employee.EmployeeId")),
    sa.Column("Score", sa.Float),
    sa.Column("Settings", sa.JSON),
)
INVOICE = sa.Table(
    "Invoice",
    METADATA,
    sa.Column("Country", sa.String(2), primary_key=True),
    sa.Column("Number", sa.Integer, primary_key=True),
    sa.Column("CustomerId", sa.ForeignKey("Customer.CustomerId"), nullable=False),
    sa.Column("InvoiceDate", sa.DateTime, nullable=False, server_default=sa.func.now()),
    sa.Column("Total", sa.Numeric(10, 2), nullable=False),
    sa.CheckConstraint("\"Country\" IN ('AT', 'DE', 'CH')", name="known_country"),
)
INVOICE_LINE = sa.Table(
    "InvoiceLine",
    METADATA,
    _id("InvoiceLineId"),
    sa.Column("InvoiceCountry", sa.String(2), nullable=False),
    sa.Column("InvoiceNumber", sa.Integer, nullable=False),
    sa.Column("TrackId", sa.ForeignKey("Track.TrackId"), nullable=False),
    sa.Column("Quantity", sa.Integer, nullable=False, server_default="1"),
    sa.ForeignKeyConstraint(
        ["InvoiceCountry", "InvoiceNumber"], ["Invoice.Country", "Invoice.Number"]
    ),
)


def fill(address: str, size: int = 40) -> sa.Engine:
    """Make the tables and their rows: `size` tracks, and as many of the others as go with them."""
    engine = sa.create_engine(address)
    METADATA.create_all(engine)
    with engine.begin() as connection:
        for table, rows in _rows(size).items():
            if rows:
                connection.execute(table.insert(), rows)
    return engine


def _rows(size: int) -> dict[sa.Table, list[dict[str, Any]]]:
    numbers, few = range(1, size + 1), range(1, size // 4 + 1)
    day = datetime.date(2024, 1, 1)
    lands = ("AT", "DE", "CH")
    return {
        ARTIST: [{"ArtistId": n, "Name": f"Björk {n} 🎵" if n % 3 else None} for n in few],
        GENRE: [{"GenreId": n, "Name": f"genre {n}"} for n in range(1, 6)],
        MEDIA_TYPE: [
            {"MediaTypeId": n, "Name": f"type {n}", "Kind": kind} for n, kind in enumerate(Kind, 1)
        ],
        ALBUM: [{"AlbumId": n, "Title": f"album {n}", "ArtistId": n} for n in few],
        TRACK: [
            {
                "TrackId": n,
                "Name": f"track {n}",
                "AlbumId": n % len(few) + 1 if n % 5 else None,
                "MediaTypeId": n % 2 + 1,
                "GenreId": n % 5 + 1 if n % 7 else None,
                "Milliseconds": n * 1_000,
                "UnitPrice": decimal.Decimal(n) / 100,
                "Released": day + datetime.timedelta(days=n) if n % 4 else None,
            }
            for n in numbers
        ],
        PLAYLIST: [{"PlaylistId": n, "Name": f"list {n}"} for n in range(1, 4)],
        PLAYLIST_TRACK: [
            {"PlaylistId": p, "TrackId": n} for p in range(1, 4) for n in numbers if n % p == 0
        ],
        # Employees report to later ones.
        EMPLOYEE: [
            {
                "EmployeeId": n,
                "LastName": f"name {n}",
                "ReportsTo": n + 1 if n < 8 else None,
                "HireDate": NOW + datetime.timedelta(hours=n, microseconds=n),
                "Photo": bytes([n]) * n,
                "Active": n % 2 == 0,
            }
            for n in range(8, 0, -1)
        ],
        CUSTOMER: [
            {
                "CustomerId": n,
                "Email": f"c{n}@example.org",
                "Country": lands[n % 3],
                "SupportRepId": n % 8 + 1,
                "Score": n / 3,
                "Settings": {"n": [n, None, "ü"]} if n % 2 else None,
            }
            for n in few
        ],
        INVOICE: [
            {
                "Country": lands[n % 3],
                "Number": n,
                "CustomerId": n % len(few) + 1,
                "InvoiceDate": NOW + datetime.timedelta(days=n),
                "Total": decimal.Decimal("1.10") * n,
            }
            for n in numbers
        ],
        INVOICE_LINE: [
            {
                "InvoiceLineId": n,
                "InvoiceCountry": lands[n % 3],
                "InvoiceNumber": n,
                "TrackId": size + 1 - n,
                "Quantity": n % 3 + 1,
            }
            for n in numbers
        ],
    }
