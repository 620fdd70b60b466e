"""A client of the Debug Adapter Protocol for tests: one request at a time, events as they come."""

import itertools
import json
import queue
import threading

from patience import LONGEST_WAIT_S


class Refused(Exception):
    """A request that was answered with an error."""


class Client:
    """Speaks to an adapter over two byte streams.

    Attributes:
        events: all that came so far.
    """

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._responses = queue.Queue()
        self._early = {}
        self._waiting = queue.Queue()
        self.events = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while line := self._reader.readline():
            length = int(line.split(b":")[1])
            assert self._reader.readline() == b"\r\n"
            message = json.loads(self._reader.read(length))
            if message["type"] == "response":
                self._responses.put(message)
            else:
                self.events.append(message)
                self._waiting.put(message)
        self._waiting.put({"event": "<end>", "body": {}})
        self._responses.put({"success": False, "message": "<end>"})

    def send(self, command, **arguments):
        """Send a request and leave its response for later."""
        number = next(self._numbers)
        body = {"seq": number, "type": "request", "command": command, "arguments": arguments}
        text = json.dumps(body).encode()
        self._writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(text), text))
        self._writer.flush()
        return number

    def request(self, command, **arguments):
        """The body of a request's response."""
        return self.answer(self.send(command, **arguments))

    def answer(self, number):
        """The body of the response to a request that was sent."""
        while number not in self._early:
            response = self._responses.get(timeout=LONGEST_WAIT_S)
            if "request_seq" not in response:
                raise Refused(response["message"])
            self._early[response["request_seq"]] = response
        response = self._early.pop(number)
        if not response["success"]:
            raise Refused(response["message"])
        return response["body"]

    def event(self, name):
        """The next event of that name; others in between are skipped."""
        while True:
            try:
                event = self._waiting.get(timeout=LONGEST_WAIT_S)
            except queue.Empty:
                raise AssertionError(f"no event {name}; events: {self.events}") from None
            if event["event"] == name:
                return event["body"]
            assert event["event"] != "<end>", f"no event {name} any more"

    def output(self, category):
        """All text of a category so far."""
        bodies = [e["body"] for e in self.events if e["event"] == "output"]
        return "".join(body["output"] for body in bodies if body["category"] == category)

    def begin(self, breakpoints=None, **launch):
        """Everything up to the script's first line."""
        capabilities = self.request("initialize", adapterID="tkdebug")
        self.event("initialized")
        answers = {}
        for path, lines in (breakpoints or {}).items():
            wanted = [line if isinstance(line, dict) else {"line": line} for line in lines]
            answers[path] = self.request(
                "setBreakpoints", source={"path": str(path)}, breakpoints=wanted
            )["breakpoints"]
        self.request("launch", **launch)
        self.request("configurationDone")
        return capabilities, answers

    def stack(self, thread):
        """The frames of a thread."""
        return self.request("stackTrace", threadId=thread)["stackFrames"]

    def values(self, frame, scope="Variables"):
        """The variables of a frame by name."""
        scopes = self.request("scopes", frameId=frame)["scopes"]
        (number,) = [s["variablesReference"] for s in scopes if s["name"].startswith(scope)]
        return {v["name"]: v for v in self.parts(number)}

    def parts(self, number, **page):
        """The parts of a value."""
        return self.request("variables", variablesReference=number, **page)["variables"]
