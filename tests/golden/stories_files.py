"""Stories about files: what an agent's run did to them goes back exactly, and comes again by redo."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from golden.stories import story
from golden.world import World

DELETE = "import sqlite3; db = sqlite3.connect({!r}); db.execute('DELETE FROM people'); db.commit()"


@story()
def modified_created_and_deleted_files(w: World) -> None:
    w.project()
    w.run("agent", "echo more >> README.md; echo new > new.txt; rm src/util.py")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def rollback_twice_does_nothing_the_second_time(w: World) -> None:
    w.project()
    w.run("agent", "echo more >> README.md")
    w.ask("rollback", "base", "--yes")
    w.ask("rollback", "base", "--yes")


@story()
def binary_and_empty_files(w: World) -> None:
    w.write("empty", b"")
    w.write("zeros", bytes(5000))
    w.project()
    w.run("agent", "printf '\\001\\002' > data.bin; echo x > empty; : > zeros")
    w.ask("diff", "base", "--stat")
    w.ask("rollback", "base", "--yes")


@story()
def a_large_file_with_one_changed_place(w: World) -> None:
    w.write("large", b"".join(b"%09d\n" % n for n in range(400_000)))
    w.project()
    w.run("agent", "printf XXXX | dd of=large bs=1 seek=2000000 conv=notrunc 2>/dev/null")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def symbolic_links(w: World) -> None:
    w.write("../outside/target", "outside\n")
    w.files()
    (w.root / "link").symlink_to("README.md")
    (w.root / "dangling").symlink_to("no/such")
    (w.root / "out").symlink_to(w.base / "outside")
    w.base_checkpoint()
    w.run("agent", "ln -sfn src link; rm dangling; echo file > dangling; rm out; mkdir out; echo x > out/x")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def hard_links(w: World) -> None:
    w.files()
    os.link(w.root / "README.md", w.root / "second")
    w.base_checkpoint()
    w.run("agent", "rm second; echo alone > second; ln notes.txt third")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def modes(w: World) -> None:
    w.project()
    w.run("agent", "chmod 600 README.md; chmod 644 tool.sh; chmod 700 src")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")


@story()
def a_file_becomes_a_folder_and_a_folder_a_file(w: World) -> None:
    w.project()
    w.run("agent", "rm README.md; mkdir README.md; echo x > README.md/x; rm -r src; echo flat > src")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def renames_and_swaps(w: World) -> None:
    w.project()
    w.run("agent", "mv README.md READ.ME; mv src lib; mv notes.txt t; mv data.bin notes.txt; mv t data.bin")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")
    w.ask("redo")


@story()
def empty_folders_and_deep_ones(w: World) -> None:
    (w.root / "empty" / "inner").mkdir(parents=True)
    w.write("a/b/c/d/e/deep.txt", "deep\n")
    w.project()
    w.run("agent", "rmdir empty/inner empty; rm -r a; mkdir -p new/folder/tree")
    w.ask("rollback", "base", "--yes")


@story()
def odd_names(w: World) -> None:
    for name in ("new\nline", "-rf", "tab\there", "$(touch x)", "quote'\"", "ünï", "*", "trailing "):
        w.write(f"odd/{name}", f"{len(name)}\n")
    os.close(os.open(os.fsencode(w.root / "odd") + b"/\xff\xfe", os.O_CREAT | os.O_WRONLY, 0o644))
    w.project()
    w.run("agent", "rm -- odd/*; echo x > 'odd/ new'")
    w.ask("rollback", "base", "--dry-run")
    w.ask("rollback", "base", "--yes")


@story()
def ignored_files_and_dotfiles(w: World) -> None:
    w.write(".gitignore", ".env\nbuild/\n")
    w.write(".env", "TOKEN=x\n", 0o600)
    w.write("build/out", "built\n")
    w.project()
    w.run("agent", "rm -r .env build; echo '*' > .gitignore")
    w.ask("rollback", "base", "--yes")


@story()
def an_excluded_file_is_a_gap_and_stays(w: World) -> None:
    (w.base / "config.toml").write_text('exclude = ["*.iso"]\n')
    w.write("big.iso", "image\n")
    w.project()
    w.run("agent", "echo changed > big.iso; echo changed > README.md")
    w.ask("status", "--since", "base")
    w.ask("rollback", "base", "--yes")


@story()
def only_one_folder(w: World) -> None:
    w.project()
    w.run("agent", "echo x >> README.md; echo x >> src/main.py; rm src/util.py; echo x > src/new.py")
    w.ask("rollback", "base", "--only", "src", "--dry-run")
    w.ask("rollback", "base", "--only", "src", "--yes")
    w.ask("redo")


@story()
def only_two_files(w: World) -> None:
    w.project()
    w.run("agent", "echo x >> README.md; echo x >> src/main.py; echo x >> notes.txt")
    w.ask("rollback", "base", "--only", "README.md", "--only", "src/main.py", "--yes")


@story()
def a_live_database_goes_back_as_a_whole(w: World) -> None:
    with closing(sqlite3.connect(w.root / "data.db")) as db:
        db.execute("CREATE TABLE people (name TEXT)")
        db.execute("INSERT INTO people VALUES ('ada')")
        db.commit()
    w.project()
    before = (w.root / "data.db").read_bytes()
    w.python("agent", DELETE.format("data.db"))
    w.ask("rollback", "base", "--yes")
    w.note("the database has the bytes it had", (w.root / "data.db").read_bytes() == before)


@story()
def a_database_with_a_write_ahead_log_and_an_open_reader(w: World) -> None:
    """Its three files are not compared: SQLite decides what they hold."""
    w.project()
    with closing(sqlite3.connect(w.root / "live.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE people (name TEXT)")
        db.execute("INSERT INTO people VALUES ('ada')")
        db.commit()
        w.checkpoint("with-data")
        w.python("agent", DELETE.format("live.db"))
        done = w.cli("rollback", "with-data", "--yes", "--json")
    with closing(sqlite3.connect(w.root / "live.db")) as db:
        w.note("exit code and rows", [done.code, db.execute("SELECT * FROM people").fetchall()])


@story()
def revert_of_a_file_a_folder_and_a_glob(w: World) -> None:
    w.project()
    w.run("agent", "echo x >> README.md; echo x >> src/main.py; rm src/util.py; echo x >> notes.txt")
    w.ask("revert", "README.md", "--to", "base", "--dry-run")
    w.ask("revert", "README.md", "--to", "base")
    w.ask("revert", "src", "--to", "base")
    w.ask("revert", "*.txt", "--to", "base")
    w.ask("redo")
    w.ask("redo")
    w.ask("redo")


@story()
def revert_of_one_hunk(w: World) -> None:
    w.project()
    w.run("agent", w.line(2, "two") + "; " + w.line(18, "eighteen"))
    w.ask("revert", "notes.txt", "--to", "base", "--hunk", "1")
    w.ask("redo")


@story()
def revert_of_a_deleted_and_of_an_unknown_file(w: World) -> None:
    w.project()
    w.run("agent", "rm README.md")
    w.ask("revert", "README.md", "--to", "base")
    w.ask("revert", "no-such-file", "--to", "base")


@story()
def rollback_to_a_point_that_does_not_exist(w: World) -> None:
    w.project()
    w.ask("rollback", "no-such-point", "--yes")
    w.ask("undo", "call:no-such-call", "--yes")


@story()
def redo_with_nothing_to_redo(w: World) -> None:
    w.project()
    w.ask("redo")
