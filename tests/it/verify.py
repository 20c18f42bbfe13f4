"""Judges with libraries that nobody on this project wrote what a receiver was sent.

Reads one JSON object from standard input: `check`, `headers` (pairs, in lower case), `body` (base64), and what the check
needs beside. Prints what the library made of it as JSON; anything it refuses ends in a traceback and status 1.
"""

import base64
import json
import sys

given = json.load(sys.stdin)
headers = dict(given["headers"])
assert len(headers) == len(given["headers"]), "a header came twice"
body = base64.b64decode(given["body"])


def webhook():
    """v1, by the reference implementation; it compares the time with its own clock."""
    from standardwebhooks import Webhook

    Webhook(given["secret"]).verify(body, headers, json_parse=False)
    return True


def webhook_public():
    """v1a, which the reference implementation skips: one of the signatures must be made with this key's other half."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(given["key"].removeprefix("whpk_")))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    found = [signature.split(",") for signature in headers["webhook-signature"].split(" ")]
    for version, signature in found:
        if version == "v1a":
            try:
                key.verify(base64.b64decode(signature), signed)
                return True
            except InvalidSignature:
                pass
    raise InvalidSignature(f"none of {len(found)} signatures")


def structured_field():
    """The value of a header as a structured field's item."""
    import http_sf

    value, parameters = http_sf.parse(headers[given["header"]].encode(), tltype="item")
    return {"type": type(value).__name__, "value": str(value), "parameters": parameters}


def cloudevent():
    """The event in either mode, found out by the library."""
    from cloudevents.core.bindings.http import HTTPMessage, from_http_event

    return told(from_http_event(HTTPMessage(headers=headers, body=body)))


def cloudevents_batch():
    """The events of a batch. The library reads single ones only, so the array is taken apart here."""
    from cloudevents.core.formats.json import JSONFormat

    assert headers["content-type"].split(";")[0] == "application/cloudevents-batch+json", "not a batch"
    events = json.loads(body)
    assert isinstance(events, list), "not an array"
    return [told(JSONFormat().read(None, json.dumps(event))) for event in events]


def told(event):
    """What an event holds, as JSON."""
    data = event.get_data()
    if isinstance(data, (bytes, bytearray)):
        data = {"base64": base64.b64encode(data).decode()}
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    return {"attributes": attributes, "data": data}


checks = {check.__name__: check for check in (webhook, webhook_public, structured_field, cloudevent, cloudevents_batch)}
json.dump(checks[given["check"]](), sys.stdout)
