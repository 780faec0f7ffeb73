"""Sample data: five people with an alphabet of their own each, and something to do."""

from __future__ import annotations

import datetime
from typing import Final
from zoneinfo import ZoneInfo

from examples.todo_app.days import now_in
from examples.todo_app.models import Language, Priority
from examples.todo_app.todo import Todo

PEOPLE: Final[tuple[tuple[str, str, Language, str, str], ...]] = (
    ("Astrid", "Europe/Stockholm", "sv", "Handla",
     "Äpplen;Ägg;Ål;Ärtor;Öl;Ost;Apelsiner;Zucchini;Åkerbär;Vetemjöl"),
    ("Jürgen", "Europe/Berlin", "de", "Einkaufen",
     "Äpfel;Öl;Zwiebeln;Apfelsaft;Ostereier;Übersee-Tee;Uhu;Ähren;Zimt;Oliven"),
    ("Božena", "Europe/Prague", "cs", "Nakoupit",
     "Chléb;Cibule;Hrách;Čaj;Džus;Šunka;Sůl;Žampiony;Zelí;Ředkvičky"),
    ("Íñigo", "America/Mexico_City", "es", "Comprar",
     "Ñoquis;Naranjas;Nueces;Ñame;Ostras;Nata;Manzanas;Plátanos;Nísperos;Oliva"),
    ("Ada", "Europe/London", "en", "Shopping",
     "Zucchini;apples;Éclairs;eggs;Oats;naïve wine;Nectarines;Earl Grey;Ölbaum soap;rice"),
)  # fmt: skip

BOOKS: Final = """
Middlemarch;Bleak House;Ulysses;Emma;Persuasion;Dracula;Walden;Candide;Germinal;Nana;
Les Misérables;Père Goriot;Émile;Faust;Effi Briest;Der Prozess;Buddenbrooks;Steppenwolf;Siddhartha;
War and Peace;Anna Karenina;The Idiot;Dead Souls;Oblomov;Fathers and Sons;The Seagull;We;Solaris;
Don Quijote;La Regenta;Niebla;Ficciones;Rayuela;Pedro Páramo;Hopscotch;The Good Soldier Švejk;
R.U.R.;The Trial;Röda rummet;Gösta Berlings saga;Doktor Glas;Pippi Långstrump;Hunger;Pan;Peer Gynt;
Kristin Lavransdatter;Niels Lyhne;Beowulf;Hamlet;King Lear;The Tempest;Paradise Lost;Frankenstein"""

ERRANDS: Final[tuple[tuple[str, int | None, Priority, tuple[str, ...], int | None], ...]] = (
    ("Call the dentist", -2, "high", ("phone",), 9),
    ("Send the invoice", -1, "high", ("work",), None),
    ("Water the tomatoes", 0, "normal", ("garden", "weekly"), 18),
    ("Buy a present for the wedding", 0, "high", ("family",), None),
    ("Return the library books", 1, "normal", ("town",), None),
    ("Repair the bicycle", 3, "normal", ("garden", "tools"), 15),
    ("Book the ferry", 5, "high", ("travel",), 12),
    ("Sort the photographs", 12, "low", ("family",), None),
    ("Renew the passport", 40, "normal", ("travel", "town"), 10),
    ("Learn to juggle", None, "low", (), None),
    ("Paint the shed", None, "low", ("garden",), None),
)


def load(todo: Todo) -> None:
    """All of it in one transaction: there is none, or it is whole."""

    def add() -> None:
        if todo.users.order_by("id").first() is None:
            for person in PEOPLE:
                _add_person(todo, *person)

    todo.db.run(add)


def _add_person(
    todo: Todo, name: str, zone: str, language: Language, shopping: str, wanted: str
) -> None:
    user = todo.users.insert(name=name, zone=zone, language=language)
    errands = todo.lists.insert(owner=user.id, title="Around the house")
    today = now_in(user.zone).date()
    for title, days, priority, labels, hour in ERRANDS:
        due = None if days is None else today + datetime.timedelta(days)
        reminder = None
        if due is not None and hour is not None:
            on_the_clock = datetime.time(hour, tzinfo=ZoneInfo(user.zone))
            reminder = datetime.datetime.combine(due, on_the_clock)
        todo.add_item(
            user,
            errands.id,
            title,
            due=due,
            priority=priority,
            reminder=reminder,
            labels=labels,
        )
    bought = todo.lists.insert(owner=user.id, title=shopping)
    todo.items.insert_many({"list": bought.id, "title": word} for word in wanted.split(";"))
    books = todo.lists.insert(owner=user.id, title="Books to read")
    todo.items.insert_many(
        {"list": books.id, "title": title, "priority": "low", "done": at % 7 == 3}
        for at, title in enumerate(BOOKS.replace("\n", "").split(";"))
    )
    todo.users.update(user.id, home=errands.id)
