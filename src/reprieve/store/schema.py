"""The tables of store.db, as the sequence of steps that leads to them. docs/format.md explains each column."""

from __future__ import annotations

# Step n takes a database from user_version n-1 to n, in one transaction. A released step is never changed.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "PRAGMA application_id = 0x52505256",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE workspaces (id TEXT PRIMARY KEY, root BLOB NOT NULL, dev INTEGER NOT NULL, ino INTEGER NOT NULL,"
        " born_at INTEGER NOT NULL, created_at INTEGER NOT NULL, settings TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE intents (workspace TEXT PRIMARY KEY, intent BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE entries (workspace TEXT NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL UNIQUE,"
        " kind TEXT NOT NULL, created_at INTEGER NOT NULL, actor TEXT NOT NULL, label TEXT NOT NULL,"
        " note TEXT NOT NULL, step TEXT NOT NULL, delta BLOB NOT NULL, files INTEGER NOT NULL, size INTEGER NOT NULL,"
        " changed INTEGER NOT NULL, data TEXT NOT NULL, prev BLOB NOT NULL, hash BLOB NOT NULL,"
        " UNIQUE (workspace, seq))",
        "CREATE INDEX entries_label ON entries (workspace, label) WHERE label <> ''",
        "CREATE TABLE marks (workspace TEXT NOT NULL, seq INTEGER NOT NULL, is_pinned INTEGER NOT NULL DEFAULT 0,"
        " is_pruned INTEGER NOT NULL DEFAULT 0, name TEXT NOT NULL DEFAULT '', PRIMARY KEY (workspace, seq))"
        " WITHOUT ROWID",
        "CREATE TABLE fulls (workspace TEXT NOT NULL, seq INTEGER NOT NULL, object BLOB NOT NULL,"
        " PRIMARY KEY (workspace, seq)) WITHOUT ROWID",
        # AUTOINCREMENT: a pack's number is never given twice, so what a process remembers of a pack stays true
        "CREATE TABLE packs (number INTEGER PRIMARY KEY AUTOINCREMENT, end INTEGER NOT NULL,"
        " is_sealed INTEGER NOT NULL DEFAULT 0)",
        "CREATE TABLE frames (number INTEGER PRIMARY KEY, pack INTEGER NOT NULL, offset INTEGER NOT NULL,"
        " size INTEGER NOT NULL, codec INTEGER NOT NULL, raw_size INTEGER NOT NULL, count INTEGER NOT NULL)",
        "CREATE INDEX frames_pack ON frames (pack)",
        "CREATE TABLE objects (id BLOB PRIMARY KEY, frame INTEGER NOT NULL, start INTEGER NOT NULL,"
        " length INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE damaged (id BLOB PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID",
    ),
)
