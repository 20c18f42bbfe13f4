"""A participant: stock and shipping. Reserves what was ordered, releases it again, and ships it. Standard library only.

    python3 warehouse.py PORT FILE      port 0: one that is free; the first line of the output says which

What it must do, and any participant must, is in the two functions `do` and `undo`.
"""
import hashlib
import json
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCHEMA = """
CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, free INTEGER NOT NULL CHECK (free >= 0));
INSERT INTO stock VALUES ('lamp', 1000) ON CONFLICT DO NOTHING;
-- What was done: by the key of its request, with a digest of that and the answer that it had.
CREATE TABLE IF NOT EXISTS done (
    key TEXT PRIMARY KEY, request TEXT NOT NULL, answer TEXT NOT NULL, input TEXT NOT NULL,
    saga TEXT NOT NULL, step TEXT NOT NULL, generation INTEGER NOT NULL, undone INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS done_by_step ON done (saga, step);
-- What was undone, also where there was nothing to undo: its do may be on its way still.
CREATE TABLE IF NOT EXISTS undone (
    saga TEXT NOT NULL, step TEXT NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (saga, step, generation));
"""


class Refused(Exception):
    """The business says no, and will say so whenever it is asked."""


def reserve(db, order):
    taken = (order["quantity"], order["item"], order["quantity"])
    if db.execute("UPDATE stock SET free = free - ? WHERE item = ? AND free >= ?", taken).rowcount == 0:
        raise Refused("not enough of it in stock")
    return {"reserved": order["quantity"]}


def release(db, order):
    db.execute("UPDATE stock SET free = free + ? WHERE item = ?", (order["quantity"], order["item"]))


def ship(_, order):
    if order["country"] == "Atlantis":
        raise Refused("no carrier goes there")
    return {"carrier": "post"}


DO = {"/reserve": reserve, "/ship": ship}
UNDO = {"/release": release}


def do(db, work, key, step, body):
    saga, name, generation = step
    late = "SELECT 1 FROM undone WHERE saga = ? AND step = ? AND generation >= ?"
    if db.execute(late, step).fetchone():
        raise Refused("this step was undone")
    request = hashlib.sha256(body).hexdigest()
    known = db.execute("SELECT request, answer FROM done WHERE key = ?", (key,)).fetchone()
    if known:
        if known[0] != request:
            raise Refused("this key came with another request before")
        return 200, json.loads(known[1])
    order = json.loads(body)["input"]
    answer = work(db, order)
    insert = "INSERT INTO done (key, request, answer, input, saga, step, generation) VALUES (?, ?, ?, ?, ?, ?, ?)"
    db.execute(insert, (key, request, json.dumps(answer), json.dumps(order), saga, name, generation))
    return 200, answer


def undo(db, work, step):
    db.execute("INSERT INTO undone VALUES (?, ?, ?) ON CONFLICT DO NOTHING", step)
    # Of earlier generations, too: a saga that is run again from a later step keeps what was done before that.
    which = "FROM done WHERE saga = ? AND step = ? AND generation <= ? AND NOT undone"
    orders = db.execute(f"SELECT input {which}", step).fetchall()
    for (order,) in orders:
        work(db, json.loads(order))
    db.execute(f"UPDATE done SET undone = 1 WHERE key IN (SELECT key {which})", step)
    return (200, {"undone": len(orders)}) if orders else (410, {"undone": 0})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        step = (self.headers["Saga-Id"], self.headers["Saga-Step"], int(self.headers["Saga-Generation"]))
        db = sqlite3.connect(FILE, timeout=10, isolation_level=None)
        db.execute("BEGIN IMMEDIATE")  # one at a time: of twins the second finds what the first did
        try:
            if self.path in DO:
                status, answer = do(db, DO[self.path], self.headers["Idempotency-Key"], step, body)
            elif self.path in UNDO:
                status, answer = undo(db, UNDO[self.path], step)
            else:
                raise Refused("no such path")
            db.execute("COMMIT")
        except (Refused, KeyError, TypeError, ValueError) as no:  # what is no order will be none the next time
            db.execute("ROLLBACK")
            status, answer = 422, {"error": str(no)}
        finally:
            db.close()  # what was not committed is rolled back
        self.answer(status, answer)

    def do_GET(self):
        """The books, for whoever audits them."""
        db = sqlite3.connect(FILE, timeout=10)
        done = db.execute("SELECT saga, step, input, undone FROM done").fetchall()
        books = [{"saga": s, "step": t, "input": json.loads(i), "undone": bool(u)} for s, t, i, u in done]
        self.answer(200, {"free": dict(db.execute("SELECT item, free FROM stock")), "done": books})
        db.close()

    def answer(self, status, answer):
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


FILE = sys.argv[2]
sqlite3.connect(FILE).executescript(SCHEMA)
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print(server.server_port, flush=True)
server.serve_forever()
