"""Records that come with those that they refer to."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from tests.support import Workspace
from zapdb import asdict
from zapdb.errors import UnknownField, UsageError
from zapdb.limits import INCLUDE_RECORDS_MAX
from zapdb.records import follow, replace
from zapdb.storage import Connection

COUNTRIES = """\
create_table: {table: countries, key: [code], fields: [
      {name: code, type: string}, {name: name, type: string}]}"""
AUTHORS = """\
create_table: {table: authors, key: [id, part], fields: [
      {name: id, type: integer}, {name: part, type: integer}, {name: name, type: string},
      {name: country, type: reference, to: countries, optional: true},
      {name: friend, type: reference, to: authors, optional: true}]}"""
POSTS = """\
create_table: {table: posts, key: [id], fields: [
      {name: id, type: integer}, {name: title, type: string},
      {name: author, type: reference, to: authors, optional: true},
      {name: editor, type: reference, to: authors, optional: true}]}"""
COUNT = 700


def start(workspace: Workspace) -> Any:
    workspace.write(1, COUNTRIES, AUTHORS, POSTS)
    db = workspace.open()
    db.table("countries").insert_many({"code": c, "name": c.upper()} for c in ("se", "at"))
    db.table("authors").insert_many(
        {
            "id": n,
            "part": n % 2,
            "name": f"author {n}",
            "country": ("se", "at", None)[n % 3],
            "friend": (n - 1, (n - 1) % 2) if n else None,
        }
        for n in range(40)
    )
    db.table("posts").insert_many(
        {
            "id": n,
            "title": f"post {n}",
            "author": None if n % 10 == 9 else (n % 50, n % 2),  # 40 to 49 are not there
            "editor": (n % 7, n % 7 % 2),
        }
        for n in range(COUNT)
    )
    return db


def test_references_are_loaded_with_the_records(workspace: Workspace) -> None:
    db = start(workspace)
    posts, authors = db.table("posts"), db.table("authors")
    query = posts.order_by("id").include("author", "editor.country", "author.friend.country")
    assert "with author, author.friend, author.friend.country, editor, editor.country" in repr(
        query
    )
    seen = 0
    for number, post in enumerate(query):
        author, is_there = post.follow("author"), number % 50 < 40 and number % 10 != 9
        assert author == (authors.get(number % 50, number % 2) if is_there else None)
        assert post.author == (None if number % 10 == 9 else (number % 50, number % 2))
        assert post.follow("editor").id == number % 7
        country = post.follow("editor.country")
        assert (country and country.code) == ("se", "at", None)[number % 7 % 3]
        friend = post.follow("author.friend")
        assert (friend and friend.id) == ((number % 50 - 1) if is_there and number % 50 else None)
        assert post == posts.get(number)
        seen += 1
    assert seen == COUNT
    for some in (
        query.limit(3),
        query.page(3),
        [posts.where(posts.f.id == 5).include("author").one()],
        [posts.order_by("-id").include("author").first()],
    ):
        for post in some:
            found = post.follow("author")
            assert (found and (found.id, found.part)) == (
                None if post.id % 10 == 9 or post.id % 50 >= 40 else post.author
            )


def test_a_chunk_takes_one_statement_for_each_reference(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    posts, statements = start(workspace).table("posts"), list[str]()
    original = Connection.fetch_all

    def fetch_all(self: Connection, sql: str, parameters: Any = ()) -> list[Any]:
        statements.append(sql)
        return original(self, sql, parameters)

    monkeypatch.setattr(Connection, "fetch_all", fetch_all)
    stream = iter(posts.where().include("author", "editor"))
    next(stream)
    assert sum(" IN " in sql for sql in statements) == 2
    assert sum(1 for _ in stream) == COUNT - 1
    assert sum(" IN " in sql for sql in statements) <= 2 * (2 + COUNT // INCLUDE_RECORDS_MAX)


def test_what_is_included_goes_with_copies_and_pickles(workspace: Workspace) -> None:
    posts = start(workspace).table("posts")
    post = posts.where(posts.f.id == 3).include("author.country").one()
    for twin in (copy.copy(post), copy.deepcopy(post), pickle.loads(pickle.dumps(post))):
        assert twin == post
        assert follow(twin, "author.country").name == "SE"
    bare = posts.get(3)
    assert pickle.dumps(posts.where(posts.f.id == 3).one()) == pickle.dumps(bare)
    assert asdict(bare) == asdict(post)
    assert repr(bare) == repr(post)
    other = replace(post, title="another")
    assert other.follow("author.country").name == "SE"
    with pytest.raises(UsageError, match="did not include"):
        replace(post, author=(4, 0)).follow("author")
    posts.update(3, title="other", if_unchanged=post)


def test_what_is_not_included_is_an_error(workspace: Workspace) -> None:
    db = start(workspace)
    posts = db.table("posts")
    post = posts.where(posts.f.id == 3).include("author").one()
    for path in ("editor", "author.country", "title"):
        with pytest.raises(UsageError, match="did not include") as caught:
            post.follow(path)
        assert caught.value.hint == f"add .include({path!r}) to the query"
    with pytest.raises(UnknownField, match="the table has no such field"):
        post.follow("nothing")
    with pytest.raises(UsageError, match="did not include"):
        posts.get(3).follow("author")
    with pytest.raises(UnknownField, match="did you mean 'author'"):
        posts.where().include("autor")
    with pytest.raises(UnknownField):
        posts.where().include("author.land")
    for wrong in ("title", "author.name"):
        with pytest.raises(UsageError, match="only references"):
            posts.where().include(wrong)
    with pytest.raises(UsageError, match="neither a field nor its name"):
        posts.where().include(7)


def test_rule_11_an_older_process_includes_in_its_own_shape(workspace: Workspace) -> None:
    old = start(workspace)
    workspace.write(
        2,
        "rename_field: {table: authors, field: name, to: full_name}",
        "rename_table: {table: authors, to: people}",
        "rename_field: {table: posts, field: author, to: writer}",
    )
    new = workspace.open()
    posts = old.table("posts")
    post = posts.where(posts.f.id == 3).include("author.country").one()
    assert post.follow("author").name == "author 3"
    assert post.follow("author.country").code == "se"
    posts = new.table("posts")
    assert posts.where(posts.f.id == 3).include("writer").one().follow("writer").full_name
