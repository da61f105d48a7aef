"""The program of the Django page stores rows and tasks in one transaction, in the database that Django uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.acceptance.command_line import ENVIRONMENT
from tests.acceptance.web_programs import save_files_of
from tests.both_engines import Engine, name_of

PROGRAM = """
from django.db import connection, transaction
from shop import Order, confirm, place_order, scheduler

with connection.schema_editor() as editor:
    editor.create_model(Order)

with scheduler:
    with transaction.atomic():
        order = Order.objects.create(item="a lamp")
        handle = scheduler.submit(confirm.prepare(order.pk), connection=connection.connection)
        assert scheduler.count() == 0, "visible before the commit"
    assert scheduler.count() == 1
    try:
        with transaction.atomic():
            place_order("a chair")
            raise RuntimeError("rolled back")
    except RuntimeError:
        pass
    with transaction.atomic():
        place_order("a table")
        try:
            with transaction.atomic():  # a savepoint
                place_order("a bed")
                raise RuntimeError("rolled back to the savepoint")
        except RuntimeError:
            pass
    assert sorted(Order.objects.values_list("item", flat=True)) == ["a lamp", "a table"]
    with scheduler.running():
        assert handle.result(timeout=20) == "sent for a lamp"
        scheduler.stop()
    scheduler.run_until_idle(timeout=20)
    print(sorted(record.result for record in scheduler.history()))
"""


def test_a_task_exists_if_and_only_if_djangos_transaction_commits(tmp_path: Path, engine: Engine) -> None:
    save_files_of("django.md", tmp_path)
    store = name_of(tmp_path / "shop.db")
    shop = (tmp_path / "shop.py").read_text().replace('Scheduler("shop.db"', f"Scheduler({store!r}")
    if engine.is_postgres:
        shop = shop.replace('{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}', repr(_database(store)))
    (tmp_path / "shop.py").write_text(shop)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['sent for a lamp', 'sent for a table']\n"


def _database(address: str) -> dict[str, object]:
    """Return Django's description of a database."""
    parts = conninfo_to_dict(address)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    described = {name: parts[part] for name, part in names.items() if part in parts}
    return {"ENGINE": "django.db.backends.postgresql", **described, "OPTIONS": {"options": parts["options"]}}
