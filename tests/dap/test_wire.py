"""Bytes of the protocol, good and bad."""

import io
import json

import pytest

from tkdebug.debugger.dap.wire import MAX_BODY_BYTES, Connection, ProtocolError, Request

REQUEST = {"seq": 3, "type": "request", "command": "threads"}


def framed(text, header=None):
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    return (header or b"Content-Length: %d\r\n\r\n" % len(data)) + data


def requests(data):
    return list(Connection(io.BytesIO(data), io.BytesIO()).requests())


def test_requests_come_in_order_until_the_client_is_gone():
    second = {**REQUEST, "seq": 4, "arguments": {"a": 1}}
    data = framed(REQUEST) + framed(second) + b"Content-Length: 100\r\n\r\n{"
    assert requests(data) == [Request(3, "threads", {}), Request(4, "threads", {"a": 1})]


def test_the_name_of_the_header_may_be_in_small_letters():
    header = b"content-length:%d\r\n\r\n" % len(json.dumps(REQUEST))
    assert len(requests(framed(REQUEST, header))) == 1


@pytest.mark.parametrize(
    "cut", [b"", b"Content-Len", b"Content-Length: 9\r\n", b"Content-Length: 9\r\n\r"]
)
def test_a_client_that_leaves_in_a_header_is_gone(cut):
    assert requests(cut) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\r\n{}", "another line than the header"),
        (b"Content-Length: -1\r\n\r\n{}", "another line than the header"),
        (b"Content-Length: 2\n\n{}", "another line than the header"),
        (b"Content-Length: 2 \r\n\r\n{}", "another line than the header"),
        (b"Content-Length: 0x2\r\n\r\n{}", "another line than the header"),
        (b" Content-Length: 2\r\n\r\n{}", "another line than the header"),
        (b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), "expected at most"),
        (b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", "another line than the header"),
        (b"Content-Type: x\r\nContent-Length: 2\r\n\r\n{}", "another line than the header"),
        (b"Content-Length: 2\r\nContent-Type: x\r\n\r\n{}", "more headers than Content-Length"),
        (b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", "more headers than"),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", "another line than the header"),
        (b"x" * 4096 + b"Content-Length: 2\r\n\r\n{}", "another line than the header"),
        (framed(b"{nonsense"), "is no JSON"),
        (framed(b"[" * 100_000), "is no JSON"),
        (framed([1]), "is no JSON object"),
        (framed({"seq": True, "type": "request", "command": "x"}), "expected a request"),
        (framed({"seq": 1, "type": "event", "command": "x"}), "expected a request"),
    ],
)
def test_what_is_no_message_is_refused_in_one_line(data, message):
    with pytest.raises(ProtocolError, match=message) as raised:
        requests(data)
    assert "\n" not in str(raised.value)


def test_messages_are_numbered_and_a_client_that_is_gone_is_no_error():
    out = io.BytesIO()
    connection = Connection(io.BytesIO(), out)
    connection.respond(Request(7, "threads", {}), {"threads": []})
    connection.event("terminated")
    bodies = [
        json.loads(part.split(b"\r\n\r\n")[-1]) for part in out.getvalue().split(b"Content")[1:]
    ]
    assert [body["seq"] for body in bodies] == [1, 2]
    assert (bodies[0]["request_seq"], bodies[0]["success"]) == (7, True)
    out.close()
    connection.event("terminated")
