"""The callbacks that CUPTI gets: machine code, called here as CUPTI would."""

import ctypes
import mmap
import threading

import pytest

pytest.importorskip("llvmlite")

from tkdebug.runtime.cuda import activity_buffers
from tkdebug.runtime.cuda.activity_buffers import ActivityBuffers

REQUEST = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
COMPLETE = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class Client:
    """Calls the callbacks as CUPTI does."""

    def __init__(self, size_bytes, count):
        self.buffers = ActivityBuffers(size_bytes, count)
        self._request = REQUEST(self.buffers.requested)
        self._complete = COMPLETE(self.buffers.completed)

    def take(self):
        buffer, size, records = ctypes.c_void_p(), ctypes.c_size_t(9), ctypes.c_size_t(9)
        self._request(buffer, size, records)
        assert records.value == 0
        return buffer.value, size.value

    def give(self, buffer, data):
        ctypes.memmove(buffer, data, len(data))
        self._complete(None, 0, buffer, 4096, len(data))


def test_filled_buffers_come_oldest_first_and_are_used_again():
    client = Client(4096, 2)
    first, second = client.take()[0], client.take()[0]
    client.give(first, b"one")
    client.give(second, b"two")
    assert client.buffers.filled() == [b"one", b"two"]
    assert client.buffers.filled() == []
    assert {client.take()[0], client.take()[0]} == {first, second}


def test_cupti_gets_none_where_all_are_in_use():
    client = Client(4096, 2)
    assert [client.take()[1] for _ in range(3)] == [4096, 4096, 0]
    assert client.take() == (None, 0)


def test_empty_buffer_is_free_at_once():
    client = Client(4096, 1)
    buffer, _ = client.take()
    client.give(buffer, b"")
    assert client.buffers.filled() == []
    assert client.take() == (buffer, 4096)


def read_elsewhere(client, lent):
    """Read the buffers as another process does, and give them back."""
    with mmap.mmap(client.buffers.descriptor, 0) as memory:
        found = memory[lent.at : lent.at + lent.size_bytes]
        memory[lent.word_at] = 0
    return found


def test_lent_buffers_are_read_where_they_lie_and_used_again():
    client = Client(4096, 2)
    first, second = client.take()[0], client.take()[0]
    client.give(first, b"one")
    client.give(second, b"two")
    lent = client.buffers.lend()
    assert (client.buffers.lent_count(), client.take()) == (2, (None, 0))
    assert read_elsewhere(client, lent[1]) == b"two"
    assert client.buffers.lent_count() == 1
    assert client.take() == (second, 4096)
    assert read_elsewhere(client, lent[0]) == b"one"
    assert client.take() == (first, 4096)


def test_buffers_come_back_from_a_process_that_is_gone_but_for_those_of_cupti():
    client = Client(4096, 2)
    first, second = client.take()[0], client.take()[0]
    client.give(first, b"one")
    client.give(second, b"two")
    read_elsewhere(client, client.buffers.lend()[0])
    assert client.take()[0] == first
    client.buffers.take_back()
    assert client.take()[0] == second
    assert client.take() == (None, 0)


def test_memory_is_aligned_as_records_are():
    address, _ = Client(4096, 1).take()
    assert address % 8 == 0


def test_nothing_is_lost_or_taken_twice_among_threads():
    client = Client(64, 16)
    sent, received = [[] for _ in range(4)], []
    ended = threading.Event()

    def work(mine, number):
        made = 0
        while made < 1000:
            buffer, _ = client.take()
            if buffer is None:
                continue
            made += 1
            text = f"{number}:{made}".encode()
            client.give(buffer, text)
            mine.append(text)

    def drain():
        while not ended.is_set():
            received.extend(client.buffers.filled())

    threads = [threading.Thread(target=work, args=(sent[n], n)) for n in range(4)]
    drainer = threading.Thread(target=drain)
    for thread in (*threads, drainer):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    drainer.join()
    received.extend(client.buffers.filled())
    assert sorted(received) == sorted(text for mine in sent for text in mine)
    for number in range(4):
        own = [text for text in received if text.startswith(f"{number}:".encode())]
        assert own == sent[number]


def test_buffers_say_that_code_must_not_be_made(monkeypatch):
    monkeypatch.setattr(activity_buffers, "may_run_what_it_writes", lambda: False)
    with pytest.raises(OSError, match="forbids this process to make code"):
        ActivityBuffers(4096, 2)
