"""Sagas at work: an app that commits orders, two participants, a relay that is killed, an outage; then the books are compared.

    DATABASE_URL=… python3 demo.py RELAY PSQL     the relay's binary, and psql; scripts/demo-saga starts it with a database of its own

It ends by itself: 0 and a line of figures, or 1 and what was wrong.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
RELAY, PSQL = sys.argv[1:]
DATABASE = os.environ["DATABASE_URL"]
ORDERS = 60
PATIENCE = 40  # seconds for any one thing
START = time.monotonic()


class Failure(Exception):
    """What is to be seen did not happen."""


def say(text):
    print(f"{time.monotonic() - START:6.1f} s  {text}", flush=True)


def sql(text):
    """Runs it as one transaction would be typed, and returns its rows as lines."""
    command = [PSQL, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", DATABASE]
    return subprocess.run(command, input=text, check=True, text=True, stdout=subprocess.PIPE).stdout.split("\n")[:-1]


def number(query):
    return int(sql(f"SELECT {query}")[0])


def sagas(*statuses):
    return number("count(*) FROM outbox.sagas WHERE status IN ('" + "', '".join(statuses) + "')")


def wait(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"in {PATIENCE} s: {what}")
        time.sleep(0.02)


class Demo:
    def __init__(self, directory):
        self.directory = directory
        self.running = []
        self.env = {**os.environ, "RUST_LOG": "info"}
        self.ports = {}

    def start(self, *command, name):
        """A process of its own, whose log is kept until all is well."""
        log = open(f"{self.directory}/{name}.log", "a")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, env=self.env)
        self.running.append(process)
        return process

    def stop(self, process, how=signal.SIGKILL):
        process.send_signal(how)
        process.wait(PATIENCE)
        self.running.remove(process)

    def participant(self, *program, name, port=0):
        """Started, it says its port."""
        process = self.start(*program, str(port), f"{self.directory}/{name}", name=name)
        self.ports[name] = int(process.stdout.readline())
        return process

    def warehouse(self, name="warehouse"):
        return self.participant(sys.executable, f"{HERE}/warehouse.py", name=name)

    def payments(self, name="payments", port=0):
        return self.participant("node", f"{HERE}/payments.mjs", name=name, port=port)

    def relay(self, *arguments, name=None):
        """Runs a command to its end, or starts a relay of this name."""
        self.env["OUTBOX__RELAY__NAME"] = name or "demo"
        if name:
            return self.start(RELAY, "run", "--config", f"{HERE}/relay.toml", name=name)
        say("outbox-relay " + " ".join(arguments))
        ended = subprocess.run([RELAY, *arguments], text=True, stdout=subprocess.PIPE, env=self.env)
        for line in ended.stdout.splitlines():
            print(f"          {line}")
        if ended.returncode != 0:
            raise Failure(f"outbox-relay {arguments[0]} ended with {ended.returncode}")
        return ended.stdout

    def url(self, name, path=""):
        return f"http://127.0.0.1:{self.ports[name]}{path}"

    def books(self, name):
        with urllib.request.urlopen(self.url(name, "/books"), timeout=PATIENCE) as answer:
            return json.load(answer)

    def probe(self, name, do, undo):
        step = do[1:]
        order = '{"item": "lamp", "quantity": 1, "cents": 999, "country": "Iceland"}'
        found = self.relay("probe", self.url(name, do), "--undo", self.url(name, undo), "--step", step, "--payload", order)
        if any(not line.startswith("pass ") for line in found.splitlines() if line[:1] != " "):
            raise Failure(f"the probe of {name} has something to say")


def order(*numbers, end="COMMIT"):
    """The app: each order and its saga in one transaction. Nothing else is ever said to the relay."""
    sql("".join(f"""BEGIN;
        INSERT INTO orders (id, item, quantity, cents, country)
             VALUES ({number}, 'lamp', 2, 1999, '{"Atlantis" if number == 7 else "Iceland"}');
        INSERT INTO outbox.sagas (name, key, input)
             SELECT 'order', id::text, to_json(orders) FROM orders WHERE id = {number}
             ON CONFLICT (name, key) DO NOTHING;
        {end};""" for number in numbers))


def play(demo):
    # The probe does real work, so it meets participants that have books of their own.
    tried = [demo.warehouse("probed-warehouse"), demo.payments("probed-payments")]
    demo.probe("probed-warehouse", "/reserve", "/release")
    demo.probe("probed-payments", "/charge", "/refund")
    for process in tried:
        demo.stop(process)

    demo.relay("migrate")
    sql("CREATE TABLE orders (id integer PRIMARY KEY, item text, quantity integer, cents integer, country text)")
    demo.warehouse()
    payments = demo.payments()
    for endpoint, name in (("STOCK", "warehouse"), ("SHIPPING", "warehouse"), ("PAYMENT", "payments")):
        demo.env[f"OUTBOX__ENDPOINTS__{endpoint}__URL"] = demo.url(name)
    demo.relay("check", "--config", f"{HERE}/relay.toml")

    say(f"an app commits {ORDERS} orders; one more is rolled back, one goes where no carrier goes")
    first = demo.relay(name="first")
    for n in range(1, 21):
        order(n)
    order(1000, end="ROLLBACK")
    wait("a saga has succeeded", lambda: sagas("succeeded") > 0)
    order(*range(21, 41))
    wait("some are under way", lambda: sagas("running") > 3)
    demo.stop(first)
    say(f"kill -9 of the relay, {sagas('succeeded')} sagas have succeeded, {sagas('running', 'compensating')} are under way")
    demo.relay(name="second")
    for n in range(41, ORDERS + 1):
        order(n)
    wait("all sagas ended", lambda: sagas("succeeded", "compensated") == ORDERS)
    say(f"all are over: {sagas('succeeded')} succeeded, {sagas('compensated')} compensated")

    demo.stop(payments)
    say("payments is down, and an order comes")
    order(ORDERS + 1)
    wait("the saga is parked", lambda: sagas("parked") == 1)
    demo.relay("saga", "list", "--status", "parked")
    demo.payments(port=demo.ports["payments"])
    say("payments is back")
    parked = sql("SELECT id FROM outbox.sagas WHERE status = 'parked'")[0]
    demo.relay("saga", "resume", parked, "--why", "payments is back")
    wait("it has succeeded", lambda: sagas("parked", "running") == 0)
    demo.relay("saga", "show", parked)
    return verdict(demo)


def verdict(demo):
    """The books of the participants against what the app committed: the relay has no hand in either."""
    orders = {row["id"]: row for row in map(json.loads, sql("SELECT to_json(o) FROM orders o"))}
    known = [json.loads(line) for line in sql("SELECT json_build_object('id', id, 'order', key::int, 'status', status) FROM outbox.sagas")]
    warehouse, payments = demo.books("warehouse"), demo.books("payments")
    entries = warehouse["done"] + payments["done"]
    wrong = []
    for saga in known:
        kept = sorted(e["step"] for e in entries if e["saga"] == saga["id"] and not e["undone"])
        taken_back = sorted(e["step"] for e in entries if e["saga"] == saga["id"] and e["undone"])
        refused = orders[saga["order"]]["country"] == "Atlantis"
        want = ("compensated", [], ["charge", "reserve"]) if refused else ("succeeded", ["charge", "reserve", "ship"], [])
        if (saga["status"], kept, taken_back) != want:
            wrong.append(f"order {saga['order']}: {saga['status']}, kept {kept}, taken back {taken_back}")
    if sorted(orders) != sorted(saga["order"] for saga in known):
        wrong.append("orders and sagas are not the same")
    succeeded = [orders[saga["order"]] for saga in known if saga["status"] == "succeeded"]
    if warehouse["free"]["lamp"] != 1000 - sum(row["quantity"] for row in succeeded):
        wrong.append(f"{warehouse['free']['lamp']} lamps are free")
    paid = sum(e["cents"] for e in payments["done"] if not e["undone"])
    if paid != sum(row["cents"] for row in succeeded):
        wrong.append(f"{paid} cents were paid")
    unknown = {entry["saga"] for entry in entries} - {saga["id"] for saga in known}
    lost = number("count(*) FROM outbox.attempts WHERE outcome = 'lost'")
    agree = "differ from" if wrong else "agree with"
    say(f"the participants' books {agree} outbox.sagas; {lost} steps were lost with the relay, and sent again under their keys")
    print(f"demo-saga: orders={len(orders)} succeeded={len(succeeded)} compensated={len(known) - len(succeeded)} "
          f"paid={paid} wrong={len(wrong)} rolled_back_sent={len(unknown)}", flush=True)
    return wrong + ["what was rolled back was sent"] * bool(unknown)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="outbox-relay-demo-saga-") as directory:
        demo = Demo(directory)
        try:
            faults = play(demo)
        except (Failure, subprocess.SubprocessError, OSError) as failure:
            faults = [str(failure)]
        finally:
            for process in demo.running:
                process.kill()
        for fault in faults:
            print(f"demo-saga: {fault}", file=sys.stderr)
        if faults:
            for log in ("first", "second", "warehouse", "payments"):
                if os.path.exists(f"{directory}/{log}.log"):
                    tail = open(f"{directory}/{log}.log").readlines()[-10:]
                    print(f"--- {log}\n" + "".join(tail), file=sys.stderr)
    sys.exit(1 if faults else 0)


main()
