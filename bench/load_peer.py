#!/usr/bin/env python3
"""Reads the files of a model in another way and prints how many seconds that took.

usage: load_peer.py WAY THREADS FILE...

A part of load_bench.py. Ways: memfd (pread into fresh shared memory, by THREADS threads),
safetensors, fastsafetensors, runai-model-streamer. Imports are not counted; every byte is in memory
of the program's own afterwards.
"""

import mmap
import os
import sys
import threading
import time

BLOCK_BYTES = 8 << 20


def into_memfd(files, thread_count):
    total = sum(os.path.getsize(path) for path in files)
    memory = os.memfd_create("load_peer")
    os.ftruncate(memory, total)
    room = memoryview(mmap.mmap(memory, total))
    blocks, at = [], 0
    for path in files:
        fd, size = os.open(path, os.O_RDONLY), os.path.getsize(path)
        for begin in range(0, size, BLOCK_BYTES):
            blocks.append((fd, begin, at + begin, min(BLOCK_BYTES, size - begin)))
        at += size
    blocks.reverse()

    def work():
        while True:
            try:
                fd, offset, place, size = blocks.pop()
            except IndexError:
                return
            while size > 0:  # preadv runs without the interpreter's lock
                got = os.preadv(fd, [room[place:place + size]], offset)
                if got == 0:
                    raise EOFError
                offset, place, size = offset + got, place + got, size - got

    threads = [threading.Thread(target=work) for _ in range(thread_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return room


def with_safetensors(files, _):
    # load_file alone maps the file and reads nothing of it.
    return [{name: tensor.clone() for name, tensor in load_file(path).items()} for path in files]


def with_fastsafetensors(files, thread_count):
    loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True,
                                   max_threads=thread_count)
    loader.add_filenames({0: files})
    buffer = loader.copy_files_to_device()
    return loader, buffer, [buffer.get_tensor(name) for name in loader.get_keys()]


def with_runai(files, _):
    streamer = SafetensorsStreamer()
    streamer.__enter__()
    streamer.stream_files(files)
    return streamer, list(streamer.get_tensors())  # they lie in its one buffer


def main():
    way, thread_count, files = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if way == "safetensors":
        global load_file
        from safetensors.torch import load_file
    elif way == "fastsafetensors":
        global SafeTensorsFileLoader, SingleGroup
        from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    elif way == "runai-model-streamer":
        os.environ.setdefault("RUNAI_STREAMER_CONCURRENCY", str(thread_count))
        os.environ.setdefault("RUNAI_STREAMER_MEMORY_LIMIT", "-1")
        global SafetensorsStreamer
        from runai_model_streamer import SafetensorsStreamer
    run = {"memfd": into_memfd, "safetensors": with_safetensors,
           "fastsafetensors": with_fastsafetensors, "runai-model-streamer": with_runai}[way]
    began = time.monotonic()
    kept = run(files, thread_count)
    print(time.monotonic() - began)
    sys.stdout.flush()
    del kept
    os._exit(0)  # some of them take long to end


if __name__ == "__main__":
    main()
